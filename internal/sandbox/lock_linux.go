package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is the answer while another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// LockFile takes an exclusive lock on a file, which it makes if needed, until the result is closed or the process ends.
// ErrLocked if it is taken. Programs started meanwhile do not inherit it.
func LockFile(path string) (io.Closer, error) {
	f, err := lockSlot(path)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// dyingWait is how long a lock may outlive the server that had it. What it began to start when it was killed has copies of its
// descriptors until it executes, and a busy host takes its time for that.
const dyingWait = 5 * time.Second

// LockFileOfDying is LockFile that gives a holder who was killed the time to let go.
func LockFileOfDying(ctx context.Context, path string) (lock io.Closer, err error) {
	return lockWithin(ctx, path, dyingWait)
}

func lockWithin(ctx context.Context, path string, wait time.Duration) (lock io.Closer, err error) {
	held := fmt.Errorf("%s: %w", path, ErrLocked)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, held)
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		l, err := LockFile(path)
		if errors.Is(err, ErrLocked) {
			return false, nil
		}
		lock = l
		return err == nil, err
	})
	return lock, err
}

// DiskUsed is the share of the file system of dir that is in use, 0 to 1, as df shows it: of what is used and what is still to
// be had. What the file system keeps back for others is neither.
func DiskUsed(dir string) (float64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return shareUsed(st.Blocks, st.Bfree, st.Bavail), nil
}

// shareUsed takes the three counts of a statfs in blocks.
func shareUsed(all, free, available uint64) float64 {
	used := float64(all - free)
	if used == 0 {
		return 0
	}
	return used / (used + float64(available))
}
