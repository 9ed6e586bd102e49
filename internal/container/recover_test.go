package container_test

import (
	"os"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
)

func TestRestartKeepsContainersWithTheirWorkspace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		kept := create(t, e, container.CreateParams{})
		lost := create(t, e, container.CreateParams{})
		blank := create(t, e, container.CreateParams{})
		e.Sh(t, kept.ID, "echo kept > f")
		e.Sh(t, lost.ID, "echo lost > f")
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(e.Workspaces.Path(string(lost.ID))); err != nil {
			t.Fatal(err)
		}
		orphan, err := e.Workspaces.Create(t.Context(), "container_orphan", e.Limits)
		if err != nil {
			t.Fatal(err)
		}
		next := e.Restart(t)
		r, err := next.Recover(t.Context())
		if err != nil || r != (container.Recovered{Kept: 2, Lost: 1, Orphaned: 1}) {
			t.Fatalf("recovered %+v, %v", r, err)
		}
		if next.Workspaces.Exists(orphan.ID) {
			t.Error("an image without a row is still there")
		}
		if out, _ := next.Sh(t, kept.ID, "cat f"); out != "kept\n" {
			t.Errorf("kept workspace: %q", out)
		}
		next.Sh(t, blank.ID, "true")
		_, err = next.Acquire(t.Context(), e.Caller, lost.ID)
		wantError(t, err, 404, container.CodeLost)
		_, err = next.Acquire(t.Context(), e.Other, lost.ID)
		wantError(t, err, 404, "")
	})
}

func TestImageThatVanishesUnderALiveServerEndsItsContainer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "true")
		e.Clock.Add(e11)
		e.SweepIdle(t.Context())
		if err := os.Remove(e.Workspaces.Path(string(c.ID))); err != nil {
			t.Fatal(err)
		}
		l := acquire(t, e, c.ID)
		_, err := l.Sandbox(t.Context())
		wantError(t, err, 404, container.CodeLost)
		l.Release(t.Context())
		_, err = e.Acquire(t.Context(), e.Caller, c.ID)
		wantError(t, err, 404, container.CodeLost)
	})
}
