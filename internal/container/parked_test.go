package container_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/usage"
)

// waiter is a cell that waits for answers to ask(), parked in its container.
type waiter struct {
	id     container.ID
	run    *container.Parkable
	asked  chan []sandbox.ToolCall
	answer chan string
	due    chan *container.Lease
	goOn   chan struct{} // closed to end a turn that Due has begun

	mu  sync.Mutex
	out strings.Builder
}

func (w *waiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

func (w *waiter) printed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.String()
}

// wait begins a cell and parks it when its code waits, for a minute from the end of the turn on.
func wait(t *testing.T, e *containertest.Env, id container.ID, code string) *waiter {
	t.Helper()
	w := &waiter{
		id: id, asked: make(chan []sandbox.ToolCall), answer: make(chan string), due: make(chan *container.Lease), goOn: make(chan struct{}),
	}
	l := acquire(t, e, id)
	m, err := l.Metered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.run = m.Begin(t.Context(), sandbox.Cell{Code: code, Tools: []string{"ask"}, Stdout: w, Stderr: w, Call: w.call}, func() {})
	w.park(t, l)
	return w
}

func (w *waiter) call(ctx context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
	select {
	case w.asked <- calls:
	case <-ctx.Done():
		return nil
	}
	select {
	case s := <-w.answer:
		return []sandbox.ToolAnswer{{ID: calls[0].ID, Text: s}}
	case <-ctx.Done():
		return nil
	}
}

// park waits for a call and ends the turn.
func (w *waiter) park(t *testing.T, l *container.Lease) {
	t.Helper()
	select {
	case <-w.asked:
	case <-w.run.Done():
		_, err := w.run.Result()
		t.Fatalf("the cell ended: %v %s", err, w.printed())
	}
	l.Park(w.run, container.Parking{Wait: time.Minute, Due: func(ctx context.Context, l *container.Lease) {
		w.due <- l
		select {
		case <-w.goOn:
		case <-ctx.Done():
		}
	}})
	l.Release(t.Context())
}

// resume gives an answer in a turn, which is left open.
func (w *waiter) resume(t *testing.T, e *containertest.Env, s string) *container.Lease {
	t.Helper()
	l := acquire(t, e, w.id)
	if err := l.Resume(t.Context(), w.run); err != nil {
		t.Fatal(err)
	}
	w.answer <- s
	return l
}

const askTwice = "x = await ask({})\nprint(x)\ny = await ask({})\nprint(x + y)"

func TestParkedRunGoesOnInAnotherTurn(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		w := wait(t, e, c.ID, askTwice)
		if e.ParkedCount() != 1 {
			t.Errorf("%d parked", e.ParkedCount())
		}
		// The turn is free, and the sandbox can be used.
		if out, _ := e.Sh(t, c.ID, "echo beside > f; cat f"); out != "beside\n" {
			t.Errorf("a command beside it printed %q", out)
		}
		w.park(t, w.resume(t, e, "one "))
		l := w.resume(t, e, "two")
		<-w.run.Done()
		l.Release(t.Context())
		if res, err := w.run.Result(); err != nil || w.printed() != "one \none two\n" || !res.Holds {
			t.Errorf("ended %+v, %v, printed %q", res, err, w.printed())
		}
		if e.ParkedCount() != 0 {
			t.Errorf("%d parked at the end", e.ParkedCount())
		}
		var cells []usage.Execution
		for _, x := range accounts(t, e, c.ID) {
			if x.Kind == usage.KindCell {
				cells = append(cells, x)
			}
		}
		if len(cells) != 1 || cells[0].Outcome != usage.OutcomeExited || cells[0].BytesOut != int64(len(w.printed())) {
			t.Errorf("accounts %+v", cells)
		}
	})
}

// An answer that comes at once finds the sandbox running; one that takes longer continues it.
func TestParkedSandboxIsFrozenWhenNoAnswerComesAtOnce(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		w := wait(t, e, c.ID, askTwice)
		for range 2 {
			e.SweepIdle(t.Context())
			if e.Frozen(c.ID) {
				t.Error("frozen at once")
			}
			e.Clock.Add(time.Second)
			e.SweepIdle(t.Context())
			if !e.Frozen(c.ID) {
				t.Error("not frozen after a second")
			}
			l := w.resume(t, e, "x")
			select {
			case <-w.asked:
				l.Park(w.run, container.Parking{Wait: time.Minute, Due: func(context.Context, *container.Lease) {}})
			case <-w.run.Done():
			}
			l.Release(t.Context())
		}
		if res, err := w.run.Result(); err != nil || w.printed() != "x\nxx\n" {
			t.Errorf("ended %+v, %v", res, err)
		}
	})
}

// A response may end with a call of waiting code and hold results too, and others use the container meanwhile. Fails if what
// they are told is on no disk, or if those wait for the disk who are told nothing.
func TestWhatIsToldBesideAParkedRunIsSynced(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		syncs := 0
		e.SyncWith(func(context.Context, *sandbox.Workspace) error {
			syncs++
			return nil
		})
		synced := func(what string, want int) {
			t.Helper()
			if syncs != want {
				t.Errorf("%s: %d syncs, want %d", what, syncs, want)
			}
			e.SweepIdle(t.Context())
			syncs = 0
		}
		c := create(t, e, container.CreateParams{})
		w := wait(t, e, c.ID, askTwice)
		synced("code that waits", 0)
		err := e.Use(t.Context(), e.Caller, c.ID, true, func(ctx context.Context, m container.Metered) error {
			return m.Put(ctx, "/workspace/f", strings.NewReader("kept"), guest.PutOptions{})
		})
		if err != nil {
			t.Fatal(err)
		}
		synced("a file put beside it", 1)
		w.park(t, w.resume(t, e, "x"))
		synced("code that goes on waiting", 0)
		for what, do := range map[string]func(m container.Metered) error{
			"a command before it": func(m container.Metered) error {
				_, err := m.Exec(t.Context(), sandbox.Command{Shell: "echo kept > g"})
				return err
			},
			"an edit before it": func(m container.Metered) error {
				return m.Put(t.Context(), "/workspace/h", strings.NewReader("kept"), guest.PutOptions{})
			},
		} {
			l := acquire(t, e, c.ID)
			if err := l.EndParked(t.Context(), errors.New("replaced")); err != nil {
				t.Fatal(err)
			}
			m, err := l.Metered(t.Context())
			if err == nil {
				err = do(m)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.run = m.Begin(t.Context(), sandbox.Cell{Code: askTwice, Tools: []string{"ask"}, Call: w.call}, func() {})
			w.park(t, l)
			synced(what, 1)
		}
	})
}

func TestParkedSandboxThatWorksIsNotFrozen(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]func(e *containertest.Env, p *container.Parking){
		"works":         func(_ *containertest.Env, p *container.Parking) { p.Busy = true },
		"setting":       func(e *containertest.Env, _ *container.Parking) { e.KeepParkedRunning = true },
		"never freezes": func(e *containertest.Env, _ *container.Parking) { e.IdleFreeze = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env) {
				c := create(t, e, container.CreateParams{})
				w := wait(t, e, c.ID, askTwice)
				l := w.resume(t, e, "x")
				<-w.asked
				p := container.Parking{Wait: time.Hour, Due: func(context.Context, *container.Lease) {}}
				keep(e, &p)
				l.Park(w.run, p)
				l.Release(t.Context())
				e.Clock.Add(time.Minute)
				e.SweepIdle(t.Context())
				if e.Frozen(c.ID) {
					t.Error("it is frozen")
				}
			})
		})
	}
}

func TestParkedSandboxIsKeptUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		e.IdleDestroy, e.IdleFreeze = time.Second, time.Second
		c := create(t, e, container.CreateParams{ExpiresAfter: container.MinExpiresAfter})
		w := wait(t, e, c.ID, "print(await ask({}))")
		if at, err := e.Get(t.Context(), e.Caller, c.ID); err != nil || !at.ExpiresAt.Equal(e.Clock.Now().Add(90*time.Second)) {
			t.Errorf("the container expires at %v, %v", at.ExpiresAt, err)
		}
		// Its own idleness or expiry does not end it.
		e.Clock.Add(59 * time.Second)
		e.SweepIdle(t.Context())
		e.SweepParked(t.Context())
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e.ParkedCount() != 1 || e.LiveCount() != 1 {
			t.Fatalf("%d parked, %d live", e.ParkedCount(), e.LiveCount())
		}
		e.Clock.Add(time.Second)
		e.SweepParked(t.Context())
		l := <-w.due
		if err := l.Resume(t.Context(), w.run); err != nil {
			t.Fatal(err)
		}
		w.answer <- "late"
		<-w.run.Done()
		close(w.goOn)
		acquire(t, e, c.ID).Release(t.Context()) // its turn has ended
		if w.printed() != "late\n" {
			t.Errorf("printed %q", w.printed())
		}
		e.Clock.Add(time.Second)
		e.SweepIdle(t.Context())
		if e.LiveCount() != 0 {
			t.Error("the sandbox is kept for ever")
		}
	})
}

func TestPromiseOfAContainerWithAParkedRunIsShort(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		l := acquire(t, e, c.ID)
		m, err := l.Metered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := &waiter{id: c.ID, asked: make(chan []sandbox.ToolCall), answer: make(chan string), due: make(chan *container.Lease)}
		w.run = m.Begin(t.Context(), sandbox.Cell{Code: "await ask({})", Tools: []string{"ask"}, Call: w.call}, func() {})
		w.park(t, l)
		if got := l.ExpiresAt(); !got.Equal(e.Clock.Now().Add(90 * time.Second)) {
			t.Errorf("promised until %v", got)
		}
		if got := l.Container().ExpiresAt; !got.Equal(e.Clock.Now().Add(time.Hour)) {
			t.Errorf("lives until %v", got)
		}
		l = w.resume(t, e, "")
		<-w.run.Done()
		l.Release(t.Context())
		if got := l.ExpiresAt(); !got.Equal(e.Clock.Now().Add(time.Hour)) {
			t.Errorf("promised until %v at the end", got)
		}
	})
}

// However a container ends, its parked cell ends with it, and is accounted for.
func TestParkedRunEndsWithItsContainer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *containertest.Env, container.ID) error{
		"deleted": func(t *testing.T, e *containertest.Env, id container.ID) error {
			return e.Delete(t.Context(), e.Caller, id)
		},
		"expired": func(t *testing.T, e *containertest.Env, id container.ID) error {
			e.Clock.Add(2 * time.Hour)
			return e.SweepExpired(t.Context())
		},
		"service": func(t *testing.T, e *containertest.Env, id container.ID) error { return e.Close(t.Context()) },
		"another": func(t *testing.T, e *containertest.Env, id container.ID) error {
			l := acquire(t, e, id)
			defer l.Release(t.Context())
			return l.EndParked(t.Context(), errors.New("replaced"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env) {
				c := create(t, e, container.CreateParams{})
				w := wait(t, e, c.ID, "x = 5\nawait ask({})")
				if err := end(t, e, c.ID); err != nil {
					t.Fatal(err)
				}
				<-w.run.Done()
				if _, err := w.run.Result(); err == nil {
					t.Error("it ended well")
				}
				if all := accounts(t, e, c.ID); !slices.ContainsFunc(all, func(x usage.Execution) bool { return x.Kind == usage.KindCell }) {
					t.Errorf("accounts %+v", all)
				}
				if name == "another" {
					if out, lost := cellIn(t, e, c.ID, "print(x)"); out != "5\n" || lost {
						t.Errorf("its variables: %q, lost %v", out, lost)
					}
				}
			})
		})
	}
}

// What a sandbox does for others while code waits is not on the waiting code's account.
func TestWaitingIsNotAccountedFor(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		w := wait(t, e, c.ID, "await ask({})")
		e.Sh(t, c.ID, "timeout 5 "+strings.ReplaceAll(burn, `open("done","w"); signal.pause()`, `os._exit(0)`))
		l := w.resume(t, e, "")
		<-w.run.Done()
		l.Release(t.Context())
		for _, x := range accounts(t, e, c.ID) {
			if x.Kind == usage.KindCell && x.CPU >= burnt {
				t.Errorf("the cell used %v", x.CPU)
			}
			if x.Kind == usage.KindExec && x.CPU < burnt {
				t.Errorf("the command used %v", x.CPU)
			}
		}
	})
}

// Nobody makes a request when code goes on by itself. Fails if what it makes then is the app's, whose keys would read it, and
// not its user's.
func TestOutputOfCodeThatGoesOnByItselfIsItsUsers(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		user := e.Caller
		user.UserID = "idp/u"
		l, err := e.Acquire(t.Context(), user, "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Metered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dir, err := l.OutputDir(t.Context(), "call_x")
		if err != nil {
			t.Fatal(err)
		}
		r := m.Begin(t.Context(), sandbox.Cell{Code: "open('" + dir + "/f', 'w').write('private')"}, func() {})
		<-r.Done()
		made := make(chan []*file.File, 1)
		l.Park(r, container.Parking{Busy: true, Due: func(ctx context.Context, l *container.Lease) {
			files, _, err := l.Export(ctx, "call_x")
			if err != nil {
				t.Error(err)
			}
			made <- files
		}})
		l.Release(t.Context())
		e.SweepParked(t.Context())
		files := <-made
		if len(files) != 1 || files[0].Owner.UserID != user.UserID || e.Caller.MayUse(files[0].Owner) || !user.MayUse(files[0].Owner) {
			t.Errorf("made %+v", files)
		}
	})
}
