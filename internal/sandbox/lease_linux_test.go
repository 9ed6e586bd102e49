package sandbox

import (
	"errors"
	"testing"
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
