package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Service is the Files API. It is safe for concurrent use. It starts no goroutine; the server calls Sweep
// once a minute.
type Service struct {
	DB    *db.DB
	Blobs *blob.Store
	// Log gets what the sweeper and failed clean-ups report; nil means slog.Default().
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// MaxBytes is the limit of one file; 0 means DefaultMaxBytes.
	MaxBytes int64
	// QuotaBytes is the limit of all live files of one app; 0 means none.
	QuotaBytes int64
	// UploadsDownloadable lifts the rule that uploads cannot be downloaded.
	UploadsDownloadable bool
	// CursorKey signs list pages.
	CursorKey wire.CursorKey
	// OrphanAge is how old a blob without a row must be to be swept; 0 means one hour. An upload that takes
	// half as long from its last byte to its end is refused.
	OrphanAge time.Duration

	latest atomic.Int64 // the latest time read

	sweep struct {
		sync.Mutex
		orphans time.Time // when blobs were last compared with rows
	}
}

// Get gives the metadata, also of an expired file until 30 days after its expiry.
func (s *Service) Get(ctx context.Context, c tenant.Caller, id ID) (*File, error) {
	row, err := selectVisible(ctx, s.DB, c, string(id), s.metadataLimit())
	if errors.Is(err, db.ErrNotFound) {
		return nil, wire.NotFound()
	}
	if err != nil {
		return nil, fmt.Errorf("get file %s: %w", id, err)
	}
	return row.file(), nil
}

// Open gives the content to the caller's own containers and messages: it ignores the download rule and
// honours expiry (404 file_expired).
func (s *Service) Open(ctx context.Context, c tenant.Caller, id ID) (*File, io.ReadCloser, error) {
	f, err := s.Get(ctx, c, id)
	if err != nil {
		return nil, nil, err
	}
	if f.Expired(s.now()) {
		return nil, nil, errExpired(id)
	}
	body, err := s.openBlob(ctx, c, f, 0)
	if err != nil {
		return nil, nil, err
	}
	return f, body, nil
}

// openBlob opens the bytes behind f. If they are gone because f was deleted or expired a moment ago, the
// answer is that of a deleted file; if the row still claims them, the store has lost them.
func (s *Service) openBlob(ctx context.Context, c tenant.Caller, f *File, offset int64) (io.ReadCloser, error) {
	if f.blobKey == "" {
		return nil, errExpired(f.ID)
	}
	body, err := s.Blobs.Open(ctx, f.blobKey, offset, -1)
	if !errors.Is(err, blob.ErrNotFound) {
		if err != nil {
			return nil, fmt.Errorf("open file %s: %w", f.ID, err)
		}
		return body, nil
	}
	now, getErr := s.Get(ctx, c, f.ID)
	if getErr != nil {
		return nil, getErr
	}
	if now.Expired(s.now()) {
		return nil, errExpired(f.ID)
	}
	return nil, fmt.Errorf("open file %s: %w", f.ID, err)
}

// Delete removes a file, or the metadata of an expired one. A second time it is unknown.
func (s *Service) Delete(ctx context.Context, c tenant.Caller, id ID) error {
	var key string
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		row, err := lockVisible(ctx, s.DB, tx, c, string(id), s.metadataLimit())
		if err != nil {
			return err
		}
		key = row.BlobKey
		return entomb(ctx, tx, row, s.now().UnixMicro())
	})
	if errors.Is(err, db.ErrNotFound) || errors.Is(err, db.ErrStale) {
		return wire.NotFound()
	}
	if err != nil {
		return fmt.Errorf("delete file %s: %w", id, err)
	}
	s.dropBlob(ctx, key)
	return nil
}

// dropBlob deletes bytes that no row claims. When it fails the sweeper does it later.
func (s *Service) dropBlob(ctx context.Context, key string) {
	if key == "" {
		return
	}
	// The request may be over, because its client has left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := s.Blobs.Delete(ctx, key); err != nil {
		s.log().WarnContext(ctx, "blob left for the sweeper", slog.String("blob_key", key), slog.Any("error", err))
	}
}

// now never goes back while the server runs: what has expired stays expired when somebody sets the clock.
func (s *Service) now() time.Time {
	read := s.Now
	if read == nil {
		read = time.Now
	}
	now := read().UnixMicro()
	for {
		latest := s.latest.Load()
		if now <= latest {
			return time.UnixMicro(latest).UTC()
		}
		if s.latest.CompareAndSwap(latest, now) {
			return time.UnixMicro(now).UTC()
		}
	}
}

func (s *Service) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}

func (s *Service) maxBytes() int64 {
	if s.MaxBytes > 0 {
		return s.MaxBytes
	}
	return DefaultMaxBytes
}

func (s *Service) orphanAge() time.Duration {
	if s.OrphanAge > 0 {
		return s.OrphanAge
	}
	return time.Hour
}

// metadataLimit is the expiry up to which metadata has vanished by now.
func (s *Service) metadataLimit() int64 { return s.now().Add(-keepMetadata).UnixMicro() }
