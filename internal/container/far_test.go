package container_test

import (
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
)

// Fails if a server that knows nothing of a turn calls its container expired: the workspace would be lost at its end.
func TestOnlyItsOwnServerCallsAContainerExpired(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "echo precious > f")
		other := e.Neighbour(t)
		l, err := e.Acquire(t.Context(), e.Caller, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		e.Clock.Add(2 * time.Hour)
		if seen, err := other.Get(t.Context(), e.Caller, c.ID); err != nil || seen.State != container.StateActive {
			t.Errorf("looked at from elsewhere: %+v, %v", seen, err)
		}
		page, err := other.List(t.Context(), e.Caller, container.ListParams{})
		if err != nil || len(page.Data) != 1 || page.Data[0].State != container.StateActive {
			t.Errorf("listed elsewhere: %+v, %v", page, err)
		}
		_, err = other.Acquire(t.Context(), e.Caller, c.ID)
		wantError(t, err, 529, "")
		l.Release(t.Context())
		if out, _ := e.Sh(t, c.ID, "cat f"); out != "precious\n" {
			t.Errorf("after its turn it holds %q", out)
		}
		e.Clock.Add(2 * time.Hour)
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen, err := other.Get(t.Context(), e.Caller, c.ID); err != nil || seen.State != container.StateExpired {
			t.Errorf("after its own server said so: %+v, %v", seen, err)
		}
	})
}

// Fails if a deletion that another server takes leaves code at work, or an image on the disk.
func TestDeletionThatAnotherServerTakesIsFinishedAtHome(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		idle, working := create(t, e, container.CreateParams{}), create(t, e, container.CreateParams{})
		e.Sh(t, idle.ID, "echo > f")
		e.Sh(t, working.ID, "echo > f")
		l, err := e.Acquire(t.Context(), e.Caller, working.ID)
		if err != nil {
			t.Fatal(err)
		}
		turn, stop := l.Context(t.Context())
		defer stop()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-turn.Done()
			l.Release(t.Context())
		}()
		other := e.Neighbour(t)
		for _, c := range []*container.Container{idle, working} {
			if err := other.Delete(t.Context(), e.Caller, c.ID); err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]*containertest.Env{"home": e, "elsewhere": other} {
				if _, err := s.Get(t.Context(), e.Caller, c.ID); err == nil {
					t.Errorf("%s: a deleted container is found", name)
				}
			}
			if !e.Workspaces.Exists(string(c.ID)) {
				t.Error("a neighbour removed the image")
			}
		}
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ended
		for _, c := range []*container.Container{idle, working} {
			if e.Workspaces.Exists(string(c.ID)) {
				t.Errorf("the image of %s is still there", c.ID)
			}
		}
		if n := e.LiveCount(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}
