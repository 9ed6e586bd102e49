package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
)

const sweepBatch = 500

// Sweep frees the bytes of expired files, ends their metadata after 30 days, and removes blobs that have
// no row: what an aborted or killed upload or deletion left. Blobs are compared with rows at the first call
// and then once per OrphanAge, since that reads the whole store. It may be repeated and run on several
// servers at once.
func (s *Service) Sweep(ctx context.Context) error {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	if err := s.sweepExpired(ctx); err != nil {
		return fmt.Errorf("sweep expired files: %w", err)
	}
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		return sweepMetadata(ctx, tx, s.metadataLimit(), s.now().UnixMicro())
	})
	if err != nil {
		return fmt.Errorf("sweep metadata of files: %w", err)
	}
	if started := time.Now(); started.Sub(s.sweep.orphans) >= s.orphanAge() {
		if err := s.sweepOrphans(ctx, started); err != nil {
			return fmt.Errorf("sweep blobs without a file: %w", err)
		}
		if err := s.Blobs.Clean(ctx); err != nil {
			return fmt.Errorf("sweep files: %w", err)
		}
		s.sweep.orphans = started
	}
	return nil
}

func (s *Service) sweepExpired(ctx context.Context) error {
	for {
		var rows []*fileRow
		err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
			var err error
			rows, err = sweepExpired(ctx, s.DB, tx, s.now().UnixMicro(), sweepBatch)
			return err
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			s.dropBlob(ctx, r.BlobKey)
		}
		if len(rows) < sweepBatch {
			return nil
		}
	}
}

func (s *Service) sweepOrphans(ctx context.Context, now time.Time) error {
	var batch []string
	var errs []error
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		claimed, err := sweepClaimed(ctx, s.DB.Read(), batch)
		if err != nil {
			return err
		}
		for _, key := range batch {
			if claimed[key] {
				continue
			}
			if err := s.Blobs.Delete(ctx, key); err != nil {
				errs = append(errs, err)
				continue
			}
			s.log().InfoContext(ctx, "blob without a file removed", slog.String("blob_key", key))
		}
		batch = batch[:0]
		return nil
	}
	err := s.Blobs.List(ctx, "files/", func(e blob.Entry) error {
		// Younger ones may belong to an upload that is about to insert its row.
		if now.Sub(e.ModTime) < s.orphanAge() {
			return nil
		}
		if batch = append(batch, e.Key); len(batch) < sweepBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return errors.Join(append(errs, err)...)
}
