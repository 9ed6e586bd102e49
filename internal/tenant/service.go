package tenant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// endedKeys is how long a key that expired stays in the lists.
	endedKeys = 30 * 24 * time.Hour
	// sessionKeys is the longest life of a key that goes as soon as it has expired: each client command
	// makes one for itself, and nobody asks for them again.
	sessionKeys = time.Hour
)

// Service keeps apps and keys. It is safe for concurrent use.
type Service struct {
	DB *db.DB
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// CursorKey signs list pages.
	CursorKey wire.CursorKey
	// MayAddApp is asked before a second app gets its first key or token. The text of its error is answered as a
	// 400. nil allows it.
	MayAddApp func() error
	// Log receives what a request does not answer; nil is nothing.
	Log *slog.Logger
	// IdentitySecret is what the identity tokens of apps are made of; empty verifies none.
	IdentitySecret []byte
	// PlatformSecret lets the original form of identity tokens in; empty does not.
	PlatformSecret string
	// IdentityOverlap is how long an identity token is taken after a newer one was made; 0 is DefaultIdentityOverlap.
	IdentityOverlap time.Duration
	// TokenIssuer is the claim iss of our tokens; "" is jwt.OwnIssuer.
	TokenIssuer string
	// Issuers are those of the settings, beside those made at run time. ReadIssuers prepares them.
	Issuers []jwt.Issuer
	// SigningOverlap is how long a signing key verifies after a newer one was made; 0 is DefaultSigningOverlap.
	SigningOverlap time.Duration
	// PublicURL is where applications reach this server; nil is unknown.
	PublicURL func() string
	// Audit keeps refusals and changes; nil keeps none.
	Audit *audit.Log
	// Limits are those for whom nothing else is set.
	Limits RateLimits
	// KeepUsers is how long a user is remembered after the last request who owns nothing and is not blocked, MaxUsers how many
	// of one app are; 0 = DefaultKeepUsers and DefaultMaxUsers.
	KeepUsers time.Duration
	MaxUsers  int
	// Erase ends what runs for a user of an app, as the settings say, and deletes what is his alone. nil: nothing can be owned.
	Erase func(ctx context.Context, user Caller) (Erased, error)
	// Transport fetches the keys of issuers; nil is the network.
	Transport http.RoundTripper

	identityState
}

// identityState is what is made at first need. Its zero value is ready.
type identityState struct {
	ownOnce sync.Once
	ownKeys *signing

	issuers issuerState
	limiter limiter

	sweep struct {
		sync.Mutex
		users time.Time // when idle users were looked for last
	}
}

// own are our own signing keys.
func (s *Service) own() *signing {
	s.ownOnce.Do(func() { s.ownKeys = &signing{s: s} })
	return s.ownKeys
}

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// CreateApp is CreateAppFor for the subject DefaultOwner of our own tokens.
func (s *Service) CreateApp(ctx context.Context, name string) (*App, error) {
	return s.CreateAppFor(ctx, name, "")
}

// CreateAppFor makes an app. owner is <issuer id>/<subject>, or a subject of our own tokens; it stays, as things are owned by
// it. A name that is taken is a conflict.
func (s *Service) CreateAppFor(ctx context.Context, name, owner string) (*App, error) {
	if err := checkAppName(name); err != nil {
		return nil, err
	}
	row := &appRow{ID: wire.NewID("app"), Name: name, CreatedAt: s.now().UnixMicro(), OwnerIssuer: jwt.OwnIssuer, OwnerSub: DefaultOwner}
	if owner != "" {
		var err error
		if row.OwnerIssuer, row.OwnerSub, err = splitUser(owner); err != nil {
			return nil, wire.Invalid("owner: expected a subject, or the id of an issuer, '/' and a subject.")
		}
		if err := s.checkIssuer(ctx, "owner", row.OwnerIssuer, owner); err != nil {
			return nil, err
		}
	}
	err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		if err := insertApp(ctx, tx, row); err != nil {
			return err
		}
		return insertGeneration(ctx, tx, &generationRow{AppID: row.ID, Gen: 1, CreatedAt: row.CreatedAt})
	})
	if db.IsUnique(err) {
		return nil, wire.Conflict("name: there is already an app with this name.")
	}
	if err != nil {
		return nil, fmt.Errorf("create app: %w", err)
	}
	return row.app(), nil
}

// EnsureDefaultApp gives the app named default and makes it in an empty database.
func (s *Service) EnsureDefaultApp(ctx context.Context) (*App, error) {
	app, err := s.GetApp(ctx, DefaultApp)
	if err == nil {
		return app, nil
	}
	if !isNotFound(err) {
		return nil, err
	}
	app, err = s.CreateApp(ctx, DefaultApp)
	var we *wire.Error
	if errors.As(err, &we) && we.Type == wire.TypeConflict {
		// Another server on the same database was faster.
		return s.GetApp(ctx, DefaultApp)
	}
	return app, err
}

func isNotFound(err error) bool {
	var we *wire.Error
	return errors.As(err, &we) && we.Type == wire.TypeNotFound
}

func noApp() error { return &wire.Error{Type: wire.TypeNotFound, Message: "There is no such app."} }
func noKey() error { return &wire.Error{Type: wire.TypeNotFound, Message: "There is no such key."} }

// GetApp finds an app by id or name.
func (s *Service) GetApp(ctx context.Context, idOrName string) (*App, error) {
	if !storable(idOrName) {
		return nil, noApp()
	}
	row, err := selectApp(ctx, s.DB.Read(), idOrName)
	if errors.Is(err, db.ErrNotFound) {
		return nil, noApp()
	}
	if err != nil {
		return nil, fmt.Errorf("get app: %w", err)
	}
	return row.app(), nil
}

// AppChange is what is to be different about an app; nil stays.
type AppChange struct {
	// Disabled shuts the app off: from the next request on its keys answer 401 and its users' tokens 403; what runs goes on.
	Disabled            *bool
	Origin              *string
	RequireTokenBinding *bool
	AllowedModels       *[]string
}

// apply checks the change and makes it to a row.
func (ch AppChange) apply(row *appRow, now int64) error {
	if ch.Origin != nil {
		if *ch.Origin != "" && !isOrigin(*ch.Origin) {
			return wire.Invalid("origin: expected an address such as https://app.example.com, without a path.")
		}
		row.Origin = *ch.Origin
	}
	if ch.AllowedModels != nil {
		for n, p := range *ch.AllowedModels {
			if p == "" || len(p) > 200 || !storable(p) || strings.ContainsFunc(p, unicode.IsSpace) {
				return wire.Invalid("allowed_models.%d: expected a model's name, or a pattern with '*'.", n)
			}
		}
		row.AllowedModels = strings.Join(*ch.AllowedModels, " ")
	}
	if ch.RequireTokenBinding != nil {
		row.RequireTokenBinding = *ch.RequireTokenBinding
	}
	switch {
	case ch.Disabled == nil || *ch.Disabled == (row.DisabledAt != nil):
	case *ch.Disabled:
		row.DisabledAt = &now
	default:
		row.DisabledAt = nil
	}
	return nil
}

// columns are those that the change is about.
func (ch AppChange) columns() []string {
	var out []string
	for column, given := range map[string]bool{
		"disabled_at": ch.Disabled != nil, "origin": ch.Origin != nil,
		"require_token_app_binding": ch.RequireTokenBinding != nil, "allowed_models": ch.AllowedModels != nil,
	} {
		if given {
			out = append(out, column)
		}
	}
	return out
}

// isOrigin: tokens name an application so in aud or azp, compared as text.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && s == u.Scheme+"://"+u.Host
}

// UpdateApp changes an app.
func (s *Service) UpdateApp(ctx context.Context, idOrName string, ch AppChange) (*App, error) {
	if !storable(idOrName) {
		return nil, noApp()
	}
	var row *appRow
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		var err error
		if row, err = s.appForChange(ctx, tx, idOrName, ch); err != nil {
			return err
		}
		was := row.DisabledAt != nil
		if err := ch.apply(row, s.now().UnixMicro()); err != nil {
			return err
		}
		if was && row.DisabledAt == nil {
			if err := s.checkSecondApp(ctx, tx, row.ID, true); err != nil {
				return err
			}
		}
		if columns := ch.columns(); len(columns) > 0 {
			return updateApp(ctx, tx, row, columns)
		}
		return nil
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil, noApp()
	}
	if err != nil {
		return nil, fmt.Errorf("update app: %w", err)
	}
	return row.app(), nil
}

// appForChange gives an app as no other change is making it different meanwhile.
func (s *Service) appForChange(ctx context.Context, tx db.Tx, idOrName string, ch AppChange) (*appRow, error) {
	if ch.Disabled != nil && !*ch.Disabled {
		// It may become the second app in use; see checkSecondApp, whose lock comes before that of any app.
		if err := lockOldestApp(ctx, s.DB, tx); err != nil {
			return nil, err
		}
	}
	row, err := selectApp(ctx, tx, idOrName)
	if err != nil {
		return nil, err
	}
	if err := lockApp(ctx, s.DB, tx, row.ID); err != nil {
		return nil, err
	}
	return selectApp(ctx, tx, row.ID)
}

// ListApps gives apps, newest first, and the cursor of the next page or "".
func (s *Service) ListApps(ctx context.Context, limit int, page string) ([]*App, string, error) {
	at, err := s.position("apps", page)
	if err != nil {
		return nil, "", err
	}
	rows, err := selectApps(ctx, s.DB.Read(), at, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list apps: %w", err)
	}
	next := ""
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		if next, err = wire.EncodeCursor(s.CursorKey, "apps", last.CreatedAt, last.ID); err != nil {
			return nil, "", fmt.Errorf("list apps: %w", err)
		}
	}
	apps := make([]*App, len(rows))
	for i, r := range rows {
		apps[i] = r.app()
	}
	return apps, next, nil
}

// position decodes a list cursor; "" is the beginning.
func (s *Service) position(filter, page string) (*position, error) {
	if page == "" {
		return nil, nil // no position is the beginning
	}
	var at position
	if err := wire.DecodeCursor(s.CursorKey, filter, page, &at.createdAt, &at.id); err != nil {
		return nil, err
	}
	return &at, nil
}
