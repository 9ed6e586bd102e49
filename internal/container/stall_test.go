package container_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/usage/usagetest"
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

// holdingLog lets whoever reports trouble with a sandbox wait.
type holdingLog struct {
	slog.Handler
	hold func()
}

func (h holdingLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "put away idle sandbox" {
		h.hold()
	}
	return h.Handler.Handle(ctx, r)
}

func TestCase79WatchdogReportsALoopWithoutProgress(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		log := &lines{}
		free := make(chan struct{})
		e.SweepEvery, e.SweepLimit = time.Millisecond, 5*time.Millisecond
		e.Log = slog.New(holdingLog{slog.NewTextHandler(log, nil), func() { <-free }})
		e.Sh(t, create(t, e, container.CreateParams{}).ID, "true")
		now := e.Now
		e.Now = func() time.Time { // the work on the one sandbox does not end
			<-free
			return now()
		}
		e.Start(t.Context())
		defer e.Stop()
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

// One container whose end hangs, as on a dead disk, holds up no other end.
func TestEndThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		d, free := &stickyDriver{Driver: e.Driver}, make(chan struct{})
		e.Driver = d
		var all []container.ID
		for range 6 {
			c := create(t, e, container.CreateParams{})
			e.Sh(t, c.ID, "true")
			all = append(all, c.ID)
		}
		d.hold = func(id string) {
			if id == string(all[0]) {
				<-free
			}
		}
		e.SweepLimit = time.Minute // for the others
		e.Clock.Add(2 * time.Hour)
		swept := make(chan error, 1)
		go func() { swept <- e.SweepExpired(t.Context()) }()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for _, id := range all[1:] {
			for e.Workspaces.Exists(string(id)) {
				select {
				case <-tick.C:
				case <-time.After(time.Minute):
					t.Fatal("the others wait for the one that hangs")
				}
			}
		}
		if !e.Workspaces.Exists(string(all[0])) {
			t.Error("the one that hangs has ended")
		}
		close(free)
		if err := <-swept; err != nil || e.Workspaces.Exists(string(all[0])) {
			t.Errorf("at last: %v", err)
		}
	})
}

func TestCloseEndsSandboxesAtOnceAndWritesAccountsWhateverTheTime(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		d := &stickyDriver{Driver: e.Driver}
		e.Driver = d
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		e.Sh(t, create(t, e, container.CreateParams{}).ID, "true")
		var both sync.WaitGroup
		both.Add(2)
		seen := sync.Map{}
		d.hold = func(id string) {
			if _, again := seen.LoadOrStore(id, true); !again {
				both.Done()
			}
			both.Wait() // for ever, if they are ended one after the other
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		e.Usage.Add(usage.Execution{ID: "exec_last", ContainerID: string(c.ID), Owner: e.Caller.Owner(), Kind: usage.KindExec, Outcome: usage.OutcomeExited})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_ = e.Close(gone) // its time is over
		all, err := usagetest.Executions(t.Context(), e.DB, e.Caller, string(c.ID))
		if err != nil || !slices.ContainsFunc(all, func(a usage.Execution) bool { return a.ID == "exec_last" }) {
			t.Errorf("written are %+v, %v", all, err)
		}
	})
}
