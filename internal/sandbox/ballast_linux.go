package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Ballast is a file that takes up room on the disk, to be removed when there is no other. What was acknowledged a moment ago
// and is still in memory then has a place to go to. Refusals and ended sandboxes see to it that little else takes that
// place; the database keeps room of its own (db.DB.RunDelete).
type Ballast struct {
	Path string
	Log  *slog.Logger // nil = discard

	mu sync.Mutex
}

const (
	// ballastMost is what is kept on a large disk, in bytes; on a small one it is ballastShare of it.
	ballastMost  = 256 << 20
	ballastShare = 100
)

// Trim looks how much room there is, which takes microseconds. Less than half of the ballast, and it is dropped; eight times
// of it, and it is taken on again. Failing is no error: the disk is as it would be without it.
func (b *Ballast) Trim(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.Path), &st); err != nil || st.Type == unix.TMPFS_MAGIC { // whose room is memory
		return
	}
	block := int64(st.Bsize) //nolint:unconvert // 32 bits wide on some machines
	size := min(int64(st.Blocks)*block/ballastShare, ballastMost)
	room := int64(st.Bavail) * block
	switch {
	case room < size/2:
		if err := os.Remove(b.Path); err == nil {
			log.WarnContext(ctx, "the disk has no room: ballast dropped", "bytes", size)
		} else if !errors.Is(err, os.ErrNotExist) {
			log.ErrorContext(ctx, "drop ballast", "error", err)
		}
	case room > 8*size:
		if err := b.load(size); err != nil {
			log.ErrorContext(ctx, "take on ballast", "error", err)
		}
	}
}

func (b *Ballast) load(size int64) error {
	if _, err := os.Lstat(b.Path); err == nil {
		return nil
	}
	// Under its name it is whole: a process that is killed here leaves no ballast that is none.
	making := b.Path + ".new"
	f, err := os.OpenFile(making, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil // an empty file: a file system that cannot promise room, and nothing to try again
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(making, b.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(making))
	}
	return nil
}
