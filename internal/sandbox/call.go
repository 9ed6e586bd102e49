package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// endLimit is how long a call waits for the sandbox that it has condemned.
const endLimit = 10 * time.Second

// fate remembers why a sandbox ended; the first reason stays.
type fate struct {
	mu     sync.Mutex
	reason ExitReason
}

func (f *fate) set(r ExitReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reason == ExitNone {
		f.reason = r
	}
}

func (f *fate) get() ExitReason {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason
}

// New joins a ready connection and the instance behind it. Drivers call it; the spec must have been validated.
func New(spec Spec, conn *guest.Conn, inst Instance) *Sandbox {
	return &Sandbox{Conn: conn, spec: spec, inst: inst}
}

// ID is the id of the spec.
func (s *Sandbox) ID() string { return s.spec.ID }

// Limits are the limits in force.
func (s *Sandbox) Limits() Limits { return s.spec.Limits }

// restLimit is how long the guest gets to let go of what it can make again.
const restLimit = 2 * time.Second

// Freeze stops all processes inside without their notice. Calls made while frozen wait for Thaw. The Python fork server
// ends before, because nobody forks while frozen; interpreters stay with their state. Of the calls under way only a cell may
// be frozen that waits in its Call: the guest is missed in any other, and the sandbox given up.
func (s *Sandbox) Freeze(ctx context.Context) error {
	s.rest(ctx)
	return s.inst.SetFrozen(ctx, true)
}

// FreezeBriefly is Freeze for a short while: the fork server stays.
func (s *Sandbox) FreezeBriefly(ctx context.Context) error { return s.inst.SetFrozen(ctx, true) }

// rest asks the guest to let go of its fork server. One that does not answer can be frozen or written all the same.
func (s *Sandbox) rest(ctx context.Context) {
	if len(s.spec.PreloadInForce()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	_ = s.Rest(ctx)
}

// background does nothing with drivers that know no priorities.
func (s *Sandbox) background(ctx context.Context, on bool) error {
	if b, ok := s.inst.(Backgrounder); ok {
		return b.SetBackground(ctx, on)
	}
	return nil
}

// Thaw continues a frozen sandbox.
func (s *Sandbox) Thaw(ctx context.Context) error { return s.inst.SetFrozen(ctx, false) }

// Usage reads the counters of the sandbox; it works until Destroy.
func (s *Sandbox) Usage(ctx context.Context) (Usage, error) { return s.inst.Usage(ctx) }

// Done is closed when the guest has ended, for whatever reason.
func (s *Sandbox) Done() <-chan struct{} {
	done, _ := s.inst.Exited()
	return done
}

// Ended reports whether the sandbox has ended.
func (s *Sandbox) Ended() bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// ExitReason says why the sandbox ended; ExitNone while it lives.
func (s *Sandbox) ExitReason() ExitReason {
	done, oom := s.inst.Exited()
	select {
	case <-done:
		switch {
		case s.fate.get() != ExitNone:
		case oom():
			s.fate.set(ExitOOM)
		default:
			s.fate.set(ExitCrash)
		}
	default:
	}
	return s.fate.get()
}

// Destroy kills everything inside and gives the host's resources back, the workspace excepted. It may be repeated.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.fate.set(ExitDestroyed)
	return errors.Join(s.inst.Destroy(ctx), s.Close())
}

// End is Destroy for another reason than the owner's wish; calls under way are told. The owner destroys it all the same.
func (s *Sandbox) End(ctx context.Context, why ExitReason) error {
	s.fate.set(why)
	return s.inst.Destroy(ctx)
}

// Checkpoint writes what runs inside into dir, an empty folder, and destroys the sandbox, also when it fails. No call may be
// under way: a command or cell that runs, or waits for a tool, has nobody to speak to afterwards. Nothing is written then, and
// the call ends with ErrGone. errors.ErrUnsupported if the driver has no such thing; the sandbox then lives on.
func (s *Sandbox) Checkpoint(ctx context.Context, dir string) error {
	return s.checkpoint(ctx, dir, s.rest) // what can be made again is not worth its place on the disk
}

// checkpoint is Checkpoint with something to do before, when nothing is frozen any more.
func (s *Sandbox) checkpoint(ctx context.Context, dir string, before func(context.Context)) error {
	c, ok := s.inst.(Checkpointer)
	if !ok {
		return fmt.Errorf("checkpoint sandbox %s: %w", s.spec.ID, errors.ErrUnsupported)
	}
	s.fate.set(ExitDestroyed)
	var err error
	if n := s.Running(); n > 0 {
		err = fmt.Errorf("%d calls are under way", n)
	} else {
		err = s.inst.SetFrozen(ctx, false)
	}
	if err == nil {
		before(ctx)
		err = c.Checkpoint(ctx, dir)
	}
	if err != nil {
		err = fmt.Errorf("checkpoint sandbox %s: %w", s.spec.ID, err)
	}
	return errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
}

// Exec runs one command. Timeout and OutputBytes that are zero or above the sandbox's limits become the limits. The error
// is nil whenever the guest reported how the command ended. CPU and MemoryPeak of the result are those of the whole
// sandbox during the call, also beside an error. The connection keeps both limits a second time, against a
// guest that code has taken over; such a guest costs the sandbox its life.
func (s *Sandbox) Exec(ctx context.Context, c Command) (Result, error) {
	c.Timeout = atMost(c.Timeout, s.spec.Limits.Wall)
	c.OutputBytes = atMost(c.OutputBytes, s.spec.Limits.OutputBytes)
	a := s.open(ctx)
	res, err := s.Conn.Exec(ctx, c)
	a.close(ctx, &res, err)
	return res, s.explain(ctx, err)
}

// Cell runs one Python cell under the same rules as Exec; a Timeout of zero is the guest's own for cells.
func (s *Sandbox) Cell(ctx context.Context, c Cell) (CellResult, error) {
	if c.Timeout != 0 {
		c.Timeout = atMost(c.Timeout, s.spec.Limits.Wall)
	}
	c.OutputBytes = atMost(c.OutputBytes, s.spec.Limits.OutputBytes)
	a := s.open(ctx)
	res, err := s.Conn.Cell(ctx, c)
	a.close(ctx, &res.Result, err)
	return res, s.explain(ctx, err)
}

// end destroys the sandbox from inside a call.
func (s *Sandbox) end(ctx context.Context, why ExitReason) {
	s.fate.set(why)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	// The caller sees why the call failed; what Destroy could not remove it reports when the owner destroys again.
	_ = s.inst.Destroy(ctx)
}

// explain turns "the connection broke" into the reason for it.
func (s *Sandbox) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, guest.ErrProtocol):
		s.end(ctx, ExitProtocol)
	case errors.Is(err, ErrGone) && errors.Is(err, os.ErrDeadlineExceeded):
		s.end(ctx, ExitTimeout)
	case errors.Is(err, ErrGone):
	default:
		return err
	}
	reason := s.settledReason(ctx)
	switch reason {
	case ExitTimeout:
		return fmt.Errorf("sandbox %s: %w: %w", s.spec.ID, ErrTimeout, ErrGone)
	case ExitOOM:
		return fmt.Errorf("sandbox %s: %w: %w", s.spec.ID, ErrOutOfMemory, ErrGone)
	case ExitNone, ExitDestroyed, ExitCrash, ExitProtocol, ExitDisk:
	}
	return fmt.Errorf("sandbox %s (%s): %w: %w", s.spec.ID, reason, ErrGone, err)
}

// settledReason waits a moment for the process behind a broken connection, whose end tells the reason.
func (s *Sandbox) settledReason(ctx context.Context) ExitReason {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-s.Done():
	case <-timer.C:
	case <-ctx.Done():
	}
	return s.ExitReason()
}

func atMost[T int64 | time.Duration](v, limit T) T {
	if v <= 0 || v > limit {
		return limit
	}
	return v
}
