package container

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// SweepIdle is one pass over the sandboxes: what turns wrote is synced, those without a turn for IdleFreeze, or for
// parkedGrace if their code waits, are frozen, for IdleDestroy destroyed, and dead ones are put away. The background loop
// calls it; tests call it with a clock of their own.
func (s *Service) SweepIdle(ctx context.Context) {
	forEach(sweepers, s.snapshot(), func(v *live) {
		if !v.try() {
			return // a turn runs
		}
		err := s.bounded(v.id, func() error {
			defer v.put()
			return s.sweepOne(ctx, v)
		})
		if err != nil {
			s.log().ErrorContext(ctx, "put away idle sandbox", "container_id", v.id, "error", err)
		}
	})
}

func (s *Service) sweepOne(ctx context.Context, v *live) error {
	s.syncLive(ctx, v)
	idle := s.now().Sub(v.idleSince)
	sb := v.sandbox()
	if r := v.parked(); r != nil {
		return s.freezeParked(ctx, v, r, idle) // it keeps its sandbox until SweepParked goes on with it
	}
	if sb == nil && v.ws == nil {
		s.forget(v)
		return nil
	}
	if idle >= cmp.Or(s.IdleDestroy, 10*time.Minute) {
		if err := s.endSandbox(ctx, v, whyIdle); err != nil {
			return err
		}
		s.forget(v)
		return nil
	}
	if sb == nil {
		return nil
	}
	if sb.Ended() {
		return s.endSandbox(ctx, v, whyDied)
	}
	freeze := cmp.Or(s.IdleFreeze, 30*time.Second)
	if v.frozen || v.noFreeze || freeze < 0 || idle < freeze {
		return nil
	}
	if err := v.freeze(ctx, sb); err != nil && !sb.Ended() { // by a deletion, for one; the next pass sees to it
		return err
	}
	return nil
}

// freezeLimit bounds one freeze and one thaw: processes in a long wait inside the kernel stop late.
const freezeLimit = 10 * time.Second

// freeze stops the processes. A sandbox that cannot be stopped goes on and is not tried again before its next use.
func (v *live) freeze(ctx context.Context, sb *sandbox.Sandbox) error {
	return v.stop(ctx, sb, sb.Freeze)
}

// freezeBriefly is freeze for what is to go on soon: nothing that could be made again is given up.
func (v *live) freezeBriefly(ctx context.Context, sb *sandbox.Sandbox) error {
	return v.stop(ctx, sb, sb.FreezeBriefly)
}

func (v *live) stop(ctx context.Context, sb *sandbox.Sandbox, how func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	err := how(limited)
	v.frozen = err == nil
	if err == nil {
		return nil
	}
	v.noFreeze = true
	undo, cancelUndo := context.WithTimeout(context.WithoutCancel(ctx), freezeLimit)
	defer cancelUndo()
	thaw := sb.Thaw(undo)
	v.frozen = thaw != nil // then the next use tries
	return errors.Join(err, thaw)
}
