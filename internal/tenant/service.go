package tenant

import (
	"context"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Service keeps apps and keys. It is safe for concurrent use.
type Service struct {
	DB *db.DB
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// CursorKey signs list pages.
	CursorKey wire.CursorKey
	// MayAddApp is asked before a second app gets its first key. Its error's text is answered as a 400.
	// nil allows it.
	MayAddApp func() error
}

// NewKey describes a key to be made.
type NewKey struct {
	// App is an app's id or name.
	App    string
	Name   string
	Scopes []string
	// TTL ends the key by itself; 0 means never.
	TTL time.Duration
}

func (s *Service) CreateApp(ctx context.Context, name string) (*App, error) { panic("soon") }
func (s *Service) ListApps(ctx context.Context, limit int, page string) ([]*App, string, error) {
	panic("soon")
}
func (s *Service) GetApp(ctx context.Context, idOrName string) (*App, error)     { panic("soon") }
func (s *Service) DisableApp(ctx context.Context, idOrName string) (*App, error) { panic("soon") }
func (s *Service) EnableApp(ctx context.Context, idOrName string) (*App, error)  { panic("soon") }

// CreateKey returns the key and its secret, which is shown this once.
func (s *Service) CreateKey(ctx context.Context, n NewKey) (*Key, string, error) { panic("soon") }
func (s *Service) ListKeys(ctx context.Context, app string, limit int, page string) ([]*Key, string, error) {
	panic("soon")
}
func (s *Service) RevokeKey(ctx context.Context, id string) error { panic("soon") }

// EnsureAdminKey makes the admin key file (0600) if it does not exist and returns the key in it.
func (s *Service) EnsureAdminKey(ctx context.Context, path string) (string, error) { panic("soon") }
func (s *Service) EnsureDefaultApp(ctx context.Context) (*App, error)              { panic("soon") }

// AppsWithKeys counts the apps that have a live key, for the start-up check of shared kernels.
func (s *Service) AppsWithKeys(ctx context.Context) (int, error) { panic("soon") }

// Sweep removes keys that ended long ago.
func (s *Service) Sweep(ctx context.Context) error { panic("soon") }
