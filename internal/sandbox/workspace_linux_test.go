package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

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
