package sandbox

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// instance stands for the process behind a sandbox; the other end of the stream is played by the test.
type instance struct {
	once   sync.Once
	exited chan struct{}
	oom    bool
	frozen bool
}

func (i *instance) SetFrozen(_ context.Context, frozen bool) error { i.frozen = frozen; return nil }
func (i *instance) Usage(context.Context) (Usage, error)           { return Usage{}, nil }
func (i *instance) Exited() (<-chan struct{}, func() bool) {
	return i.exited, func() bool { return i.oom }
}
func (i *instance) die()                          { i.once.Do(func() { close(i.exited) }) }
func (i *instance) Destroy(context.Context) error { i.die(); return nil }

// play runs a sandbox whose guest answers each exec or cell with what answer writes.
func play(t *testing.T, l Limits, answer func(f *guest.Frame, w *guest.Writer, i *instance)) (*Sandbox, *instance) {
	t.Helper()
	ours, theirs := net.Pipe()
	i := &instance{exited: make(chan struct{})}
	s := New(Spec{ID: "played", Limits: l.WithDefaults()}, guest.NewConn(ours, guest.Options{}), i)
	var playing sync.WaitGroup
	playing.Go(func() {
		defer theirs.Close()
		r, w := guest.NewReader(theirs), guest.NewWriter(theirs)
		for {
			f, err := r.Read()
			if err != nil {
				return
			}
			if f.Type == guest.TypeExec || f.Type == guest.TypeCell {
				answer(f, w, i)
			}
		}
	})
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		playing.Wait()
	})
	return s, i
}

func exit(f *guest.Frame, w *guest.Writer) {
	_ = w.Write(&guest.Frame{Type: guest.TypeExit, ID: f.ID, Exit: &guest.Exit{}})
}

func TestCommandsAreHeldToTheSandboxsLimits(t *testing.T) {
	t.Parallel()
	l := Limits{Wall: 10 * time.Second, OutputBytes: 1000}
	var timeout time.Duration
	var output int64
	s, _ := play(t, l, func(f *guest.Frame, w *guest.Writer, _ *instance) {
		if f.Exec != nil {
			timeout, output = f.Exec.Timeout, f.Exec.Output
		} else {
			timeout, output = f.Cell.Timeout, f.Cell.Output
		}
		exit(f, w)
	})
	for _, c := range []struct {
		ask, want       time.Duration
		askOut, wantOut int64
	}{
		{0, 10 * time.Second, 0, 1000}, {time.Second, time.Second, 10, 10}, {time.Hour, 10 * time.Second, 1 << 40, 1000}, {-1, 10 * time.Second, -1, 1000},
	} {
		if _, err := s.Exec(t.Context(), Command{Argv: []string{"x"}, Timeout: c.ask, OutputBytes: c.askOut}); err != nil {
			t.Fatal(err)
		}
		if timeout != c.want || output != c.wantOut {
			t.Errorf("exec asked %v, %d: got %v, %d", c.ask, c.askOut, timeout, output)
		}
	}
	if _, err := s.Cell(t.Context(), Cell{Code: "1", Timeout: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if timeout != 10*time.Second || output != 1000 {
		t.Errorf("cell got %v, %d", timeout, output)
	}
}

func TestTheReasonOfAnEndIsTold(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		answer func(f *guest.Frame, w *guest.Writer, i *instance)
		want   error
		reason ExitReason
	}{
		{"too much output", func(f *guest.Frame, w *guest.Writer, _ *instance) {
			_ = w.Write(&guest.Frame{Type: guest.TypeData, ID: f.ID, Stream: 1, Payload: make([]byte, 9000)})
		}, ErrGone, ExitProtocol},
		{"nonsense", func(f *guest.Frame, w *guest.Writer, _ *instance) {
			_ = w.Write(&guest.Frame{Type: guest.TypeOK, ID: f.ID})
		}, ErrGone, ExitProtocol},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, i := play(t, Limits{OutputBytes: 1000}, c.answer)
			_, err := s.Exec(t.Context(), Command{Argv: []string{"x"}})
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			select {
			case <-i.exited:
			default:
				t.Error("the sandbox lives on")
			}
			if got := s.ExitReason(); got != c.reason {
				t.Errorf("reason %q, want %q", got, c.reason)
			}
		})
	}
}

func TestAGuestThatDiesOfMemorySaysSo(t *testing.T) {
	t.Parallel()
	for oom, want := range map[bool]ExitReason{true: ExitOOM, false: ExitCrash} {
		s, i := play(t, Limits{}, nil)
		i.oom = oom
		i.die()
		if got := s.ExitReason(); got != want {
			t.Errorf("oom %v: reason %q, want %q", oom, got, want)
		}
		err := s.explain(t.Context(), ErrGone)
		if errors.Is(err, ErrOutOfMemory) != oom || !errors.Is(err, ErrGone) {
			t.Errorf("oom %v: error %v", oom, err)
		}
	}
}

func TestDestroyIsTheReasonOnceCalled(t *testing.T) {
	t.Parallel()
	s, _ := play(t, Limits{}, nil)
	if got := s.ExitReason(); got != ExitNone {
		t.Errorf("a living sandbox says %q", got)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.ExitReason(); got != ExitDestroyed {
		t.Errorf("reason %q", got)
	}
	if _, err := s.Exec(t.Context(), Command{Argv: []string{"x"}}); !errors.Is(err, ErrGone) {
		t.Errorf("exec after destroy: %v, want ErrGone", err)
	}
	<-s.Done()
}

func TestFreezeAndThawReachTheInstance(t *testing.T) {
	t.Parallel()
	s, i := play(t, Limits{}, nil)
	if err := s.Freeze(t.Context()); err != nil || !i.frozen {
		t.Errorf("freeze: %v, frozen %v", err, i.frozen)
	}
	if err := s.Thaw(t.Context()); err != nil || i.frozen {
		t.Errorf("thaw: %v, frozen %v", err, i.frozen)
	}
}
