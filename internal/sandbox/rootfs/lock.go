package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock waits for the store's lock: one build, import or removal at a time, across processes.
func (s *Store) lock() (release func(), err error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make root file system folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock root file system folder: %w", err)
	}
	return flock(f, syscall.LOCK_EX)
}

// lockManifest takes the lock that a running sandbox holds shared and a removal holds alone; it never waits.
func lockManifest(path string, exclusive bool) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	return flock(f, how|syscall.LOCK_NB)
}

// flock locks an open file and owns it from then on.
func flock(f *os.File, how int) (release func(), err error) {
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return func() {
			// A child of another goroutine that has not executed its program yet may hold a copy of the descriptor.
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
			_ = f.Close() // only read or empty: nothing can be lost at close
		}, nil
	}
	_ = f.Close() // the lock's error is the one to tell
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrInUse
	}
	return nil, fmt.Errorf("flock %s: %w", f.Name(), err)
}
