package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		if err := ws.Detach(t.Context()); err != nil && t.Context().Err() == nil {
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

func TestTimings(t *testing.T) {
	w := &Workspaces{Dir: t.TempDir()}
	l := DefaultLimits()
	for i := range 5 {
		t0 := time.Now()
		ws, err := w.Create(t.Context(), fmt.Sprint("w", i), l)
		if err != nil {
			t.Fatal(err)
		}
		t1 := time.Now()
		if err := ws.Attach(t.Context()); err != nil {
			t.Fatal(err)
		}
		t2 := time.Now()
		write(t, ws, "workspace/a", bytes.Repeat([]byte("x"), 1<<20))
		t3 := time.Now()
		ws.Sync(t.Context())
		t4 := time.Now()
		if err := ws.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		t5 := time.Now()
		if err := ws.Attach(t.Context()); err != nil {
			t.Fatal(err)
		}
		t6 := time.Now()
		if err := ws.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		unix.Stat(filepath.Join(w.Dir, fmt.Sprint("w", i, ".img")), &st)
		t.Log("create", t1.Sub(t0), "attach", t2.Sub(t1), "sync", t4.Sub(t3), "detach", t5.Sub(t4), "attach", t6.Sub(t5), "blocks KiB", st.Blocks/2)
	}
}
