package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func smallLimits() Limits {
	l := DefaultLimits()
	l.DiskBytes, l.Inodes = 64<<20, 2000
	return l
}

func attached(t *testing.T, w *Workspaces, id string, l Limits) *Workspace {
	t.Helper()
	ws, err := w.Create(t.Context(), id, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Detach(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return ws
}

func write(t *testing.T, ws *Workspace, name string, data []byte) error {
	t.Helper()
	fd, err := unix.Openat(int(ws.Mount().Fd()), name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func read(t *testing.T, ws *Workspace, name string) []byte {
	t.Helper()
	fd, err := unix.Openat(int(ws.Mount().Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWorkspaceKeepsItsBytesOverDetach(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "keep", smallLimits())
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	if err := write(t, ws, "workspace/data", data); err != nil {
		t.Fatal(err)
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := w.Open("keep")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Detach(t.Context()) }()
	if sha256.Sum256(read(t, again, "workspace/data")) != sha256.Sum256(data) {
		t.Error("the file changed")
	}
}

func TestWorkspaceFoldersBelongToTheCode(t *testing.T) {
	t.Parallel()
	ws := attached(t, &Workspaces{Dir: t.TempDir()}, "owners", smallLimits())
	for path, want := range map[string]string{
		"workspace": "1000 40755", "tmp": "0 41777", "files": "0 40755", "files/input": "0 40755", "files/output": "1000 40755",
	} {
		var st unix.Stat_t
		if err := unix.Fstatat(int(ws.Mount().Fd()), path, &st, 0); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %o", st.Uid, st.Mode); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func TestWorkspaceEndsAtItsSize(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "full", smallLimits())
	if err := write(t, ws, "workspace/big", make([]byte, 65<<20)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(w.Path("full"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 65<<20 {
		t.Errorf("the image grew to %d bytes", st.Blocks*512)
	}
}

func TestWorkspaceEndsAtItsInodes(t *testing.T) {
	t.Parallel()
	l := smallLimits()
	l.Inodes = 256
	ws := attached(t, &Workspaces{Dir: t.TempDir()}, "many", l)
	for i := range 2000 {
		if err := write(t, ws, fmt.Sprint("workspace/", i), nil); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("2000 files fit into 256 inodes")
}

func TestWorkspaceIsAttachedOnce(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "once", smallLimits())
	if err := ws.Attach(t.Context()); !errors.Is(err, ErrLocked) {
		t.Errorf("second attach: %v, want ErrLocked", err)
	}
	other, err := (&Workspaces{Dir: w.Dir}).Open("once")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openImage(other.path); !errors.Is(err, ErrLocked) {
		t.Errorf("another server's attach: %v, want ErrLocked", err)
	}
	if err := w.Remove("once"); !errors.Is(err, ErrLocked) {
		t.Errorf("remove while attached: %v, want ErrLocked", err)
	}
}

func TestRemovedWorkspaceIsGone(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	for _, id := range []string{"b", "a"} {
		if _, err := w.Create(t.Context(), id, smallLimits()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Create(t.Context(), "a", smallLimits()); !errors.Is(err, os.ErrExist) {
		t.Errorf("create of an existing id: %v, want os.ErrExist", err)
	}
	ids, err := w.List()
	if err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("listed %v, %v", ids, err)
	}
	if err := errors.Join(w.Remove("a"), w.Remove("a")); err != nil {
		t.Fatal(err)
	}
	if w.Exists("a") || !w.Exists("b") {
		t.Error("the wrong image is gone")
	}
	if _, err := w.Open("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v, want os.ErrNotExist", err)
	}
}

func TestWorkspaceThatWasNotDetachedIsRepaired(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "crash", smallLimits())
	if err := write(t, ws, "workspace/file", []byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := ws.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What the disk would hold if the host lost power now.
	snapshot, err := os.ReadFile(w.Path("crash"))
	if err != nil {
		t.Fatal(err)
	}
	if snapshot[stateOffset]&stateClean != 0 {
		t.Fatal("an attached image says that it is clean, so this test proves nothing")
	}
	if err := os.WriteFile(w.Path("after"), snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := w.Open("after")
	if err != nil {
		t.Fatal(err)
	}
	if err := after.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := string(read(t, after, "workspace/file")); got != "content" {
		t.Errorf("got %q", got)
	}
	if err := after.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBlankWorkspaceTakesLittleDisk(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	if _, err := w.Create(t.Context(), "blank", DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(w.Path("blank"), &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; st.Size != DefaultLimits().DiskBytes || used > 512<<10 {
		t.Errorf("an image of %d bytes takes %d on disk", st.Size, used)
	}
}

func TestDeletedFilesGiveTheirDiskBack(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "trim", smallLimits())
	if err := write(t, ws, "workspace/big", bytes.Repeat([]byte("x"), 16<<20)); err != nil {
		t.Fatal(err)
	}
	if err := ws.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unlinkat(int(ws.Mount().Fd()), "workspace/big", 0); err != nil {
		t.Fatal(err)
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(w.Path("trim"), &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; used > 2<<20 {
		t.Errorf("%d bytes are still used", used)
	}
}

func TestSweepOfWorkspacesTakesWhatIsHalfMadeAndNoImage(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: filepath.Join(t.TempDir(), "work[1]*")}
	if err := w.Sweep(); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := w.Create(t.Context(), "kept", smallLimits()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := skeleton(w.Dir); err != nil { // as a server leaves it that dies while it formats
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.Dir, newPrefix+"123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Sweep(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadDir(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	names := func(entries []os.DirEntry) (out []string) {
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	if d := cmp.Diff(names(before), names(after)); d != "" {
		t.Errorf("folder (-before +after):\n%s", d)
	}
}

// broken is an image with two files that was detached cleanly, after these commands of debugfs.
func broken(t *testing.T, commands ...string) *Workspace {
	t.Helper()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "broken", smallLimits())
	for _, name := range []string{"workspace/file", "workspace/two"} {
		if err := write(t, ws, name, []byte("content")); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		cmd := exec.Command("debugfs", "-w", "-R", command, w.Path("broken"))
		cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("debugfs %s: %v: %s", command, err, out)
		}
	}
	return ws
}

func overwrite(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// unclean makes a file system ask for a check.
const unclean = "ssv state 0"

func TestWorkspaceIsMended(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string][]string{
		"where a person would be asked": {"sif /workspace/two flags 0xffffffff", unclean},
		"although it says it is clean":  {"set_bg 0 checksum 0"},
	} {
		ws := broken(t, commands...)
		if err := ws.Attach(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := string(read(t, ws, "workspace/file")); got != "content" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestWorkspaceBeyondRepairIsDamaged(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string][]string{
		"home is lost":            {"clri /workspace", unclean},
		"a folder is lost":        {"clri /files/input", unclean},
		"everything is lost":      {"clri <2>", unclean},
		"the super block is lost": nil,
	} {
		ws := broken(t, commands...)
		if commands == nil {
			overwrite(t, ws.path, 1024, make([]byte, 1024))
		}
		if err := ws.Attach(t.Context()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", name, err)
		}
		if ws.Attached() {
			t.Errorf("%s: it is attached", name)
		}
	}
}

// The disk hangs: who waits for it may stop to, and nothing is left half done.
func TestDetachThatHangsIsLeftBehindAndFinishedLater(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "hang", smallLimits())
	ws.busy.Lock() // as a sync that does not come back
	gone := errors.New("nobody waits any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := ws.Detach(ctx); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if err := w.Remove("hang"); !errors.Is(err, ErrLocked) {
		t.Errorf("removed under it: %v", err)
	}
	ws.busy.Unlock()
	if err := ws.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ws.Attached() {
		t.Error("still attached")
	}
	if err := ws.Attach(t.Context()); err != nil {
		t.Error(err)
	}
}

// After an error the kernel makes a file system read-only, and syncing one that is read-only succeeds whatever was lost.
func TestWorkspaceThatBecameReadOnlyIsNotCalledSaved(t *testing.T) {
	t.Parallel()
	ws := attached(t, &Workspaces{Dir: t.TempDir()}, "w", smallLimits())
	if err := unix.MountSetattr(int(ws.Mount().Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		t.Fatal(err)
	}
	if err := ws.Sync(t.Context()); !errors.Is(err, ErrUnsaved) {
		t.Errorf("sync: %v", err)
	}
	// Whoever stops waiting leaves the result to the next.
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(ws.Detach(impatient), ws.Detach(t.Context())); !errors.Is(err, ErrUnsaved) {
		t.Errorf("detach: %v", err)
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Errorf("told twice: %v", err)
	}
}
