package container_test

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// A turn that waits for a model uses no sandbox, so its context is what ends it.
func TestDeleteEndsATurnOutsideTheSandboxAndThoseWhoWait(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		ctx, cancel := l.Context(t.Context()) // before there is a container
		defer cancel()
		c, err := l.Ensure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := e.Acquire(t.Context(), e.Caller, c.ID)
			waiting <- err
		}()
		go func() {
			<-ctx.Done()
			l.Release(t.Context())
		}()
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"turn": context.Cause(ctx), "waiter": <-waiting} {
			if d := cmp.Diff(wire.NotFound(), wire.AsError(err)); d != "" {
				t.Errorf("%s (-constant +got):\n%s", name, d)
			}
		}
	})
}

func TestContextOfATurnEndsWithItsParentOnly(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		l := acquire(t, e, c.ID)
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		l.Release(t.Context())
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		if ctx.Err() != nil {
			t.Error("the deletion of a container ended what came after its turn")
		}
	})
}

// The loop reads what is to be deleted, and a request finishes it before the loop comes to it.
func TestDeletionThatIsDoneMeanwhileIsNoFaultOfTheLoop(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		if err := e.RetryDelete(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestDeletionsAtOnceEndInSuccessOrNotFound(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = e.Delete(t.Context(), e.Caller, c.ID) })
		}
		wg.Wait()
		deleted := 0
		for _, err := range errs {
			if err == nil {
				deleted++
			} else if d := cmp.Diff(wire.NotFound(), wire.AsError(err)); d != "" {
				t.Errorf("(-constant +got):\n%s", d)
			}
		}
		if deleted != 1 {
			t.Errorf("%d calls say that they deleted it", deleted)
		}
	})
}

// holdImage keeps an image from being removed, as a mount that does not go away would.
func holdImage(t *testing.T, e *containertest.Env, id container.ID) (release func()) {
	t.Helper()
	f, err := os.Open(e.Workspaces.Path(string(id)))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeletionThatFailedIsFinishedByTheSweep(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		e.Clock.Add(e11)
		e.SweepIdle(t.Context()) // lets go of the image
		release := holdImage(t, e, c.ID)
		err := e.Delete(t.Context(), e.Caller, c.ID)
		wantError(t, err, 500, "")
		_, err = e.Get(t.Context(), e.Caller, c.ID)
		wantError(t, err, 404, "")
		if err := e.SweepExpired(t.Context()); err == nil {
			t.Error("a sweep that cannot remove the image says nothing")
		}
		release()
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e.Workspaces.Exists(string(c.ID)) {
			t.Error("the image is still there")
		}
		if r, err := e.Restart(t).Recover(t.Context()); err != nil || r != (container.Recovered{}) {
			t.Errorf("a start still finds %+v, %v", r, err)
		}
	})
}

func TestImageOfAnExpiredContainerIsRemovedBySomeLaterSweep(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		e.Clock.Add(e11)
		e.SweepIdle(t.Context())
		release := holdImage(t, e, c.ID)
		e.Clock.Add(2 * time.Hour)
		if err := e.SweepExpired(t.Context()); err == nil {
			t.Error("a sweep that cannot remove the image says nothing")
		}
		release()
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e.Workspaces.Exists(string(c.ID)) {
			t.Error("the image is still there")
		}
		_, err := e.Acquire(t.Context(), e.Caller, c.ID)
		wantError(t, err, 404, container.CodeExpired)
	})
}

func TestContainerWhoseImageIsBeyondRepairIsLost(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		e.Clock.Add(e11)
		e.SweepIdle(t.Context())
		image := e.Workspaces.Path(string(c.ID))
		if err := errors.Join(os.Truncate(image, 0), os.Truncate(image, e.Limits.DiskBytes)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "true"}, io.Discard, io.Discard)
			wantError(t, err, 404, container.CodeLost)
		}
	})
}
