package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Fork makes a new container with a copy of the workspace of another: of the caller, in the same scope, on the same root file
// system, with a life of its own. It waits for a running turn like every use; processes and interpreter variables stay with the
// source. From then on neither sees what the other does. Errors are those of Acquire, and wire.Overloaded where disk or
// memory cannot carry another container.
func (s *Service) Fork(ctx context.Context, caller tenant.Caller, id ID) (*Container, error) {
	if id == "" {
		return nil, id.Validate()
	}
	l, err := s.Acquire(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	defer l.release(ctx, false)
	turn, cancel := l.Context(ctx)
	defer cancel()
	if err := l.unsavedError(turn); err != nil { // the copy would have the same holes, and nobody would be told of them
		return nil, err
	}
	fork, err := l.fork(turn)
	if err != nil && l.ended.Err() != nil {
		return nil, context.Cause(l.ended)
	}
	return fork, err
}

func (l *Lease) fork(ctx context.Context) (*Container, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, c := l.s, l.c
	img, err := s.FindRootFS(c.RootFS)
	if err != nil {
		return nil, wire.Internal(fmt.Errorf("root file system %s of container %s: %w", c.RootFS, c.ID, err))
	}
	if s.AdmitNew != nil {
		if err := s.AdmitNew(ctx); err != nil {
			return nil, err
		}
	}
	flow, err := tenant.NewFlow(l.caller, &c.Owner, true)
	if err != nil {
		return nil, err
	}
	fork := s.blank(flow.Owner(), img.Name, c.IdleTTL)
	if c.repl != replNone {
		fork.repl = replLost
	}
	if err := l.loadInputs(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	// The image comes first: a row that promises a workspace has one. What a crash leaves is an image without a row.
	if fork.hasWorkspace, err = l.copyWorkspace(ctx, fork.ID); err != nil {
		return nil, err
	}
	if err := insertFork(ctx, s.DB, fork, l.inputs); err != nil {
		return nil, errors.Join(err, s.Workspaces.Remove(string(fork.ID)))
	}
	s.log().InfoContext(ctx, "container forked", "container_id", c.ID, "fork_id", fork.ID, "took", time.Since(began))
	return fork, nil
}

// copyWorkspace makes the image of an id from the workspace as it is now; false if there is none yet.
func (l *Lease) copyWorkspace(ctx context.Context, id ID) (bool, error) {
	s, c := l.s, l.c
	switch {
	case !c.hasWorkspace:
		return false, nil
	case c.packed():
		return true, l.copyPacked(ctx, id)
	}
	stop, err := l.standStill(ctx)
	if err != nil {
		return false, fmt.Errorf("fork container %s: %w", c.ID, err)
	}
	defer stop()
	err = s.Workspaces.Clone(ctx, string(c.ID), string(id))
	if errors.Is(err, os.ErrNotExist) {
		return false, l.lost(ctx)
	}
	return err == nil, capacity(err)
}

// copyPacked leaves the source packed, and where it is.
func (l *Lease) copyPacked(ctx context.Context, id ID) error {
	if err := l.s.getPack(ctx, l.c, id); err != nil {
		return l.unpackError(ctx, err)
	}
	return nil
}

// standStill stops what runs in the container and writes everything to its image, so that the image is the workspace of
// one moment. The result lets it run again.
func (l *Lease) standStill(ctx context.Context) (goOn func(), err error) {
	s, v := l.s, l.live
	goOn = func() {}
	if sb := v.sandbox(); sb != nil && !sb.Ended() {
		if goOn, err = v.halt(ctx, sb); err != nil {
			return nil, err
		}
	}
	v.markDirty() // whatever ran since the last sync
	if err := s.save(ctx, v); err != nil {
		goOn()
		return nil, err
	}
	return goOn, nil
}

// halt freezes a sandbox until the result is called, after the guest has written what it holds back. One that was frozen
// before stays so.
func (v *live) halt(ctx context.Context, sb *sandbox.Sandbox) (goOn func(), err error) {
	limited, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	was := v.frozen
	if was {
		if err := sb.Thaw(limited); err != nil {
			return nil, err
		}
		v.frozen = false
	}
	if err := sb.Sync(limited); err != nil && !sb.Ended() {
		return nil, err
	}
	if err := v.freeze(ctx, sb); err != nil && !sb.Ended() {
		return nil, err
	}
	if was {
		return func() {}, nil
	}
	return func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeLimit)
		defer cancel()
		v.frozen = sb.Thaw(undo) != nil // then the next use tries, and says what is wrong
	}, nil
}
