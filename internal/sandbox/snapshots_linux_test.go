package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// fill writes a file of so many blocks.
func fill(blocks int) func(dir string) error {
	return func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "memory"), make([]byte, blocks*block), 0o600)
	}
}

func newSnapshots(t *testing.T, blocks int64) *Snapshots {
	t.Helper()
	return &Snapshots{Dir: filepath.Join(t.TempDir(), "snapshots"), Max: blocks * block}
}

// keepAt keeps a snapshot of one block that looks so many hours old.
func keepAt(t *testing.T, s *Snapshots, id string, hours int) {
	t.Helper()
	if err := s.Keep(id, "", block, fill(1)); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := os.Chtimes(s.path(id), at, at); err != nil {
		t.Fatal(err)
	}
}

func wantSnapshots(t *testing.T, s *Snapshots, want ...string) {
	t.Helper()
	if got, err := s.List(); err != nil || !slices.Equal(got, want) {
		t.Errorf("there are %v, %v, want %v", got, err, want)
	}
}

func TestSnapshotIsTakenOnceAndWithItsWorkspaceOnly(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 100)
	if _, err := s.Take("one", "as it was"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before there is one: %v", err)
	}
	keepAt(t, s, "one", 0)
	if err := errors.Join(s.Seal("one", "as it was"), s.Seal("none", "x")); err != nil {
		t.Fatal(err)
	}
	if s.Size("one") < block {
		t.Errorf("its size is %d", s.Size("one"))
	}
	dir, err := s.Take("one", "as it was")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "memory")); err != nil {
		t.Error(err)
	}
	if _, err := s.Take("one", "as it was"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a second time: %v", err)
	}
	// Nobody's removal reaches what is being continued.
	if err := s.Remove("one"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	for name, seal := range map[string]func() error{
		"changed":      func() error { return s.Seal("two", "as it is now") },
		"never sealed": func() error { return nil },
	} {
		keepAt(t, s, "two", 0)
		if err := seal(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take("two", "as it was"); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v, want ErrSnapshot", name, err)
		}
		wantSnapshots(t, s)
	}
}

func TestOldestSnapshotsMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 3)
	keepAt(t, s, "b", 2)
	keepAt(t, s, "a", 1)
	keepAt(t, s, "c", 3)
	keepAt(t, s, "b", 0) // its own place is free for it
	wantSnapshots(t, s, "a", "b", "c")
	if err := s.Keep("d", "", 2*block, fill(2)); err != nil {
		t.Fatal(err)
	}
	wantSnapshots(t, s, "b", "d")
	if err := s.Keep("e", "", 4*block, fill(1)); err == nil {
		t.Error("one that needs more than there is for all was begun")
	}
	wantSnapshots(t, s, "b", "d")
}

func TestNobodyLosesSnapshotsToAnOwnerWhoHasMore(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 6) // a block for each, and one for the name of its owner
	keep := func(id, owner string, blocks int) error {
		err := s.Keep(id, owner, int64(blocks)*block, fill(blocks-1))
		for hour, other := range []string{"small", "big1", "big2", "big3"} { // the small one is the oldest
			at := time.Unix(int64(hour)*3600, 0)
			if cerr := os.Chtimes(s.path(other), at, at); cerr != nil && !errors.Is(cerr, os.ErrNotExist) {
				t.Fatal(cerr)
			}
		}
		return err
	}
	for _, id := range []string{"big1", "big2", "small"} {
		owner := id[:3]
		if err := keep(id, owner, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := keep("big3", "big", 2); err != nil {
		t.Fatal(err)
	}
	wantSnapshots(t, s, "big2", "big3", "small")
	if err := keep("huge", "new", 5); !errors.Is(err, errShare) {
		t.Errorf("a newcomer that is larger than what anybody has: %v", err)
	}
	wantSnapshots(t, s, "big2", "big3", "small")
	if err := keep("other", "other", 2); err != nil {
		t.Fatal(err)
	}
	wantSnapshots(t, s, "big3", "other", "small")
}

func TestPromisedSpaceIsNotGivenTwice(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 3)
	err := s.Keep("slow", "", 2*block, func(dir string) error {
		if err := s.Keep("other", "", 2*block, fill(2)); err == nil {
			t.Error("both are written into the space of one")
		}
		return fill(2)(dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Keep("other", "", 2*block, fill(2)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	wantSnapshots(t, s, "other")
}

func TestSnapshotThatFailsOrIsTooLargeIsNotKept(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 2)
	broken := errors.New("broken")
	for name, write := range map[string]func(string) error{
		"broken":  func(dir string) error { return errors.Join(fill(1)(dir), broken) },
		"too big": fill(3),
	} {
		if err := s.Keep("one", "", block, write); err == nil {
			t.Errorf("%s: kept", name)
		}
		if left, err := os.ReadDir(s.Dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	if err := (&Snapshots{Dir: s.Dir}).Keep("one", "", 0, fill(1)); err == nil {
		t.Error("kept without any space")
	}
}

func TestSweepRemovesHalfUnsealedAndTakenSnapshots(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 9)
	if err := s.Sweep(); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	keepAt(t, s, "kept", 0)
	keepAt(t, s, "taken", 0)
	keepAt(t, s, "unsealed", 0)
	if err := errors.Join(s.Seal("kept", ""), s.Seal("taken", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take("taken", ""); err != nil {
		t.Fatal(err)
	}
	err := s.Keep("half", "", block, func(dir string) error { return os.Rename(dir, dir+"-of-a-crash") })
	if err == nil {
		t.Fatal("kept without a folder")
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("left %v, %v", left, err)
	}
}
