package container_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// unsaved is a container whose last changes the disk has not taken; from then on it takes everything.
func unsaved(t *testing.T, e *containertest.Env) container.ID {
	t.Helper()
	id := create(t, e, container.CreateParams{}).ID
	e.SyncWith(func(context.Context, *sandbox.Workspace) error { return errors.New("no space left on device") })
	e.Sh(t, id, "echo kept > f")
	e.SweepIdle(t.Context())
	e.SyncWith(nil)
	return id
}

func exec(t *testing.T, e *containertest.Env, id container.ID) error {
	t.Helper()
	_, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil)
	return err
}

// Restarting the server is what an operator does after the disk was full.
func TestWordOfUnsavedFilesOutlivesTheServer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := unsaved(t, e)
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = e.Restart(t)
		wantError(t, exec(t, e, id), 500, container.CodeUnsaved)
		if err := exec(t, e, id); err != nil {
			t.Errorf("told twice: %v", err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := exec(t, e.Restart(t), id); err != nil {
			t.Errorf("told again after the next start: %v", err)
		}
	})
}

// A copy has the holes of its original, and nobody who uses it would be told.
func TestForkOfUnsavedFilesIsRefusedOnce(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := unsaved(t, e)
		_, err := e.Fork(t.Context(), e.Caller, id)
		wantError(t, err, 500, container.CodeUnsaved)
		if err := exec(t, e, fork(t, e, id).ID); err != nil {
			t.Error(err)
		}
	})
}

func TestNobodyIsLeftToTellOfAnExpiredContainer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := create(t, e, container.CreateParams{}).ID
		e.Sh(t, id, "true")
		e.LoseNote(id, errors.New("no space left on device"))
		e.Clock.Add(2 * time.Hour)
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := e.Entries(); n != 0 {
			t.Errorf("%d entries are kept for nothing", n)
		}
	})
}

// A sandbox that hostile code has brought to a standstill must not make its container useless for good.
func TestSandboxThatDoesNotThawIsReplaced(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		d := &stickyDriver{Driver: e.Driver}
		e.Driver = d
		id := create(t, e, container.CreateParams{}).ID
		e.Sh(t, id, "echo kept > f")
		e.Clock.Add(time.Minute)
		e.SweepIdle(t.Context())
		d.mu.Lock()
		d.cold = true
		d.mu.Unlock()
		if out, _ := e.Sh(t, id, "cat f"); out != "kept\n" {
			t.Errorf("the next command reads %q", out)
		}
	})
}

// A wrong name of the bucket, or a proxy that knows nothing, answers for every blob that it does not exist.
func TestStoreThatKnowsNoBlobAtAllLosesNone(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo kept > f")
		rest(t, e, id)
		right := e.Blobs
		server := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(server.Close)
		wrong, err := blob.Open(t.Context(), "s3://bucket?region=us-east-1&anonymous=true&use_path_style=true&endpoint="+server.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = wrong.Close() })
		e.Blobs = wrong
		wantError(t, exec(t, e, id), 500, "")
		e.Blobs = right
		if out, _ := e.Sh(t, id, "cat f"); out != "kept\n" {
			t.Errorf("the next use reads %q", out)
		}
	})
}
