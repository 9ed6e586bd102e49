package container

import (
	"context"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// syncLimit is how long the end of a turn, and the background loop, wait for a disk.
const syncLimit = 10 * time.Second

// saving is one sync of a workspace. The kernel offers no way to call it off, so whoever has waited long enough leaves it
// behind; detaching the workspace waits for it.
type saving struct {
	done chan struct{} // closed at the end, after err was set
	err  error
}

// syncLive makes what a turn wrote durable. A workspace that cannot be synced is still on disk as far as the kernel has
// written it, so the turn's answer does not depend on it.
func (s *Service) syncLive(ctx context.Context, v *live) {
	ctx, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	if err := s.save(ctx, v); err != nil {
		s.log().WarnContext(ctx, "sync workspace", "container_id", v.id, "error", err)
	}
}

// save returns when everything written before the call is on disk. The caller holds the turn.
func (s *Service) save(ctx context.Context, v *live) error {
	for {
		run, current := s.saveOnce(ctx, v)
		if run == nil {
			return nil
		}
		select {
		case <-run.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if current {
			return run.err
		}
	}
}

// saveOnce gives the sync that runs, or begins one if there is something to write; current says that it covers every
// write so far.
func (s *Service) saveOnce(ctx context.Context, v *live) (run *saving, current bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.saving != nil:
		return v.saving, !v.dirty
	case v.ws == nil || !v.dirty:
		return nil, true
	}
	run, ws := &saving{done: make(chan struct{})}, v.ws
	v.saving, v.dirty = run, false
	go func() {
		defer close(run.done)
		run.err = s.syncDisk(context.WithoutCancel(ctx), ws)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.saving = nil
		if run.err != nil {
			v.dirty = true
		}
	}()
	return run, true
}

func (s *Service) syncDisk(ctx context.Context, ws *sandbox.Workspace) error {
	if s.sync != nil {
		return s.sync(ctx, ws)
	}
	return ws.Sync(ctx)
}

// soil notes that the workspace has something to write.
func (v *live) soil() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dirty = true
}
