package container

import (
	"context"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// CrashAt lets packing end at a step as the end of the process would, and a claim fail there.
func (s *Service) CrashAt(f func(step string) error) { s.crash = f }

// PackSteps are the steps of CrashAt, in order.
var PackSteps = []string{stepPackBlob, stepPackRow, stepUnpackImage, stepUnpackRow}

// ClaimSteps are those of a claim.
var ClaimSteps = []string{stepClaimImage, stepClaimRow}

// SweepYoungBlobs is sweepBlobs without the age that protects packing under way.
func (s *Service) SweepYoungBlobs(ctx context.Context) error {
	return s.sweepBlobsOlder(ctx, -time.Hour)
}

// RetryDelete finishes a deletion as the background loop does.
func (s *Service) RetryDelete(ctx context.Context, id ID) error { return s.retryDelete(ctx, id) }

// SyncWith replaces the writing of workspaces to disk.
func (s *Service) SyncWith(f func(context.Context, *sandbox.Workspace) error) { s.sync = f }

// LoseNote leaves a word for the next use of a container that its row does not have.
func (s *Service) LoseNote(id ID, err error) {
	v := s.known(id)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unsaved = unsaved{err: err}
}

// Entries counts the containers that the process knows.
func (s *Service) Entries() int { return len(s.snapshot()) }

// OutcomeOf says how a call ended.
var OutcomeOf = outcomeOf

// Frozen reports whether the sandbox of a container stands still. The container must have no turn.
func (s *Service) Frozen(id ID) bool {
	v := s.known(id)
	v.turn <- struct{}{}
	defer v.put()
	return v.frozen
}

// SweepExpired is one pass over the rows, as the background loop makes it.
func (s *Service) SweepExpired(ctx context.Context) error { return s.sweepExpired(ctx) }

// SweepPacks is one pass over workspaces that can be packed.
func (s *Service) SweepPacks(ctx context.Context) error { return s.sweepPacks(ctx) }

// SweepSnapshots removes all snapshots while there is no disk for them.
func (s *Service) SweepSnapshots(ctx context.Context) error { return s.sweepAllSnapshots(ctx) }

// SweepFullDisk is one look at the disk.
func (s *Service) SweepFullDisk(ctx context.Context) { s.sweepFullDisk(ctx) }
