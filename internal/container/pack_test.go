package container_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// treeHash prints one hash of everything about the files of the code.
const treeHash = `
import hashlib, os
h = hashlib.sha256()
for root in ('/workspace', '/files', '/tmp'):
    for d, dirs, files in os.walk(root):
        dirs.sort()
        for p in [d] + [os.path.join(d, f) for f in sorted(files + [n for n in dirs if os.path.islink(os.path.join(d, n))])]:
            st = os.lstat(p)
            h.update(repr((os.fsencode(p), st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_nlink)).encode())
            if os.path.islink(p):
                h.update(os.readlink(os.fsencode(p)))
            elif os.path.isfile(p):
                h.update(repr(sorted((n, os.getxattr(p, n)) for n in os.listxattr(p))).encode())
                h.update(open(p, 'rb').read())
print(h.hexdigest())
`

// someTree makes files of all kinds, and something new with each call.
const someTree = `
import os, sys
n = int(sys.argv[1])
os.makedirs(f'd{n}/deep/er', exist_ok=True)
open(f'd{n}/deep/data', 'wb').write(os.urandom(50_000))
open(b'name \xff\n' + str(n).encode(), 'w').write('odd name')
with open(f'sparse{n}', 'wb') as f:
    f.seek(500_000); f.write(b'end')
os.symlink('/etc/passwd', f'link{n}'); os.symlink('deep', f'd{n}/folder')
os.link(f'd{n}/deep/data', f'hard{n}')
os.chmod(f'd{n}/deep', 0o500 | n % 8); os.chmod(f'sparse{n}', 0o4711)
os.utime(f'sparse{n}', ns=(1, 1_234_567_890_123_456_789 + n))
try: os.setxattr(f'sparse{n}', 'user.mark', str(n).encode())
except OSError: pass
if n: os.remove(f'hard{n-1}')
`

func python(t *testing.T, e *containertest.Env, id container.ID, code string, args ...string) string {
	t.Helper()
	var out strings.Builder
	res, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Argv: append([]string{"python3", "-c", code}, args...)}, &out, &out)
	if err != nil || res.Code != 0 {
		t.Fatalf("code %d, %v: %s", res.Code, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// lasting is a container that lives for a day after its last use.
func lasting(t *testing.T, e *containertest.Env) container.ID {
	t.Helper()
	return create(t, e, container.CreateParams{ExpiresAfter: 24 * time.Hour}).ID
}

// rest lets a container sleep until its sandbox is destroyed and its workspace packed.
func rest(t *testing.T, e *containertest.Env, id container.ID) {
	t.Helper()
	e.Clock.Add(31 * time.Second)
	e.SweepIdle(t.Context()) // frozen
	e.Clock.Add(10 * time.Minute)
	e.SweepIdle(t.Context()) // destroyed
	if e.LiveCount() != 0 {
		t.Fatal("the sandbox lives")
	}
	e.Clock.Add(time.Hour)
	if err := e.SweepPacks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Workspaces.Exists(string(id)) || len(packs(t, e)) != 1 {
		t.Fatalf("image on disk: %v, packed: %v", e.Workspaces.Exists(string(id)), packs(t, e))
	}
}

// packs lists the packed workspaces of the store.
func packs(t *testing.T, e *containertest.Env) []blob.Entry {
	t.Helper()
	var all []blob.Entry
	err := e.Blobs.List(t.Context(), "workspaces/", func(b blob.Entry) error {
		all = append(all, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPackedWorkspacesCountAsWhatTheirAppKeeps(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "head -c 1000000 /dev/urandom > f")
		size := func() int64 {
			sizes, err := container.SizeByApp(t.Context(), e.DB, e.Workspaces, e.Snapshots)
			if err != nil || sizes[e.Other.AppID] != 0 {
				t.Fatal(sizes, err)
			}
			return sizes[e.Caller.AppID]
		}
		rest(t, e, id)
		if packed := packs(t, e)[0].Size; packed < 1_000_000 || size() != packed {
			t.Errorf("a blob of %d bytes counts %d", packed, size())
		}
		e.Sh(t, id, "true")
		if unpacked := e.Workspaces.Size(string(id)); size() != unpacked {
			t.Errorf("an image of %d bytes counts %d", unpacked, size())
		}
	})
}

func TestCase74WorkspaceIsTheSameAfterTwentyRests(t *testing.T) {
	t.Parallel()
	for _, driver := range containertest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			e := containertest.NewOn(t, dbtest.SQLite(t), driver) // the store is not what this is about
			id := lasting(t, e)
			for n := range 20 {
				before := python(t, e, id, someTree+treeHash, fmt.Sprint(n))
				rest(t, e, id)
				if after := python(t, e, id, treeHash); after != before {
					t.Fatalf("rest %d: the tree was %s and is %s", n, before, after)
				}
				if n := len(packs(t, e)); n != 0 {
					t.Fatalf("%d packed workspaces beside the image", n)
				}
			}
		})
	}
}

func TestCase74WorkspaceIsTheSameAfterTwentyFreezes(t *testing.T) {
	t.Parallel()
	e := containertest.New(t, dbtest.SQLite(t)) // the store is not what this is about
	id := lasting(t, e)
	for n := range 20 {
		before := python(t, e, id, someTree+treeHash, fmt.Sprint(n))
		e.Clock.Add(31 * time.Second)
		e.SweepIdle(t.Context())
		if after := python(t, e, id, treeHash); after != before {
			t.Fatalf("freeze %d: the tree was %s and is %s", n, before, after)
		}
	}
}

// What a command wrote before its time limit ended it belongs to the workspace like everything else.
func TestCase74TimedOutCommandLosesNothingItWrote(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		const command = `trap '' TERM; head -c 3000000 /dev/urandom > data; sha256sum data > sum; sleep 100`
		res, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: command, Timeout: time.Second / 2}, nil, nil)
		if err != nil || !res.TimedOut {
			t.Fatalf("%+v, %v", res, err)
		}
		for range 2 {
			rest(t, e, id)
			if out, res := e.Sh(t, id, "sha256sum -c sum"); res.Code != 0 {
				t.Fatalf("after the rest: %s", out)
			}
		}
	})
}

var errCrash = errors.New("crash")

// A crash between any two steps of packing and unpacking leaves the workspace whole in one of its forms; the start
// removes the other.
func TestCrashWhilePackingLosesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range container.PackSteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env) {
				id := lasting(t, e)
				e.Sh(t, id, "echo kept > f")
				e.Clock.Add(11 * time.Minute)
				e.SweepIdle(t.Context())
				e.Clock.Add(time.Hour)
				e.CrashAt(func(at string) error {
					if at == step {
						return errCrash
					}
					return nil
				})
				err := e.SweepPacks(t.Context())
				if err == nil {
					_, err = e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil)
				}
				if !errors.Is(err, errCrash) {
					t.Fatalf("did not crash: %v", err)
				}
				next := e.Restart(t)
				if r, err := next.Recover(t.Context()); err != nil || r.Kept != 1 || r.Lost != 0 {
					t.Fatalf("recovered %+v, %v", r, err)
				}
				if err := next.SweepYoungBlobs(t.Context()); err != nil {
					t.Fatal(err)
				}
				if image, blobs := next.Workspaces.Exists(string(id)), len(packs(t, next)); image == (blobs == 1) || blobs > 1 {
					t.Errorf("after the start there is an image: %v, and %d packed", image, blobs)
				}
				if out, _ := next.Sh(t, id, "cat f"); out != "kept\n" {
					t.Errorf("the file says %q", out)
				}
				if half, _ := filepath.Glob(filepath.Join(e.Workspaces.Dir, ".new-*")); len(half) != 0 {
					t.Errorf("left behind: %v", half)
				}
			})
		})
	}
}

// The same without a start in between: the server goes on after an error at any step.
func TestPackingThatFailedIsDoneAgain(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo kept > f")
		for _, step := range container.PackSteps {
			failed := failOnce(e, step)
			for range 3 {
				e.Clock.Add(2 * time.Hour)
				e.SweepIdle(t.Context())
				_ = e.SweepPacks(t.Context()) // fails once
			}
			_, _ = e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil) // or this does
			if out, _ := e.Sh(t, id, "cat f"); out != "kept\n" || !failed.Load() {
				t.Errorf("%s: failed %v, the file says %q", step, failed.Load(), out)
			}
		}
	})
}

func TestPackedContainerIsOpenedByWhoeverSharesTheBlobs(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo here > f")
		rest(t, e, id)
		other := e.Neighbour(t)
		if out, _ := other.Sh(t, id, "cat f; echo there > f"); out != "here\n" {
			t.Fatalf("the neighbour reads %q", out)
		}
		_, err := e.Acquire(t.Context(), e.Caller, id)
		wantError(t, err, 529, "")
		rest(t, other, id)
		if out, _ := e.Sh(t, id, "cat f"); out != "there\n" {
			t.Errorf("back home: %q", out)
		}
	})
}

// A store of blobs that is not shared is no reason to call a workspace lost.
func TestPackedContainerOfAnotherStoreStaysWithItsHome(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo here > f")
		rest(t, e, id)
		other := e.Neighbour(t)
		var err error
		if other.Blobs, err = blob.Open(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		_, err = other.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil)
		wantError(t, err, 529, "")
		if out, _ := e.Sh(t, id, "cat f"); out != "here\n" {
			t.Errorf("at home: %q", out)
		}
		if err := other.Blobs.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPackedWorkspaceGoesWithItsContainer(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		deleted, expired := lasting(t, e), container.ID("")
		e.Sh(t, deleted, "echo > f")
		rest(t, e, deleted)
		if err := e.Delete(t.Context(), e.Caller, deleted); err != nil {
			t.Fatal(err)
		}
		if left := packs(t, e); len(left) != 0 {
			t.Errorf("after the deletion: %v", left)
		}
		expired = lasting(t, e)
		e.Sh(t, expired, "echo > f")
		rest(t, e, expired)
		e.Clock.Add(24 * time.Hour)
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := packs(t, e); len(left) != 0 {
			t.Errorf("after the expiry: %v", left)
		}
		_, err := e.Acquire(t.Context(), e.Caller, expired)
		wantError(t, err, 404, container.CodeExpired)
	})
}

func TestPackedWorkspaceThatIsGoneOrChangedIsALoss(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, e *containertest.Env, key string){
		"gone": func(t *testing.T, e *containertest.Env, key string) {
			if err := e.Blobs.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		},
		"another workspace": func(t *testing.T, e *containertest.Env, key string) {
			// Whole, and not what was packed: only the checksum in the row knows.
			ws, err := e.Workspaces.Create(t.Context(), "other", e.Limits)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := e.Workspaces.Pack(t.Context(), ws.ID, &b); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Blobs.Put(t.Context(), key, strings.NewReader(b.String())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env) {
				id := lasting(t, e)
				e.Sh(t, id, "echo > f")
				rest(t, e, id)
				spoil(t, e, packs(t, e)[0].Key)
				l := acquire(t, e, id)
				_, err := l.Sandbox(t.Context())
				wantError(t, err, 404, container.CodeLost)
				l.Release(t.Context())
				if e.Workspaces.Exists(string(id)) {
					t.Error("an image was made of it")
				}
			})
		})
	}
}

// One that lives to the maximum age is packed for its rest like every other, not for its age.
func TestContainerAtItsMaximumAgeIsNotPackedRightAfterAUse(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := create(t, e, container.CreateParams{ExpiresAfter: 30 * 24 * time.Hour}).ID
		e.Sh(t, id, "echo > f")
		e.Clock.Add(2 * time.Hour)
		e.Sh(t, id, "echo > f")
		e.Clock.Add(11 * time.Minute)
		e.SweepIdle(t.Context())
		if err := e.SweepPacks(t.Context()); err != nil || len(packs(t, e)) != 0 {
			t.Errorf("packed 11 minutes after its use, %v", err)
		}
		e.Clock.Add(time.Hour)
		if err := e.SweepPacks(t.Context()); err != nil || len(packs(t, e)) != 1 {
			t.Errorf("not packed after an hour, %v", err)
		}
	})
}

func TestContainerInUseOrYoungIsNotPacked(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo > f")
		for _, at := range []time.Duration{11 * time.Minute, 48 * time.Minute} { // 59 min
			e.Clock.Add(at)
			e.SweepIdle(t.Context())
			if err := e.SweepPacks(t.Context()); err != nil || len(packs(t, e)) != 0 {
				t.Fatalf("packed early, %v", err)
			}
		}
		l := acquire(t, e, id)
		e.Clock.Add(2 * time.Hour)
		if err := e.SweepPacks(t.Context()); err != nil || len(packs(t, e)) != 0 {
			t.Errorf("packed in use, %v", err)
		}
		l.Release(context.WithoutCancel(t.Context()))
		if _, err := os.Stat(e.Workspaces.Path(string(id))); err != nil {
			t.Error(err)
		}
	})
}
