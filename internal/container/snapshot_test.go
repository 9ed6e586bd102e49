package container_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// kept is a container on gVisor with x = 1 in its interpreter, and a file that says so.
func kept(t *testing.T) (*containertest.Env, container.ID) {
	t.Helper()
	e := containertest.NewOn(t, dbtest.SQLite(t), "gvisor")
	id := lasting(t, e)
	if out, lost := cellIn(t, e, id, "x = 1; open('file', 'w').write('x = 1')\nprint('made')"); out != "made\n" || lost {
		t.Fatalf("the first cell: %q, lost %t", out, lost)
	}
	return e, id
}

// cellIn runs a cell in a turn of its own, and tells what codeexec would tell the model: that variables were lost before.
func cellIn(t *testing.T, e *containertest.Env, id container.ID, code string) (stdout string, lost bool) {
	t.Helper()
	l := acquire(t, e, id)
	defer l.Release(t.Context())
	m, err := l.Metered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	res, err := m.Cell(t.Context(), sandbox.Cell{Code: code, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("stderr: %s", errs.String())
	}
	lost = res.Started && l.REPLLost()
	if err := l.NoteREPL(t.Context(), res.Holds); err != nil {
		t.Fatal(err)
	}
	return out.String(), lost
}

const isThere = "print('x' in globals() and x, open('file').read())"

// wantKept checks that the interpreter goes on.
func wantKept(t *testing.T, e *containertest.Env, id container.ID) {
	t.Helper()
	if out, lost := cellIn(t, e, id, isThere); out != "1 x = 1\n" || lost {
		t.Errorf("the next cell prints %q, told of a loss: %t", out, lost)
	}
	wantOnDisk(t, e, 0) // it was continued, and will not be again
}

// wantLost checks that the interpreter is new, that this is told once, and that the files are there.
func wantLost(t *testing.T, e *containertest.Env, id container.ID) {
	t.Helper()
	if out, lost := cellIn(t, e, id, isThere); out != "False x = 1\n" || !lost {
		t.Errorf("the next cell prints %q, told of a loss: %t", out, lost)
	}
	if _, lost := cellIn(t, e, id, "0"); lost {
		t.Error("the loss is told twice")
	}
	wantOnDisk(t, e, 0)
}

// wantOnDisk counts everything in the folder of snapshots, half-made ones included.
func wantOnDisk(t *testing.T, e *containertest.Env, n int) {
	t.Helper()
	left, err := os.ReadDir(e.Snapshots.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(left) != n {
		t.Errorf("the folder of snapshots has %v, %v, want %d", left, err, n)
	}
}

// putAway lets a container rest until its sandbox is destroyed.
func putAway(t *testing.T, e *containertest.Env) {
	t.Helper()
	e.Clock.Add(e11)
	e.SweepIdle(t.Context())
	if e.LiveCount() != 0 {
		t.Fatal("the sandbox lives")
	}
}

func TestVariablesOutliveARestartOfTheServer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *containertest.Env){
		"while it is put away": putAway,
		"while it is frozen": func(t *testing.T, e *containertest.Env) {
			t.Helper()
			e.Clock.Add(31 * time.Second)
			e.SweepIdle(t.Context())
		},
		"while it runs": func(*testing.T, *containertest.Env) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, id := kept(t)
			end(t, e)
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantOnDisk(t, e, 1)
			next := e.Restart(t)
			if _, err := next.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantKept(t, next, id)
		})
	}
}

func TestVariablesOfASandboxThatMakesRoomAreKept(t *testing.T) {
	t.Parallel()
	e, id := kept(t)
	e.Admission = &admission.Queue{
		Memory: func() (total, free int64, err error) { return 8 << 30, 8 << 30, nil }, Reserve: 1, Share: 5 << 30, Wait: time.Minute,
	}
	other := create(t, e, container.CreateParams{})
	e.Sh(t, other.ID, "true")
	if e.LiveCount() != 1 {
		t.Fatalf("%d sandboxes live", e.LiveCount())
	}
	wantKept(t, e, id)
}

// Each of these makes a snapshot unusable, or impossible: the container starts cold, the model is told, the files are there.
func TestVariablesThatCannotBeContinuedAreToldLost(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*testing.T, *containertest.Env, container.ID) *containertest.Env{
		"a byte of the memory has changed": func(t *testing.T, e *containertest.Env, id container.ID) *containertest.Env {
			putAway(t, e)
			flipByte(t, filepath.Join(e.Snapshots.Dir, string(id), "image", "pages.img"))
			return e
		},
		"the workspace has changed": func(t *testing.T, e *containertest.Env, id container.ID) *containertest.Env {
			putAway(t, e)
			if err := os.Chtimes(e.Workspaces.Path(string(id)), time.Time{}, time.Now()); err != nil {
				t.Fatal(err)
			}
			return e
		},
		"another limit holds": func(t *testing.T, e *containertest.Env, _ container.ID) *containertest.Env {
			putAway(t, e)
			e.Limits.MemoryBytes *= 2
			return e
		},
		"the workspace was packed": func(t *testing.T, e *containertest.Env, id container.ID) *containertest.Env {
			rest(t, e, id)
			wantOnDisk(t, e, 0)
			return e
		},
		"the disk fills up before": func(t *testing.T, e *containertest.Env, _ container.ID) *containertest.Env {
			e.AdmitSnapshot = func(context.Context) error { return errors.New("the disk is 86 % full") }
			putAway(t, e)
			return e
		},
		"the disk fills up after": func(t *testing.T, e *containertest.Env, _ container.ID) *containertest.Env {
			putAway(t, e)
			e.AdmitSnapshot = func(context.Context) error { return errors.New("the disk is 86 % full") }
			if err := e.SweepSnapshots(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantOnDisk(t, e, 0)
			return e
		},
		"there is no space for it": func(t *testing.T, e *containertest.Env, _ container.ID) *containertest.Env {
			e.Snapshots.Max = 0
			putAway(t, e)
			return e
		},
		"there is too little time for it": func(t *testing.T, e *containertest.Env, _ container.ID) *containertest.Env {
			e.KeepLimit = time.Nanosecond
			putAway(t, e)
			return e
		},
		"runsc does not answer": func(t *testing.T, e *containertest.Env, _ container.ID) *containertest.Env {
			e.KeepLimit = time.Millisecond // it is at work by then, or will be
			putAway(t, e)
			return e
		},
		"the server was killed while it was written": func(t *testing.T, e *containertest.Env, id container.ID) *containertest.Env {
			putAway(t, e)
			snapshot := filepath.Join(e.Snapshots.Dir, string(id))
			if err := os.Rename(snapshot, filepath.Join(e.Snapshots.Dir, ".new-"+string(id))); err != nil {
				t.Fatal(err)
			}
			return restarted(t, e)
		},
		"the server was killed while it was continued": func(t *testing.T, e *containertest.Env, id container.ID) *containertest.Env {
			putAway(t, e)
			stamp, err := e.Workspaces.Stamp(string(id))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Snapshots.Take(string(id), stamp); err != nil {
				t.Fatal(err)
			}
			return restarted(t, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, id := kept(t)
			wantLost(t, spoil(t, e, id), id)
		})
	}
}

// restarted is a service after a start that found nothing but what is on disk.
func restarted(t *testing.T, e *containertest.Env) *containertest.Env {
	t.Helper()
	next := e.Restart(t)
	if _, err := next.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOnDisk(t, next, 0)
	return next
}

func flipByte(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotGoesWithItsContainer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *containertest.Env, container.ID){
		"deleted": func(t *testing.T, e *containertest.Env, id container.ID) {
			if err := e.Delete(t.Context(), e.Caller, id); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(t *testing.T, e *containertest.Env, _ container.ID) {
			e.Clock.Add(48 * time.Hour)
			if err := e.SweepExpired(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"of a row that never was": func(t *testing.T, e *containertest.Env, id container.ID) {
			from := filepath.Join(e.Snapshots.Dir, string(id))
			if err := os.Rename(from, filepath.Join(e.Snapshots.Dir, "container_nobody")); err != nil {
				t.Fatal(err)
			}
			restarted(t, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, id := kept(t)
			putAway(t, e)
			wantOnDisk(t, e, 1)
			end(t, e, id)
			wantOnDisk(t, e, 0)
		})
	}
}

// A fork has the files of its source and none of its variables, and the source keeps its own.
func TestForkLeavesTheVariablesToItsSource(t *testing.T) {
	t.Parallel()
	e, id := kept(t)
	putAway(t, e)
	side := fork(t, e, id)
	wantOnDisk(t, e, 1)
	wantKept(t, e, id)
	wantLost(t, e, side.ID)
}

// No variables, no snapshot: writing one would only cost.
func TestSandboxWithoutVariablesIsNotKept(t *testing.T) {
	t.Parallel()
	e := containertest.NewOn(t, dbtest.SQLite(t), "gvisor")
	id := lasting(t, e)
	e.Sh(t, id, "true")
	putAway(t, e)
	wantOnDisk(t, e, 0)
	if _, lost := cellIn(t, e, id, "import os; os._exit(3)"); lost {
		t.Error("told of a loss without variables")
	}
	putAway(t, e)
	wantOnDisk(t, e, 0)
	if _, lost := cellIn(t, e, id, "0"); lost {
		t.Error("the guest has told it, and it is told again")
	}
}
