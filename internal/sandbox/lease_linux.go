package sandbox

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RangeSize is how many host ids one sandbox gets.
const RangeSize = 1 << 16

const (
	defaultLeaseDir = "/run/airlock/ids"
	// The ids from here to 2^31 belong to nobody: below are the ranges of useradd and systemd, above negative numbers.
	defaultFirstUID = 0x7000_0000
	defaultRanges   = 4096
)

// Ranges leases host id ranges. All servers of a host share one folder of slot files; a slot is taken by a lock that the
// kernel lets go when the process dies, so no crash can lose a range and no sweep is needed.
type Ranges struct {
	dir   string
	first uint32
	count int
}

// IDRange is a leased range.
type IDRange struct {
	// First is the host id of the sandbox's id 0.
	First uint32
	slot  io.Closer
}

// NewRanges prepares the folder of the slots.
func NewRanges(host Host) (*Ranges, error) {
	r := &Ranges{dir: host.LeaseDir, first: host.FirstUID, count: host.Ranges}
	if r.dir == "" {
		r.dir = defaultLeaseDir
	}
	if r.first == 0 {
		r.first = defaultFirstUID
	}
	if r.count == 0 {
		r.count = defaultRanges
	}
	if r.count < 0 || r.first < RangeSize || uint64(r.first)+uint64(r.count)*RangeSize > 1<<32-1 {
		return nil, fmt.Errorf("%d id ranges from %d on do not fit", r.count, r.first)
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("id range folder: %w", err)
	}
	return r, nil
}

// Lease takes a free range; ErrCapacity if there is none. It starts at a random slot so that servers rarely meet and a
// range is rarely used twice in a row.
func (r *Ranges) Lease() (*IDRange, error) {
	for i, start := 0, rand.IntN(r.count); i < r.count; i++ { //nolint:gosec // where the search begins is no secret
		n := (start + i) % r.count
		f, err := lockSlot(filepath.Join(r.dir, fmt.Sprintf("%04d", n)))
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lease id range: %w: %w", ErrCapacity, err)
		}
		return &IDRange{First: r.first + uint32(n)*RangeSize, slot: f}, nil
	}
	return nil, fmt.Errorf("lease id range: %w: all %d are taken", ErrCapacity, r.count)
}

// Release gives the range back. Repeatable.
func (l *IDRange) Release() {
	_ = l.slot.Close() // nothing was written; a second close says so and means no harm
}

// slot is a locked file.
type slot struct{ *os.File }

// Close gives the lock back at once. Closing alone would not: a child of another goroutine that has not executed its
// program yet holds a copy of the descriptor.
func (s slot) Close() error {
	err := unix.Flock(int(s.Fd()), unix.LOCK_UN)
	return errors.Join(s.File.Close(), err)
}

func lockSlot(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // the lock error is the one that counts
		return nil, err
	}
	return slot{f}, nil
}
