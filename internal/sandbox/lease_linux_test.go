package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func ranges(t *testing.T, dir string, n int) *Ranges {
	t.Helper()
	r, err := NewRanges(Host{LeaseDir: dir, Ranges: n})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLeasesNeverOverlapBetweenServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := ranges(t, dir, 8), ranges(t, dir, 8)
	seen := map[uint32]bool{}
	for i := range 8 {
		l, err := []*Ranges{a, b}[i%2].Lease()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
		if seen[l.First] || (l.First-defaultFirstUID)%RangeSize != 0 {
			t.Errorf("range %d is leased twice or not aligned", l.First)
		}
		seen[l.First] = true
	}
	if _, err := a.Lease(); !errors.Is(err, ErrCapacity) {
		t.Errorf("got %v, want ErrCapacity", err)
	}
}

func TestReleasedRangeIsLeasedAgain(t *testing.T) {
	t.Parallel()
	r := ranges(t, t.TempDir(), 1)
	l, err := r.Lease()
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	l.Release()
	again, err := r.Lease()
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

func TestRangesBeyondTheLastIDAreRefused(t *testing.T) {
	t.Parallel()
	for _, h := range []Host{{FirstUID: 1 << 31, Ranges: 1 << 15}, {FirstUID: 1000, Ranges: 1}, {Ranges: -1}} {
		h.LeaseDir = t.TempDir()
		if _, err := NewRanges(h); err == nil {
			t.Errorf("%+v was accepted", h)
		}
	}
}

// A child between fork and exec has copies of all descriptors; it must not keep a range or a data folder taken.
func TestLockEndsAtReleaseAlthoughACopyOfTheDescriptorLives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "slot")
	first, err := LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dup := copyOfDescriptor(t, path)
	defer dup.Close()
	if _, err := LockFile(path); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is held: got %v, want ErrLocked", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := LockFile(path)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// The image of a workspace that was packed, looked at or detached must be free at once, also while a child of another
// goroutine has not executed its program yet; one that is attached stays locked by its device.
func TestImageIsFreeAlthoughACopyOfTheDescriptorLives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := openImage(path)
	if err != nil {
		t.Fatal(err)
	}
	dup := copyOfDescriptor(t, path)
	if _, err := openImage(path); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is held: got %v, want ErrLocked", err)
	}
	if err := image.Close(); err != nil {
		t.Fatal(err)
	}
	if image, err = openImage(path); err != nil {
		t.Fatalf("after the close: %v", err)
	}
	if err := dup.Close(); err != nil {
		t.Fatal(err)
	}
	device := copyOfDescriptor(t, path)
	defer device.Close()
	if err := image.File.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := openImage(path); !errors.Is(err, ErrLocked) {
		t.Errorf("while a device has it: got %v, want ErrLocked", err)
	}
}

// copyOfDescriptor finds the descriptor of an open file of this process and copies it, as fork does.
func copyOfDescriptor(t *testing.T, path string) *os.File {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || target != path {
			continue
		}
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "copy")
	}
	t.Fatalf("%s is not open", path)
	return nil
}

// A server is started again at once after a kill; a child of the dead one that has not executed yet still has its lock.
func TestLockOfADyingServerIsWaitedForAndThatOfALivingOneIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	dying, err := LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := lockWithin(t.Context(), path, 30*time.Millisecond); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is held: %v", err)
	}
	if waited := time.Since(began); waited < 30*time.Millisecond {
		t.Errorf("refused after %v", waited)
	}
	released := make(chan error)
	go func() { released <- dying.Close() }()
	next, err := lockWithin(t.Context(), path, time.Minute)
	if err := errors.Join(err, <-released); err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
