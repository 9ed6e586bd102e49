package container_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// With memory for two sandboxes a third makes the one that rests longest go, a frozen one first, and never one at work.
func TestThirdSandboxTakesThePlaceOfTheOneThatRestsLongest(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		const share = 1 << 40 // more than anything uses, so that the count decides
		e.Admission = &admission.Queue{
			Memory: func() (int64, int64, error) { return 2*share + 1, 2*share + 1, nil }, Reserve: 1, Share: share, Wait: time.Minute,
		}
		old, young, next := create(t, e, container.CreateParams{}), create(t, e, container.CreateParams{}), create(t, e, container.CreateParams{})
		e.Sh(t, old.ID, "echo kept > f; sleep 1000 &")
		e.Clock.Add(time.Second)
		e.Sh(t, young.ID, "sleep 1000 &")
		e.Clock.Add(time.Second)
		e.Sh(t, next.ID, "true")
		if e.LiveCount() != 2 {
			t.Fatalf("%d sandboxes live", e.LiveCount())
		}
		if out, _ := e.Sh(t, young.ID, "cat /proc/[0-9]*/comm | grep -c sleep"); out != "1\n" {
			t.Errorf("the younger one went: %q processes", out)
		}
		if out, _ := e.Sh(t, old.ID, "cat f; cat /proc/[0-9]*/comm | grep -c sleep"); out != "kept\n0\n" {
			t.Errorf("the old one has %q", out)
		}
		// Both places are at work now: nobody is cut off.
		busy := acquire(t, e, old.ID)
		other := acquire(t, e, young.ID)
		for _, l := range []*container.Lease{busy, other} {
			if _, err := l.Sandbox(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		e.Admission.Wait = time.Millisecond
		_, err := e.Exec(t.Context(), e.Caller, next.ID, sandbox.Command{Shell: "true"}, nil, nil)
		wantError(t, err, 529, "memory_full")
		e.Admission.Wait = time.Minute
		busy.Release(context.WithoutCancel(t.Context()))
		other.Release(context.WithoutCancel(t.Context()))
		e.Sh(t, next.ID, "true")
	})
}

// starved makes no sandbox: the kernel refuses it a cgroup, say.
type starved struct{ sandbox.Driver }

func (starved) Create(context.Context, sandbox.Spec) (*sandbox.Sandbox, error) {
	return nil, fmt.Errorf("cgroup: %w: %w", sandbox.ErrCapacity, syscall.EAGAIN)
}

func TestHostThatCannotCarryAnotherSandboxIsNoFaultOfTheServer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		box := create(t, e, container.CreateParams{})
		e.Sh(t, box.ID, "echo kept > f")
		kept := e.Driver
		e.Driver = starved{kept}
		if e.Pool != nil {
			t.Fatal("a pool would hide it")
		}
		fresh := create(t, e, container.CreateParams{})
		_, err := e.Exec(t.Context(), e.Caller, fresh.ID, sandbox.Command{Shell: "true"}, nil, nil)
		wantError(t, err, 529, "")
		if e := wire.AsError(err); e.RetryAfter == 0 || e.NoRetry {
			t.Errorf("it may be tried again: %+v", e)
		}
		// A fork needs no sandbox, and neither does an end.
		if _, err := e.Fork(t.Context(), e.Caller, box.ID); err != nil {
			t.Error(err)
		}
		for _, id := range []container.ID{fresh.ID, box.ID} {
			if err := e.Delete(t.Context(), e.Caller, id); err != nil {
				t.Error(err)
			}
		}
		e.Driver = kept
	})
}

// killer has every sandbox end before it is there, as somebody does who kills processes of the host.
type killer struct{ sandbox.Driver }

func (killer) Create(context.Context, sandbox.Spec) (*sandbox.Sandbox, error) {
	return nil, fmt.Errorf("create sandbox: %w: %w", sandbox.ErrCutOff, sandbox.ErrGone)
}

// Nothing of the request has run, so it can be sent again, and the answer says so.
func TestSandboxThatIsCutOffAtItsStartIsNoFaultOfTheServer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		box := create(t, e, container.CreateParams{})
		kept := e.Driver
		e.Driver = killer{kept}
		_, err := e.Exec(t.Context(), e.Caller, box.ID, sandbox.Command{Shell: "true"}, nil, nil)
		if e := wireError(t, err, 529, container.CodeNotStarted); e.RetryAfter == 0 || e.NoRetry {
			t.Errorf("it may be tried again: %+v", e)
		}
		e.Driver = kept
		e.Sh(t, box.ID, "true")
	})
}

// stickyDriver makes sandboxes of which one is not destroyed when it is asked to be.
type stickyDriver struct {
	sandbox.Driver

	mu    sync.Mutex
	stuck string // its id; "" = none, "*" = all
	tried int    // how often that one was to be destroyed
	hold  func(id string)
	cold  bool // what is frozen stays so
}

func (d *stickyDriver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	sb, err := d.Driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return sandbox.New(spec, sb.Conn, &stickyInstance{Sandbox: sb, d: d}), nil
}

type stickyInstance struct {
	*sandbox.Sandbox
	d *stickyDriver
}

func (i *stickyInstance) SetFrozen(ctx context.Context, frozen bool) error {
	if frozen {
		return i.Freeze(ctx)
	}
	i.d.mu.Lock()
	cold := i.d.cold
	i.d.mu.Unlock()
	if cold {
		return errors.New("it does not answer")
	}
	return i.Thaw(ctx)
}

func (i *stickyInstance) Exited() (<-chan struct{}, func() bool) {
	return i.Done(), func() bool { return false }
}

func (i *stickyInstance) Destroy(ctx context.Context) error {
	i.d.mu.Lock()
	stuck := i.d.stuck == i.ID() || i.d.stuck == "*"
	if stuck {
		i.d.tried++
	}
	hold := i.d.hold
	i.d.mu.Unlock()
	if hold != nil {
		hold(i.ID())
	}
	if stuck {
		return errors.New("a process does not die")
	}
	return i.Sandbox.Destroy(ctx)
}

func (d *stickyDriver) stick(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = id
	return d.tried
}

func TestSandboxThatCannotBeEndedForRoomIsLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		const share = 1 << 40
		d := &stickyDriver{Driver: e.Driver}
		e.Driver, e.Admission = d, &admission.Queue{
			Memory: func() (int64, int64, error) { return 2*share + 1, 2*share + 1, nil }, Reserve: 1, Share: share, Wait: time.Minute,
		}
		stuck := create(t, e, container.CreateParams{})
		e.Sh(t, stuck.ID, "true")
		d.stick(string(stuck.ID))
		defer d.stick("")
		for range 3 { // each ends the one before
			e.Clock.Add(time.Second)
			e.Sh(t, create(t, e, container.CreateParams{}).ID, "true")
		}
		if n := d.stick(string(stuck.ID)); n != 1 {
			t.Errorf("tried %d times within a minute", n)
		}
		e.Clock.Add(time.Minute)
		e.Sh(t, create(t, e, container.CreateParams{}).ID, "true")
		if n := d.stick(string(stuck.ID)); n != 2 {
			t.Errorf("tried %d times in two minutes", n)
		}
	})
}

// On a full server a fresh container gets the sandbox that is ready, and not a cold one in its place.
func TestFreshContainerTakesTheReadySandboxOfAFullServer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		var away atomic.Int64 // of the pool's clock
		p := pooled(t, e)
		p.Now = func() time.Time { return time.Now().Add(time.Duration(away.Load())) }
		e.Admission = &admission.Queue{
			Memory: func() (int64, int64, error) { return 1, 1, nil }, Reserve: 1, Spares: p.Uses, Drain: p.Yield, Wait: time.Minute,
		}
		c := create(t, e, container.CreateParams{})
		if id := running(t, e, c.ID); !strings.HasPrefix(id, sandbox.PoolPrefix) {
			t.Errorf("its sandbox is %s", id)
		}
		// One that turns out not to be fit is no leave to make another.
		fill(t, p)
		away.Store(int64(time.Hour))
		e.Admission.Wait = time.Millisecond
		none := create(t, e, container.CreateParams{})
		_, err := e.Exec(t.Context(), e.Caller, none.ID, sandbox.Command{Shell: "true"}, nil, nil)
		wantError(t, err, 529, "memory_full")
	})
}
