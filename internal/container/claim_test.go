package container_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// pooled gives the service a pool and waits until it is full.
func pooled(t *testing.T, e *containertest.Env) *sandbox.Pool {
	t.Helper()
	p := &sandbox.Pool{
		Driver: e.Driver, Workspaces: e.Workspaces, Size: 1, Every: 5 * time.Millisecond, Pause: time.Millisecond,
		Default: func() (sandbox.Class, error) { return e.Class("") },
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	e.Pool = p
	p.Start(t.Context())
	t.Cleanup(func() {
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	fill(t, p)
	return p
}

func fill(t *testing.T, p *sandbox.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.Ready() < p.Size {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the pool stays empty, see its log; a guest of another build does that, too: make guest")
		}
	}
}

// running is the id of the sandbox behind a container.
func running(t *testing.T, e *containertest.Env, id container.ID) string {
	t.Helper()
	l := acquire(t, e, id)
	defer l.Release(t.Context())
	sb, err := l.Sandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID()
}

func TestFreshContainerGetsASandboxOfThePool(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		p := pooled(t, e)
		c := create(t, e, container.CreateParams{})
		if id := running(t, e, c.ID); !strings.HasPrefix(id, sandbox.PoolPrefix) {
			t.Errorf("its sandbox is %s", id)
		}
		if e.LiveCount() != 1 || !e.Workspaces.Exists(string(c.ID)) {
			t.Errorf("%d live sandboxes, image there: %t", e.LiveCount(), e.Workspaces.Exists(string(c.ID)))
		}
		e.Sh(t, c.ID, "echo kept > f")
		// Its next sandbox is its own: the pool is for containers without files.
		fill(t, p)
		e.Clock.Add(e11)
		e.SweepIdle(t.Context())
		if id := running(t, e, c.ID); id != string(c.ID) {
			t.Errorf("its next sandbox is %s", id)
		}
		if out, _ := e.Sh(t, c.ID, "cat f"); out != "kept\n" {
			t.Errorf("the file says %q", out)
		}
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := e.Workspaces.List(); err != nil || len(left) > 0 {
			t.Errorf("images left: %v, %v", left, err)
		}
	})
}

func TestEmptyPoolMeansAColdStart(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		p := pooled(t, e)
		p.Drain()
		c := create(t, e, container.CreateParams{})
		if id := running(t, e, c.ID); id != string(c.ID) {
			t.Errorf("its sandbox is %s", id)
		}
	})
}

// failOnce lets a claim, or a packing, fail the next time it comes to a step, and tells whether it has.
func failOnce(e *containertest.Env, step string) *atomic.Bool {
	var failed atomic.Bool
	e.CrashAt(func(at string) error {
		if at == step && failed.CompareAndSwap(false, true) {
			return errCrash
		}
		return nil
	})
	return &failed
}

// The client that was told of an error asks again at once, whatever the database has made of the first try.
func TestClaimThatFailsCostsTheNextUseNothing(t *testing.T) {
	t.Parallel()
	for _, step := range container.ClaimSteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env) {
				p := pooled(t, e)
				failOnce(e, step)
				c := create(t, e, container.CreateParams{})
				if _, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "true"}, nil, nil); !errors.Is(err, errCrash) {
					t.Fatalf("got %v", err)
				}
				if out, _ := e.Sh(t, c.ID, "ls -A; echo kept > f"); out != "" {
					t.Errorf("at once afterwards: %q", out)
				}
				fill(t, p) // whatever the pool had to do with the member
				e.Clock.Add(e11)
				e.SweepIdle(t.Context())
				if out, _ := e.Sh(t, c.ID, "cat f"); out != "kept\n" {
					t.Errorf("the file says %q", out)
				}
			})
		})
	}
}

// Even a member that does not end at first takes no image with it that has a container's name.
func TestPoolRemovesNoImageOfAContainer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		d := &stickyDriver{Driver: e.Driver}
		e.Driver = d
		p := pooled(t, e)
		failOnce(e, container.ClaimSteps[1])
		c := create(t, e, container.CreateParams{})
		d.stick("*")
		if _, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "true"}, nil, nil); !errors.Is(err, errCrash) {
			t.Fatalf("got %v", err)
		}
		d.stick("")
		if err := p.Stop(t.Context()); err != nil { // has ended the member
			t.Fatal(err)
		}
		if out, _ := e.Sh(t, c.ID, "echo on"); out != "on\n" {
			t.Errorf("the container says %q", out)
		}
	})
}

func TestKilledServerLosesNoWorkspaceOfThePool(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		p := pooled(t, e)
		used := create(t, e, container.CreateParams{})
		e.Sh(t, used.ID, "echo kept > f")
		// Between the new name of the image and the row: a container that has an image and does not know.
		between := create(t, e, container.CreateParams{})
		fill(t, p)
		class, err := e.Class("")
		if err != nil {
			t.Fatal(err)
		}
		m := p.Claim(t.Context(), class)
		if m == nil {
			t.Fatal("nothing was ready")
		}
		if err := e.Workspaces.Rename(m.Workspace, string(between.ID)); err != nil {
			t.Fatal(err)
		}
		if err := m.Sandbox.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Workspace.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.Release()
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// And one that nobody had claimed.
		if _, err := e.Workspaces.Create(t.Context(), sandbox.PoolPrefix+"left", e.Limits); err != nil {
			t.Fatal(err)
		}
		next := e.Restart(t)
		r, err := next.Recover(t.Context())
		if err != nil || r != (container.Recovered{Kept: 2, Orphaned: 1}) {
			t.Fatalf("recovered %+v, %v", r, err)
		}
		if out, _ := next.Sh(t, used.ID, "cat f"); out != "kept\n" {
			t.Errorf("the file says %q", out)
		}
		if out, _ := next.Sh(t, between.ID, "echo blank; ls -A"); out != "blank\n" {
			t.Errorf("got %q", out)
		}
	})
}
