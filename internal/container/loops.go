package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
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
	s.loop.start(ctx, s.lifeCycle)
	second := cmp.Or(s.SweepEvery, time.Second)
	rows := rowsEvery
	if second < time.Second {
		rows = second
	}
	s.ends.start(ctx, every(rows, s.sweepRows))
	s.booking.start(ctx, every(second, s.writeAccounts))
	s.fullDisk.start(ctx, every(min(second, fullDiskEvery), s.sweepFullDisk))
	s.packing.start(ctx, s.runPacks)
}

// Stop ends the background loops and waits for them. Sandboxes go on. Stopping twice is harmless.
func (s *Service) Stop() {
	s.loop.stop()
	s.ends.stop()
	s.booking.stop()
	s.fullDisk.stop()
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

// lifeCycle is the loop of sandboxes.
func (s *Service) lifeCycle(ctx context.Context, done chan struct{}) {
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
	if err := errors.Join(s.sweepExpired(ctx), s.sweepAllSnapshots(ctx)); err != nil && ctx.Err() == nil {
		s.log().ErrorContext(ctx, "sweep expired containers", "error", err)
	}
}

func (s *Service) writeAccounts(ctx context.Context) {
	if s.Usage == nil {
		return
	}
	if err := s.Usage.Flush(ctx); err != nil && ctx.Err() == nil {
		s.log().ErrorContext(ctx, "write executions", "error", err)
	}
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

const (
	// sweepLimit is how long one container may hold up the others. Every round trip to a guest, and every wait for the kernel,
	// has a limit of its own below this one.
	sweepLimit = 30 * time.Second
	// sweepers are at work on containers at a time in a pass, closers at the end of the service.
	sweepers = 4
	closers  = 16
)

// bounded works on one container. If that does not end, which nothing should be able to bring about, the container keeps its
// turn and its goroutine, and the others go on.
func (s *Service) bounded(id ID, do func() error) error {
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

// forEach does the same with all, a few at a time, and returns after the last.
func forEach[T any](few int, all []T, do func(T)) {
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

// Close destroys every sandbox of this process, after a while given to keep what runs in them. Workspaces and rows stay:
// the containers go on with the next start.
func (s *Service) Close(ctx context.Context) error {
	s.Stop()
	s.endAllParked(ctx)
	s.keepAll(ctx)
	var mu sync.Mutex
	var errs []error
	forEach(closers, s.snapshot(), func(v *live) {
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
	if s.Usage != nil {
		errs = append(errs, s.Usage.Flush(ctx))
	}
	return errors.Join(errs...)
}

// accountsLimit is how long the end of the service waits for the database.
const accountsLimit = 10 * time.Second
