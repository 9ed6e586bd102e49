package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// Where the driver can write a sandbox down, the variables of an interpreter outlive it: whoever puts away a sandbox that
// holds some keeps a snapshot, and the next sandbox of the container continues it. The row says that there are variables
// (replHeld), the snapshot store whether they can be continued; without the one or the other the container starts cold, and
// the next cell is told what it has lost.
//
//	sandbox with variables ── idle, memory, shutdown ──► snapshot ── next use ──► the same sandbox again
//	                                                        │
//	     packed, expired, deleted, disk filling up, older than others when space is short, server killed meanwhile
//	                                                        └──► gone: a cold start, which is told
//
// A snapshot is taken out of the store before it is continued, so that no random number is drawn twice.

const (
	// keepLimit is below sweepLimit. Somebody waits for the memory of a sandbox that is evicted, so it gets less.
	keepLimit      = 20 * time.Second
	keepEvictLimit = 5 * time.Second
	// keepAllLimit is how long the end of the service waits for those of all; keepers work at a time.
	keepAllLimit = 20 * time.Second
	keepers      = 2
)

// keeps tells whether there can be snapshots at all.
func (s *Service) keeps() bool {
	_, ok := s.Driver.(sandbox.Restorer)
	return ok && s.Snapshots != nil
}

// keep makes a snapshot of a sandbox that is about to be destroyed, if it holds variables that somebody may come back for;
// the sandbox has ended then. That it fails costs the variables and nothing else.
func (s *Service) keep(ctx context.Context, v *live, sb *sandbox.Sandbox, why string, limit time.Duration) {
	if !v.held || !s.keeps() || sb.Ended() || why != whyIdle && why != whyMemory && why != whyShutdown {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.writeSnapshot(ctx, v, sb); err != nil {
		s.log().WarnContext(ctx, "variables not kept", "container_id", v.id, "why", why, "error", err)
		return
	}
	s.log().InfoContext(ctx, "variables kept", "container_id", v.id, "why", why, "size_bytes", s.Snapshots.Size(string(v.id)), "took", time.Since(began))
}

func (s *Service) writeSnapshot(ctx context.Context, v *live, sb *sandbox.Sandbox) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.AdmitSnapshot != nil {
		if err := s.AdmitSnapshot(ctx); err != nil {
			return err
		}
	}
	use, err := sb.Usage(ctx)
	if err != nil {
		return err
	}
	return s.Snapshots.Keep(string(v.id), v.owner.AppID, use.Memory-use.Reclaimable, func(dir string) error {
		return sb.Checkpoint(ctx, dir)
	})
}

// seal has the snapshot of a container, if there is one, go with the workspace that has just been detached.
func (s *Service) seal(id ID) error {
	if s.Snapshots == nil {
		return nil
	}
	stamp, err := s.Workspaces.Stamp(string(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil // lost with its disk; the next use finds out
	}
	if err != nil {
		return err
	}
	return s.Snapshots.Seal(string(id), stamp)
}

// stamp tells the state of a detached image; empty if there is none.
func (l *Lease) stamp() string {
	if !l.c.hasWorkspace || l.c.packed() {
		return ""
	}
	stamp, err := l.s.Workspaces.Stamp(string(l.c.ID))
	if err != nil {
		return "" // attaching it says why
	}
	return stamp
}

// resume continues what was kept of the last sandbox, whose workspace had this stamp when it was still detached; nil if
// nothing was, or it cannot be continued. In every case there is no snapshot any more.
func (l *Lease) resume(ctx context.Context, spec sandbox.Spec, stamp string) *sandbox.Sandbox {
	s, c := l.s, l.c
	if !s.keeps() || c.repl != replHeld || stamp == "" {
		if err := s.dropSnapshot(c.ID); err != nil {
			s.log().ErrorContext(ctx, "remove snapshot", "container_id", c.ID, "error", err)
		}
		return nil
	}
	began := time.Now()
	dir, err := s.Snapshots.Take(string(c.ID), stamp)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var sb *sandbox.Sandbox
	if err == nil {
		// Not with the caller's patience: there is no second try.
		sb, err = s.Driver.(sandbox.Restorer).Restore(context.WithoutCancel(ctx), spec, dir)
		if err := os.RemoveAll(dir); err != nil {
			s.log().ErrorContext(ctx, "remove snapshot", "container_id", c.ID, "error", err)
		}
	}
	if err != nil {
		s.log().WarnContext(ctx, "kept variables cannot be continued", "container_id", c.ID, "error", err)
		return nil
	}
	s.log().InfoContext(ctx, "variables continued", "container_id", c.ID, "took", time.Since(began))
	return sb
}

// keepAll puts the resting sandboxes with variables away, those used last first, until time is up. What is left is for
// dropLive.
func (s *Service) keepAll(ctx context.Context) {
	if !s.keeps() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepAllLimit)
	defer cancel()
	all := s.idle()
	slices.Reverse(all)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range keepers {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(len(all)) && ctx.Err() == nil; n = next.Add(1) {
				s.keepOne(ctx, all[n-1])
			}
		})
	}
	workers.Wait()
}

func (s *Service) keepOne(ctx context.Context, v *live) {
	if !v.try() {
		return // used since
	}
	defer v.put()
	if !v.held {
		return
	}
	if err := s.endSandbox(ctx, v, whyShutdown); err != nil {
		s.log().ErrorContext(ctx, "put away sandbox", "container_id", v.id, "error", err)
	}
}

// dropSnapshot removes what was kept of a container.
func (s *Service) dropSnapshot(id ID) error {
	if s.Snapshots == nil {
		return nil
	}
	if err := s.Snapshots.Remove(string(id)); err != nil {
		return fmt.Errorf("remove snapshot of container %s: %w", id, err)
	}
	return nil
}

// sweepSnapshots removes what a crash left half-done, and lists the containers that seem to have a snapshot.
func (s *Service) sweepSnapshots() (map[string]bool, error) {
	have := map[string]bool{}
	if s.Snapshots == nil {
		return have, nil
	}
	ids, err := s.Snapshots.List()
	for _, id := range ids {
		have[id] = true
	}
	return have, errors.Join(err, s.Snapshots.Sweep())
}

// sweepAllSnapshots removes all snapshots while there is no disk for them. The background loop calls it.
func (s *Service) sweepAllSnapshots(ctx context.Context) error {
	if s.AdmitSnapshot == nil || s.Snapshots == nil {
		return nil
	}
	why := s.AdmitSnapshot(ctx)
	if why == nil {
		return nil
	}
	ids, err := s.Snapshots.List()
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, s.dropSnapshot(ID(id)))
	}
	if len(ids) > 0 {
		s.log().InfoContext(ctx, "kept variables removed", "count", len(ids), "why", why)
	}
	return errors.Join(errs...)
}
