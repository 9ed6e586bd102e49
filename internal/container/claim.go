package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Class is what a fresh container with this root file system asks the pool for; the empty name is the default one.
func (s *Service) Class(rootFS string) (sandbox.Class, error) {
	img, err := s.FindRootFS(rootFS)
	if err != nil {
		return sandbox.Class{}, err
	}
	return s.class(img), nil
}

func (s *Service) class(img *rootfs.Image) sandbox.Class {
	return sandbox.Class{RootFS: img.Path, Limits: s.limits(), Preload: s.Preload, Hold: img.Hold}
}

// fresh reports whether the container has never had a workspace.
func (l *Lease) fresh() bool { return !l.c.hasWorkspace && l.live.ws == nil }

// Steps of a claim at which tests let it fail.
const (
	stepClaimImage = "claim: image named"
	stepClaimRow   = "claim: row written"
)

// claim gives a container that never had a workspace a sandbox of the pool, whose blank workspace becomes the container's;
// nil if none is ready. release gives back the hold on the root file system.
//
// The image gets the container's name before the row says that there is one: after a crash in between, the container
// begins anew, as it does when its own image was just made.
func (l *Lease) claim(ctx context.Context, img *rootfs.Image) (sb *sandbox.Sandbox, release func(), err error) {
	s, v, c := l.s, l.live, l.c
	if !l.fresh() {
		return nil, nil, nil
	}
	if err := s.clear(c.ID); err != nil {
		return nil, nil, err
	}
	m := s.Pool.Claim(ctx, s.class(img))
	if m == nil {
		return nil, nil, nil
	}
	if err := s.Workspaces.Rename(m.Workspace, string(c.ID)); err != nil {
		m.Discard()
		return nil, nil, fmt.Errorf("workspace of container %s from the pool: %w", c.ID, err)
	}
	err = s.step(stepClaimImage)
	if err == nil {
		err = setWorkspace(ctx, s.DB, c.ID, true)
	}
	if err == nil {
		err = s.step(stepClaimRow)
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.unclaim(ctx, m))
	}
	c.hasWorkspace = true
	v.mu.Lock()
	v.ws = m.Workspace
	v.mu.Unlock()
	return m.Sandbox, m.Release, nil
}

// unclaim ends a member whose image has the container's name, within the turn: the next use may come at once. The image
// stays, because the row may promise it all the same: a commit can have an unknown outcome.
func (l *Lease) unclaim(ctx context.Context, m *sandbox.Member) error {
	ctx = context.WithoutCancel(ctx)
	if err := m.Sandbox.Destroy(ctx); err != nil {
		m.Discard() // tries again, and leaves an image alone that is not the pool's any more
		return err
	}
	m.Release()
	l.live.mu.Lock()
	l.live.ws = m.Workspace
	l.live.mu.Unlock()
	return l.s.detach(ctx, l.live, m.Workspace.Detach)
}

// clear removes an image that no row promises: a crash or an error came between the two.
func (s *Service) clear(id ID) error {
	if err := s.Workspaces.Remove(string(id)); err != nil {
		return fmt.Errorf("remove stale workspace of container %s: %w", id, err)
	}
	return nil
}

// create makes a sandbox on the container's workspace, which is created the first time. continued says that it is the last
// one, with everything that ran in it.
func (l *Lease) create(ctx context.Context, img *rootfs.Image) (sb *sandbox.Sandbox, release func(), continued bool, err error) {
	s, c := l.s, l.c
	stamp := l.stamp() // of the workspace before it is attached
	ws, err := l.attach(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	if release, err = img.Hold(); err != nil {
		return nil, nil, false, capacity(fmt.Errorf("start sandbox of container %s: %w", c.ID, sandbox.Full(err)))
	}
	spec := sandbox.Spec{
		ID: string(c.ID), RootFS: img.Path, Workspace: ws, Limits: s.limits(), Hostname: "airlock", Preload: s.Preload,
	}
	sb, continued = l.resume(ctx, spec, stamp), true
	if sb == nil {
		continued = false
		sb, err = s.Driver.Create(ctx, spec)
	}
	if err != nil {
		release()
		return nil, nil, false, capacity(fmt.Errorf("start sandbox of container %s: %w", c.ID, err))
	}
	return sb, release, continued, nil
}

// take makes a new sandbox the container's, unless the container was deleted meanwhile.
func (l *Lease) take(ctx context.Context, sb *sandbox.Sandbox, release func()) error {
	v := l.live
	// What the sandbox used until now, above all one of the pool, is nobody's execution. If it cannot be read the container
	// pays for its start.
	used, _ := sb.CPU(ctx)
	v.mu.Lock()
	closed := v.closed
	if !closed {
		v.sb, v.hold, v.frozen = sb, release, false
		v.owner, v.startedAt, v.counted, v.booked = l.c.Owner, l.s.now(), used, false
	}
	v.mu.Unlock()
	if !closed {
		return nil
	}
	defer release()
	return errors.Join(wire.NotFound(), sb.Destroy(context.WithoutCancel(ctx)))
}
