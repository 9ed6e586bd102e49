package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// loop is a background goroutine of a service.
type loop struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// rowsEvery is how often rows are looked through for expired ones; requests check the times themselves.
const rowsEvery = time.Minute

// Start begins the background loops. Starting twice is harmless.
func (s *Service) Start(ctx context.Context) {
	s.loop.start(ctx, s.run)
	second := cmp.Or(s.SweepEvery, time.Second)
	rows := rowsEvery
	if second < time.Second {
		rows = second
	}
	s.ends.start(ctx, every(rows, s.sweepRows))
	s.booking.start(ctx, every(second, s.writeAccounts))
	s.filling.start(ctx, every(min(second, fillingEvery), s.SweepFilling))
	s.packing.start(ctx, s.runPacks)
}

// Stop ends the background loops and waits for them. Sandboxes go on. Stopping twice is harmless.
func (s *Service) Stop() {
	s.loop.stop()
	s.ends.stop()
	s.booking.stop()
	s.filling.stop()
	s.packing.stop()
}

// every makes a background loop of something that is done now and again and again.
func every(pace time.Duration, do func(context.Context)) func(context.Context, chan struct{}) {
	return func(ctx context.Context, done chan struct{}) {
		defer close(done)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}
}

func (l *loop) start(ctx context.Context, run func(ctx context.Context, done chan struct{})) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		return
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done = make(chan struct{})
	go run(ctx, l.done)
}

func (l *loop) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil {
		return
	}
	l.cancel()
	<-l.done
	l.cancel = nil
}

func (s *Service) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(cmp.Or(s.SweepEvery, time.Second))
	defer tick.Stop()
	var beat atomic.Int64 // when the last pass ended
	beat.Store(time.Now().UnixNano())
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { s.watch(ctx, &beat) })
	for {
		beat.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.SweepIdle(ctx)
		s.SweepParked(ctx)
	}
}

func (s *Service) sweepRows(ctx context.Context) {
	if err := errors.Join(s.SweepExpired(ctx), s.SweepSnapshots(ctx)); err != nil && ctx.Err() == nil {
		s.log().ErrorContext(ctx, "sweep expired containers", "error", err)
	}
}

func (s *Service) writeAccounts(ctx context.Context) {
	if err := s.WriteAccounts(ctx); err != nil && ctx.Err() == nil {
		s.log().ErrorContext(ctx, "write executions", "error", err)
	}
}

// SweepIdle is one pass over the sandboxes: what turns wrote is synced, those without a turn for IdleFreeze, or for
// parkedGrace if their code waits, are frozen, for IdleDestroy destroyed, and dead ones are put away. The background loop
// calls it; tests call it with a clock of their own.
func (s *Service) SweepIdle(ctx context.Context) {
	some(sweepers, s.snapshot(), func(v *live) {
		select {
		case v.turn <- struct{}{}:
		default:
			return // a turn runs
		}
		err := s.apart(v.id, func() error {
			defer func() { <-v.turn }()
			return s.sweepOne(ctx, v)
		})
		if err != nil {
			s.log().ErrorContext(ctx, "put away idle sandbox", "container_id", v.id, "error", err)
		}
	})
}

const (
	// sweepLimit is how long one container may hold up the others. Every round trip to a guest, and every wait for the kernel,
	// has a limit of its own below this one.
	sweepLimit = 30 * time.Second
	// sweepers are at work on containers at a time in a pass, closers at the end of the service.
	sweepers = 4
	closers  = 16
)

// apart works on one container. If that does not end, which nothing should be able to bring about, the container keeps its
// turn and its goroutine, and the others go on.
func (s *Service) apart(id ID, do func() error) error {
	done := make(chan error, 1)
	s.work.Go(func() { done <- do() })
	limit := time.NewTimer(cmp.Or(s.SweepLimit, sweepLimit))
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return fmt.Errorf("the work on container %s does not end; the others go on", id)
	}
}

// wait returns when a group has nothing to do any more, or with the cause of ctx.
func wait(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// some does the same with all, a few at a time, and returns after the last.
func some[T any](few int, all []T, do func(T)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, few)
	for _, v := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(v)
		})
	}
	group.Wait()
}

// watch tells the operator when the loop stands still, and when it goes on.
func (s *Service) watch(ctx context.Context, beat *atomic.Int64) {
	limit := 4 * cmp.Or(s.SweepLimit, sweepLimit)
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	still := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		since := time.Since(time.Unix(0, beat.Load()))
		if was := still; was != (since > limit) {
			still = !was
			if still {
				s.log().ErrorContext(ctx, "the life cycle loop makes no progress", "since", since)
			} else {
				s.log().WarnContext(ctx, "the life cycle loop goes on")
			}
		}
	}
}

func (s *Service) sweepOne(ctx context.Context, v *live) error {
	s.syncLive(ctx, v)
	idle := s.now().Sub(v.idleSince)
	sb := v.sandbox()
	if r := v.run(); r != nil {
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
	select {
	case <-sb.Done():
		return s.endSandbox(ctx, v, whyDied)
	default:
	}
	freeze := cmp.Or(s.IdleFreeze, 30*time.Second)
	if v.frozen || v.noFreeze || freeze < 0 || idle < freeze {
		return nil
	}
	if err := v.freeze(ctx, sb); err != nil && !ended(sb) { // by a deletion, for one; the next pass sees to it
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

// suspend is freeze for what is to go on soon: nothing that could be made again is given up.
func (v *live) suspend(ctx context.Context, sb *sandbox.Sandbox) error {
	return v.stop(ctx, sb, sb.Suspend)
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

// SweepExpired is one pass over the rows of this instance: containers past their time give up sandbox and workspace, and
// ends that failed in an earlier pass are tried again.
func (s *Service) SweepExpired(ctx context.Context) error {
	left, err := unfinished(ctx, s.DB, s.Instance)
	if err != nil {
		return err
	}
	ids, err := due(ctx, s.DB, s.Instance, s.now())
	if err != nil {
		return err
	}
	ends := make(map[ID]func() error, len(left)+len(ids))
	for _, id := range ids {
		// Conditional on the times: a turn may have begun and ended since the row was read.
		ends[id] = func() error {
			return s.expire(ctx, id, func() (bool, error) { return markExpired(ctx, s.DB, id, s.now()) })
		}
	}
	for _, c := range left {
		ends[c.ID] = func() error { return s.expire(ctx, c.ID, nil) }
		if c.State == StateDeleting {
			ends[c.ID] = func() error { return s.retryDelete(ctx, c.ID) }
		}
	}
	var mu sync.Mutex
	var errs []error
	some(sweepers, slices.Collect(maps.Keys(ends)), func(id ID) {
		err := s.apart(id, ends[id])
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// retryDelete finishes a deletion, unless the request that began it is still at work or the turn that it cut off has not
// ended. One that another server began has cut off nothing yet.
func (s *Service) retryDelete(ctx context.Context, id ID) error {
	done, ok := s.beginDelete(id)
	if !ok {
		return nil
	}
	defer done()
	if s.cutOffBefore(id) {
		return nil
	}
	// Since the row was read the request may have ended well.
	if c, err := find(ctx, s.DB, id); err != nil || c.State != StateDeleting {
		return err
	}
	if err := s.finishDelete(ctx, id); err != nil {
		return err
	}
	s.log().InfoContext(ctx, "deletion finished", "container_id", id)
	return nil
}

// cutOffBefore says whether a turn that was told to end is still at work.
func (s *Service) cutOffBefore(id ID) bool {
	s.mu.Lock()
	v := s.lives[id]
	s.mu.Unlock()
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed && len(v.turn) > 0
}

// expire gives up sandbox and workspace if mark, called under the turn, says so; nil = the row is marked already.
func (s *Service) expire(ctx context.Context, id ID, mark func() (bool, error)) error {
	done, ok := s.begin(&s.expiring, id)
	if !ok {
		return nil // left behind by an earlier pass
	}
	defer done()
	s.mu.Lock()
	v := s.lives[id]
	s.mu.Unlock()
	if v != nil {
		select {
		case v.turn <- struct{}{}:
		default:
			return nil // in use: its end moves the expiry
		}
		defer func() { <-v.turn }()
	}
	if mark != nil {
		if gone, err := mark(); err != nil || !gone {
			return err
		}
	}
	if v != nil {
		if err := s.endSandbox(ctx, v, whyExpired); err != nil {
			return err
		}
		v.mu.Lock()
		v.closed = true // what its next use was to be told, nobody will ask for
		v.mu.Unlock()
		s.forget(v)
	}
	if err := s.dropSnapshot(id); err != nil {
		return err
	}
	if err := s.Workspaces.Remove(string(id)); err != nil {
		return err
	}
	c, err := find(ctx, s.DB, id)
	if err != nil {
		return err
	}
	if err := s.dropPack(ctx, c); err != nil {
		return err
	}
	if err := setWorkspace(ctx, s.DB, id, false); err != nil {
		return err
	}
	s.log().InfoContext(ctx, "container expired", "container_id", id)
	return nil
}

// Close destroys every sandbox of this process, after a while given to keep what runs in them. Workspaces and rows stay:
// the containers go on with the next start.
func (s *Service) Close(ctx context.Context) error {
	s.Stop()
	s.endAllParked(ctx)
	s.keepAll(ctx)
	var mu sync.Mutex
	var errs []error
	some(closers, s.snapshot(), func(v *live) {
		err := s.dropLive(ctx, v.id, whyShutdown)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	if s.Admission != nil {
		errs = append(errs, s.Admission.Close(ctx))
	}
	errs = append(errs, wait(ctx, &s.work))
	// Whatever took the time: what was used is written down.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), accountsLimit)
	defer cancel()
	return errors.Join(append(errs, s.WriteAccounts(ctx))...)
}

// accountsLimit is how long the end of the service waits for the database.
const accountsLimit = 10 * time.Second
