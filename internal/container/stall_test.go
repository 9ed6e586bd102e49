package container_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// deafDriver makes sandboxes of which the first never answers a freeze, whatever the time limit says.
type deafDriver struct {
	sandbox.Driver
	over chan struct{} // ends the wait

	mu     sync.Mutex
	first  string
	frozen []string
}

func (d *deafDriver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	sb, err := d.Driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return sandbox.New(spec, sb.Conn, &deafInstance{sb: sb, d: d}), nil
}

type deafInstance struct {
	sb *sandbox.Sandbox
	d  *deafDriver
}

func (i *deafInstance) SetFrozen(_ context.Context, frozen bool) error {
	i.d.mu.Lock()
	if i.d.first == "" {
		i.d.first = i.sb.ID()
	}
	deaf := i.d.first == i.sb.ID()
	if !deaf && frozen {
		i.d.frozen = append(i.d.frozen, i.sb.ID())
	}
	i.d.mu.Unlock()
	if deaf {
		<-i.d.over
	}
	return nil
}

func (i *deafInstance) Usage(ctx context.Context) (sandbox.Usage, error) { return i.sb.Usage(ctx) }
func (i *deafInstance) Exited() (<-chan struct{}, func() bool) {
	return i.sb.Done(), func() bool { return false }
}
func (i *deafInstance) Destroy(ctx context.Context) error { return i.sb.Destroy(ctx) }

// lines is a log that several goroutines write.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

// Fails if the loop waits without limit for one sandbox.
func TestCase79LostReplyDoesNotStopTheLifeCycle(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		log := &lines{}
		d := &deafDriver{Driver: e.Driver, over: make(chan struct{})}
		e.Driver, e.Log, e.SweepLimit = d, slog.New(slog.NewTextHandler(log, nil)), 100*time.Millisecond
		var all []container.ID
		for range 3 {
			c := create(t, e, container.CreateParams{})
			e.Sh(t, c.ID, "true")
			all = append(all, c.ID)
		}
		e.Clock.Add(31 * time.Second)
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			e.SweepIdle(t.Context())
		}()
		select {
		case <-swept:
		case <-time.After(30 * time.Second):
			t.Error("the pass waits for the sandbox that does not answer")
		}
		d.mu.Lock()
		if len(d.frozen) != len(all)-1 {
			t.Errorf("frozen %v, deaf %s", d.frozen, d.first)
		}
		d.mu.Unlock()
		if !log.has("does not end") {
			t.Error("nobody is told")
		}
		close(d.over)
		<-swept
		for _, id := range all {
			if out, _ := e.Sh(t, id, "echo on"); out != "on\n" {
				t.Errorf("%s afterwards: %q", id, out)
			}
		}
	})
}

func TestCase79WatchdogReportsALoopWithoutProgress(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		log := &lines{}
		stuck, free := make(chan struct{}), make(chan struct{})
		var once sync.Once
		e.Log, e.SweepEvery, e.SweepLimit = slog.New(slog.NewTextHandler(log, nil)), time.Millisecond, 5*time.Millisecond
		// The clock is the one thing that every pass asks and that a test can hold.
		now := e.Now
		create(t, e, container.CreateParams{})
		e.Now = func() time.Time {
			once.Do(func() { close(stuck); <-free })
			return now()
		}
		e.Start(t.Context())
		defer e.Stop()
		<-stuck
		wait := func(text string) {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for !log.has(text) {
				select {
				case <-tick.C:
				case <-t.Context().Done():
					t.Fatalf("the log never said %q", text)
				}
			}
		}
		wait("makes no progress")
		close(free)
		wait("goes on")
	})
}
