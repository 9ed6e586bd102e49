package container_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

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
		e.Admission = &container.Admission{
			Memory: func() (int64, int64, error) { return 2*share + 1, 2*share + 1, nil }, Reserve: 1, Share: share, Wait: time.Millisecond,
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
		_, err := e.Exec(t.Context(), e.Caller, next.ID, container.ExecParams{Command: "true"}, nil, nil)
		wantError(t, err, 529, "memory_full")
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
		_, err := e.Exec(t.Context(), e.Caller, fresh.ID, container.ExecParams{Command: "true"}, nil, nil)
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
