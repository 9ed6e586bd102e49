package file

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Service is the Files API. It is safe for concurrent use.
type Service struct {
	DB    *db.DB
	Blobs *blob.Store
	// Log gets what the sweeper does; nil means slog.Default().
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// MaxBytes is the limit of one file; 0 means 500 MiB.
	MaxBytes int64
	// QuotaBytes is the limit of all live files of one app; 0 means none.
	QuotaBytes int64
	// UploadsDownloadable lifts the rule that uploads cannot be downloaded.
	UploadsDownloadable bool
	// CursorKey signs list pages.
	CursorKey wire.CursorKey
}

func (s *Service) Upload(ctx context.Context, c tenant.Caller, p UploadParams) (*File, error) {
	panic("soon")
}
func (s *Service) CreateOutput(ctx context.Context, o tenant.Owner, p OutputParams) (*File, error) {
	panic("soon")
}

// Get gives the metadata, also of an expired file until 30 days later.
func (s *Service) Get(ctx context.Context, c tenant.Caller, id ID) (*File, error) { panic("soon") }
func (s *Service) Delete(ctx context.Context, c tenant.Caller, id ID) error       { panic("soon") }

// Open gives the content for the caller's own containers and messages: it ignores the download rule and
// honours expiry (404 file_expired).
func (s *Service) Open(ctx context.Context, c tenant.Caller, id ID) (*File, io.ReadCloser, error) {
	panic("soon")
}

// Authorize checks references of a message through which bytes flow, in one query: every id must exist,
// be the caller's to use (else the constant 404) and not be expired (else 404 file_expired).
func (s *Service) Authorize(ctx context.Context, c tenant.Caller, ids []ID) (map[ID]*File, error) {
	return s.AuthorizeQuoted(ctx, c, ids, nil)
}

// AuthorizeQuoted is Authorize with a second set: ids quoted in replayed history, which only need to have
// been the caller's to use and may be expired or deleted since. One query for both.
func (s *Service) AuthorizeQuoted(ctx context.Context, c tenant.Caller, ids, quoted []ID) (map[ID]*File, error) {
	panic("soon")
}

// Sweep frees what expired, ends metadata after 30 days and removes blobs without a row.
func (s *Service) Sweep(ctx context.Context) error { panic("soon") }
