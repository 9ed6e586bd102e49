package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/usage"
)

// Parkable is a cell that may outlive the turn in which it began: its code waits for somebody outside, who answers in another turn
// or never.
//
//	running, in a turn ──Park, end of the turn──► parked: the sandbox is kept and soon frozen, the turn is free
//	       ▲                                        │
//	       ├── Resume, by who has the answer ◄──────┤
//	       └── Due, in a turn of its own ◄──────────┘ the time is over, or the cell has ended
//
// Whoever holds the turn may use the sandbox meanwhile; it is frozen again after that turn. A cell ends with its sandbox
// at the latest, so with its container and with the service, or when its memory is needed (evict.go). Until then it has
// the share of whoever began or answered it last.
type Parkable struct {
	live   *live
	sb     *sandbox.Sandbox
	cancel context.CancelCauseFunc
	done   chan struct{}
	res    sandbox.CellResult // both written before done is closed
	err    error

	mu        sync.Mutex
	lease     *Lease // of the newest turn that it ran in
	waited    time.Duration
	waitedCPU time.Duration
	park      Parking // of the newest Park
	since     time.Time
	until     time.Time
}

// Parking says how long a parked cell is kept and what becomes of it then.
type Parking struct {
	// Wait is counted from the end of the turn.
	Wait time.Duration
	// Busy says that the code is at work and not waiting, so the sandbox is not frozen.
	Busy bool
	// Due is called in a turn of its own when Wait is over or the cell has ended, unless Resume came before. ctx ends with
	// the container and with the service.
	Due func(ctx context.Context, l *Lease)
}

// expiryMargin is how much longer than its parked cell a container lives: an answer that comes in time has to find it.
const expiryMargin = 30 * time.Second

// Begin starts a cell that may be parked, and keeps its account. Of ctx it takes the values only: the cell ends by itself, by
// End, or with its sandbox. ended is called then, before Done is closed, whoever has the turn.
func (m Metered) Begin(ctx context.Context, c sandbox.Cell, ended func()) *Parkable {
	r := &Parkable{live: m.l.live, sb: m.Sandbox, done: make(chan struct{}), lease: m.l}
	e := m.l.begin(usage.KindCell, int64(len(c.Code)))
	ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if c.Call != nil {
		c.Call = r.metered(c.Call)
	}
	m.l.s.work.Go(func() {
		defer close(r.done)
		defer r.cancel(nil)
		began := time.Now()
		r.res, r.err = m.Sandbox.Cell(ctx, c)
		r.account(e, time.Since(began))
		ended()
	})
	return r
}

// metered keeps what passes while the code waits out of the cell's account: the sandbox stands still then, or works for others.
func (r *Parkable) metered(call guest.CallFunc) guest.CallFunc {
	return func(ctx context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
		began := time.Now()
		before, err := r.sb.CPU(ctx)
		answers := call(ctx, calls)
		after, err2 := r.sb.CPU(context.WithoutCancel(ctx))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waited += time.Since(began)
		if err == nil && err2 == nil {
			r.waitedCPU += after - before
		}
		return answers
	}
}

// account writes the execution down in the newest turn, or at once if that is over.
func (r *Parkable) account(e *account, wall time.Duration) {
	r.mu.Lock()
	l, res := r.lease, r.res.Result
	if r.waited > 0 {
		res.Wall, res.CPU = max(wall-r.waited, 0), max(res.CPU-r.waitedCPU, 0)
	}
	r.mu.Unlock()
	l.finish(e, res, r.err, r.sb.ExitReason())
}

// Done is closed when the cell has ended; then Result tells how, as Sandbox.Cell does.
func (r *Parkable) Done() <-chan struct{} { return r.done }

// Result is that of the cell, after Done.
func (r *Parkable) Result() (sandbox.CellResult, error) { return r.res, r.err }

// End interrupts the cell with a cause; it has ended when Done is closed. The sandbox must not be frozen.
func (r *Parkable) End(cause error) { r.cancel(cause) }

// over reports whether the cell has ended.
func (r *Parkable) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Park keeps a cell of this container beyond the turn. There is one at a time: a cell that is begun while another is parked must
// end that first (EndParked).
func (l *Lease) Park(r *Parkable, p Parking) {
	r.mu.Lock()
	r.park, r.since, r.until = p, time.Time{}, time.Time{}
	r.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parks = true
	l.live.setParked(r)
}

// Resume takes a parked cell over into this turn and lets its sandbox run. An error that matches sandbox.ErrGone says that the
// sandbox is not there any more: the cell has ended, or is about to.
func (l *Lease) Resume(ctx context.Context, r *Parkable) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.released:
		return errReleased
	case l.live != r.live: // forgotten with its sandbox, and begun anew
		return fmt.Errorf("sandbox of container %s: %w", r.live.id, sandbox.ErrGone)
	}
	err := l.live.thaw(ctx, r.sb)
	if err != nil && !errors.Is(err, sandbox.ErrGone) {
		if ctx.Err() != nil {
			return err // it stays parked
		}
		// It will not run again, as in sandbox. Kept, it would be tried for ever.
		l.s.log().WarnContext(ctx, "parked sandbox cannot be thawed", "container_id", r.live.id, "error", err)
		if err := l.s.endSandbox(ctx, l.live, whyDied); err != nil {
			return err
		}
		err = fmt.Errorf("sandbox of container %s: %w", r.live.id, sandbox.ErrGone)
	}
	l.live.unpark(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease = l
	return err
}

// EndParked ends the cell that is parked in this container, if there is one, and waits for its end.
func (l *Lease) EndParked(ctx context.Context, cause error) error {
	l.mu.Lock()
	v := l.live
	l.mu.Unlock()
	if v == nil {
		return nil
	}
	return v.endParked(ctx, cause)
}

// ExpiresAt is the time until which the client is promised its container: that of the row, or while a cell is parked that of
// the cell, which ends sooner. The container lives on regardless, so that nobody loses files over a call that was not answered.
func (l *Lease) ExpiresAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return time.Time{}
	}
	at := l.c.ExpiresAt
	if r := l.live.parked(); r != nil {
		if until := r.deadline(); !until.IsZero() && until.Add(expiryMargin).Before(at) {
			return until.Add(expiryMargin)
		}
	}
	return at
}

func (r *Parkable) deadline() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until
}

// parkedSince is the end of the turn that parked the cell.
func (r *Parkable) parkedSince() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

// arm begins the wait of a cell that was parked in the turn that ends now; one of an earlier turn keeps its time.
func (r *Parkable) arm(now time.Time) (until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until.IsZero() {
		r.since, r.until = now, now.Add(r.park.Wait)
	}
	return r.until
}

// busy reports whether the code of a parked cell works, or has ended, so that it is not to be stopped.
func (r *Parkable) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.park.Busy || r.over()
}

// rest ends the turn of a container with a parked cell: its time begins, and its container lives longer than it. It reports
// whether the expiry moved.
func (l *Lease) rest(r *Parkable) (moved bool) {
	until := r.arm(l.s.now())
	before := l.c.ExpiresAt
	if least := until.Add(expiryMargin); before.Before(least) {
		l.c.ExpiresAt = least
		if least.After(l.c.MaxExpiresAt) {
			l.c.ExpiresAt = l.c.MaxExpiresAt
		}
	}
	return !l.c.ExpiresAt.Equal(before)
}

// parkedGrace is how long code that waits has its sandbox running after a turn. Most clients answer within it, and neither
// they nor the response before pay for stopping and continuing the processes.
const parkedGrace = time.Second

// freezeParked stops the sandbox of a parked cell that was not answered at once; the turn is the caller's.
func (s *Service) freezeParked(ctx context.Context, v *live, r *Parkable, idle time.Duration) error {
	sb := v.sandbox()
	if s.IdleFreeze < 0 || s.KeepParkedRunning || v.frozen || v.noFreeze || idle < parkedGrace || sb == nil || sb != r.sb || r.busy() {
		return nil
	}
	if err := v.freezeBriefly(ctx, sb); err != nil && !sb.Ended() {
		return fmt.Errorf("freeze parked sandbox: %w", err)
	}
	return nil
}

// parked is the cell that waits, nil if none is.
func (v *live) parked() *Parkable {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.waits
}

func (v *live) setParked(r *Parkable) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waits = r
}

// unpark forgets the parked cell if it is this one.
func (v *live) unpark(r *Parkable) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waits == r {
		v.waits = nil
	}
}

// thaw lets a sandbox run, if it is still there.
func (v *live) thaw(ctx context.Context, sb *sandbox.Sandbox) error {
	if v.sandbox() != sb || sb.Ended() {
		return fmt.Errorf("sandbox of container %s: %w", v.id, sandbox.ErrGone)
	}
	if !v.frozen {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	if err := sb.Thaw(ctx); err != nil {
		return fmt.Errorf("thaw container %s: %w", v.id, err)
	}
	v.frozen = false
	return nil
}

// endParked needs the turn. A sandbox that cannot be continued is left to whoever uses or ends it next.
func (v *live) endParked(ctx context.Context, cause error) error {
	r := v.parked()
	if r == nil {
		return nil
	}
	v.unpark(r)
	if err := v.thaw(ctx, r.sb); err != nil && !errors.Is(err, sandbox.ErrGone) {
		v.setParked(r)
		return err
	}
	r.End(cause)
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dueParked is a parked cell whose time is over at now, or that has ended by itself.
func (v *live) dueParked(now time.Time) *Parkable {
	r := v.parked()
	if r == nil {
		return nil
	}
	until := r.deadline()
	if until.IsZero() || now.Before(until) && !r.over() {
		return nil
	}
	return r
}

// SweepParked is one pass over parked cells: those whose time is over get a turn of their own to go on in. It does not wait for
// them. The background loop calls it.
func (s *Service) SweepParked(ctx context.Context) {
	for _, v := range s.snapshot() {
		if v.dueParked(s.now()) == nil {
			continue
		}
		if !v.try() {
			continue // a turn runs
		}
		r := v.dueParked(s.now())
		if r == nil {
			v.put()
			continue
		}
		s.work.Go(func() { s.due(context.WithoutCancel(ctx), v, r) })
	}
}

// due lets a cell go on whose time is over; the turn is the caller's and ends here.
func (s *Service) due(ctx context.Context, v *live, r *Parkable) {
	c, err := find(ctx, s.DB, v.id)
	if err != nil {
		s.log().ErrorContext(ctx, "go on with a parked cell", "container_id", v.id, "error", err)
		v.put() // the next pass tries again
		return
	}
	r.mu.Lock()
	act, caller := r.park.Due, r.lease.caller
	r.mu.Unlock()
	// What it makes belongs to who began it or answered last, and so does the share that it goes on with.
	l := &Lease{s: s, c: c, caller: caller, share: v.share}
	v.share = nil
	l.ended, l.end = context.WithCancelCause(ctx)
	l.hold(v)
	defer l.Release(ctx)
	work, cancel := l.Context(ctx)
	defer cancel()
	act(work, l)
}

// endAllParked interrupts the parked cells at the end of the service, so that the variables of their interpreters can be kept
// and their accounts are written.
func (s *Service) endAllParked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endParkedLimit)
	defer cancel()
	forEach(closers, s.snapshot(), func(v *live) {
		if v.parked() == nil {
			return
		}
		if !v.try() {
			return // dropLive ends it
		}
		defer v.put()
		if err := v.endParked(ctx, endError(whyShutdown)); err != nil {
			s.log().WarnContext(ctx, "end parked cell", "container_id", v.id, "error", err)
		}
	})
}

// endParkedLimit is how long the end of the service waits for parked cells; guests end them within seconds.
const endParkedLimit = 10 * time.Second

// ParkedCount is the number of parked cells.
func (s *Service) ParkedCount() int {
	n := 0
	for _, v := range s.snapshot() {
		if v.parked() != nil {
			n++
		}
	}
	return n
}
