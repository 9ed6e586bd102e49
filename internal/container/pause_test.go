package container

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// stubborn is an instance that does not freeze, or does not thaw either.
type stubborn struct {
	calls     []bool
	unlimited bool // a call had no time limit
	thawErr   error
}

func (s *stubborn) SetFrozen(ctx context.Context, frozen bool) error {
	s.calls = append(s.calls, frozen)
	if _, ok := ctx.Deadline(); !ok {
		s.unlimited = true
	}
	if frozen {
		return context.DeadlineExceeded
	}
	return s.thawErr
}

func (s *stubborn) Usage(context.Context) (sandbox.Usage, error) { return sandbox.Usage{}, nil }

func (s *stubborn) Exited() (<-chan struct{}, func() bool) { return nil, func() bool { return false } }

func (s *stubborn) Destroy(context.Context) error { return nil }

func TestFreezeThatFailsIsLimitedUndoneAndNotRepeated(t *testing.T) {
	t.Parallel()
	for _, thawErr := range []error{nil, errors.New("stuck")} {
		inst := &stubborn{thawErr: thawErr}
		s := &Service{Now: func() time.Time { return t0.Add(time.Minute) }}
		v := newLive("container_x", t0)
		v.sb = sandbox.New(sandbox.Spec{}, nil, inst)
		if err := s.sweepOne(t.Context(), v); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, thawErr) && thawErr != nil {
			t.Errorf("first pass: %v", err)
		}
		if err := s.sweepOne(t.Context(), v); err != nil {
			t.Errorf("second pass: %v", err)
		}
		if !slices.Equal(inst.calls, []bool{true, false}) || inst.unlimited {
			t.Errorf("calls %v, without a limit %v", inst.calls, inst.unlimited)
		}
		// Only what may still stand is thawed by the next use.
		if v.frozen != (thawErr != nil) {
			t.Errorf("thaw error %v: frozen %v", thawErr, v.frozen)
		}
	}
}

// Of a parked cell only the sandbox that its code waits in is stopped, and one that does not stop is not tried at each pass.
func TestParkedSandboxIsStoppedOnceIfItIsItsOwn(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	close(ended)
	for name, tt := range map[string]struct {
		change func(r *Parkable)
		calls  []bool
	}{
		"does not stop": {func(*Parkable) {}, []bool{true, false}},
		"another":       {func(r *Parkable) { r.sb = sandbox.New(sandbox.Spec{}, nil, &stubborn{}) }, nil},
		"has ended":     {func(r *Parkable) { r.done = ended }, nil},
	} {
		inst := &stubborn{}
		s := &Service{Now: func() time.Time { return t0.Add(time.Minute) }}
		v := newLive("container_x", t0)
		v.sb = sandbox.New(sandbox.Spec{}, nil, inst)
		v.waits = &Parkable{live: v, sb: v.sb}
		tt.change(v.waits)
		first := s.sweepOne(t.Context(), v)
		if err := s.sweepOne(t.Context(), v); err != nil || (first != nil) != (tt.calls != nil) || !slices.Equal(inst.calls, tt.calls) || inst.unlimited {
			t.Errorf("%s: %v, then %v, calls %v, without a limit %v", name, first, err, inst.calls, inst.unlimited)
		}
	}
}

// Fails if code that waits in a sandbox that cannot be continued stays parked: each pass would try again, for ever.
func TestParkedSandboxThatDoesNotThawIsEnded(t *testing.T) {
	t.Parallel()
	s := &Service{Now: func() time.Time { return t0 }}
	v := newLive("container_x", t0)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	inst := &stubborn{thawErr: errors.New("stuck")}
	v.sb, v.hold, v.frozen = sandbox.New(sandbox.Spec{}, guest.NewConn(ours, guest.Options{}), inst), func() {}, true
	r := &Parkable{live: v, sb: v.sb}
	v.waits = r
	l := &Lease{s: s, live: v}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := l.Resume(gone, r); err == nil || errors.Is(err, sandbox.ErrGone) || v.parked() != r || v.sandbox() == nil {
		t.Errorf("a client who leaves: %v", err)
	}
	if err := l.Resume(t.Context(), r); !errors.Is(err, sandbox.ErrGone) || v.parked() != nil || v.sandbox() != nil || r.lease != l {
		t.Errorf("resume: %v, parked %v, sandbox %v", err, v.parked(), v.sandbox())
	}
}

func TestSyncThatHangsIsLeftBehindAndCoversNoLaterWrite(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	s := &Service{sync: func(context.Context, *sandbox.Workspace) error {
		begun <- struct{}{}
		<-goOn
		return nil
	}}
	v := newLive("container_x", t0)
	v.ws = &sandbox.Workspace{}
	v.markDirty()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.syncLive(ctx, v) // returns, which is the point
	<-begun
	if err := s.save(ctx, v); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the sync that hangs: %v", err)
	}
	v.markDirty()
	later := make(chan error)
	go func() { later <- s.save(t.Context(), v) }()
	close(goOn)
	if err := <-later; err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	default:
		t.Error("a write after the sync began was not synced")
	}
	if run, _ := s.saveOnce(t.Context(), v); run != nil {
		t.Error("a clean workspace is synced again")
	}
}

func TestSyncThatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad disk")
	n := 0
	s := &Service{DB: dbtest.SQLite(t), sync: func(context.Context, *sandbox.Workspace) error {
		if n++; n == 1 {
			return bad
		}
		return nil
	}}
	v := newLive("container_x", t0)
	v.ws = &sandbox.Workspace{}
	v.markDirty()
	if err := s.save(t.Context(), v); !errors.Is(err, bad) {
		t.Errorf("first: %v", err)
	}
	if err := s.save(t.Context(), v); err != nil || n != 2 {
		t.Errorf("second: %v after %d", err, n)
	}
}

// Fails if a write that was acknowledged and lost stays unsaid: a second sync succeeds, because the kernel has given up what
// the first could not write.
func TestNextUseIsToldOnceThatASyncFailed(t *testing.T) {
	t.Parallel()
	bad := errors.New("no space left on device")
	fails := true
	s := &Service{DB: dbtest.SQLite(t), sync: func(context.Context, *sandbox.Workspace) error {
		if fails {
			return bad
		}
		return nil
	}}
	v, err := s.takeTurn(t.Context(), "container_x", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	v.ws = &sandbox.Workspace{}
	v.markDirty()
	s.syncLive(t.Context(), v)
	fails = false
	s.syncLive(t.Context(), v)
	v.ws = nil
	v.unsaved.noted = false // as if the row could not be written
	s.forget(v)
	if len(s.snapshot()) != 1 {
		t.Fatal("forgotten while its owner has not been told")
	}
	l := &Lease{s: s, live: v}
	if note := l.Unsaved(t.Context()); !strings.Contains(note, "lost") {
		t.Errorf("first use: %q", note)
	}
	if note := l.Unsaved(t.Context()); note != "" {
		t.Errorf("second use: %q", note)
	}
	s.forget(v)
	if len(s.snapshot()) != 0 {
		t.Error("kept for nothing")
	}
}

// A slow pass of the background loop comes to an entry that was forgotten since it began; the container has another one by
// then. Fails if that one is forgotten with it, under a turn and with a sandbox: a second turn could begin beside it.
func TestPassOverAForgottenEntryLeavesItsSuccessor(t *testing.T) {
	t.Parallel()
	s := &Service{Now: func() time.Time { return t0 }}
	take := func() *live {
		v, err := s.takeTurn(t.Context(), "container_x", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	old := take()
	s.forget(old)
	s.giveTurn(old)
	current := take()
	if err := s.sweepOne(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if all := s.snapshot(); len(all) != 1 || all[0] != current {
		t.Errorf("entries %v, want the one whose turn runs", all)
	}
}

func TestBackgroundWorkIsToldThatItsTurnIsWanted(t *testing.T) {
	t.Parallel()
	s := &Service{Now: func() time.Time { return t0 }}
	wanted := make(chan struct{})
	v := s.tryTurn("container_x", func() { close(wanted) })
	if v == nil || s.tryTurn("container_x", nil) != nil {
		t.Fatal("a free turn is refused or a taken one given")
	}
	got := make(chan *live)
	go func() {
		next, err := s.takeTurn(t.Context(), "container_x", time.Minute)
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	<-wanted
	s.endTry(v)
	if next := <-got; next != v || s.snapshot()[0] != v {
		t.Error("the turn of another entry was given: two could work at once")
	}
}

// The last sync of a workspace is that of its detaching. Fails if its error ends in the log.
func TestDetachThatCannotSaveIsTold(t *testing.T) {
	t.Parallel()
	s := &Service{DB: dbtest.SQLite(t)}
	v := newLive("container_x", t0)
	for _, tt := range []struct {
		err  error
		told bool
	}{{errors.New("still at work"), false}, {sandbox.ErrUnsaved, true}} {
		if err := s.detach(t.Context(), v, func(context.Context) error { return tt.err }); !errors.Is(err, tt.err) {
			t.Errorf("detach: %v", err)
		}
		if told := (&Lease{s: s, live: v}).Unsaved(t.Context()) != ""; told != tt.told {
			t.Errorf("%v: told %v", tt.err, told)
		}
	}
}
