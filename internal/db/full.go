package db

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall" //nolint:depguard // the names of errors; no call is made
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// full adds syscall.ENOSPC to the error of a database that has no room, so that it is told from others as that of a file
// is. PostgreSQL has a class of errors for it. SQLite has one code, but only for what it finds itself: where the kernel
// refused a part of its work, such as growing the shared index, it says "disk I/O error", and the disk must be asked.
func (d *DB) full(err error) error {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && pe.Code == "53100" { // disk_full
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	se, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		if why := tryWrite(d.folder); errors.Is(why, syscall.ENOSPC) || errors.Is(why, syscall.EDQUOT) {
			return fmt.Errorf("%w: %w", why, err)
		}
	}
	return err
}

func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// tryWrite writes as much as SQLite does at once, and takes it away again.
func tryWrite(folder string) (err error) {
	f, err := os.CreateTemp(folder, ".airlock-room-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// Room that is kept for deletions: as much as SQLite writes at most between two checkpoints, which is what a checkpoint
// on a full disk may lack.
const (
	roomBytes = 4 << 20
	roomEvery = time.Minute // between two attempts to take it again
)

// room is a file beside the database whose bytes nobody needs.
type room struct {
	path string // empty = this engine has none

	mu    sync.Mutex
	tried time.Time
}

// keep takes the room, unless it is there or not to be had.
func (r *room) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" || time.Since(r.tried) < roomEvery {
		return
	}
	r.tried = time.Now()
	if info, err := os.Stat(r.path); err == nil && info.Size() == roomBytes {
		return
	}
	bytes := make([]byte, roomBytes)
	_, _ = rand.Read(bytes) // never fails; a file system that compresses must not make nothing of it
	if err := os.WriteFile(r.path, bytes, 0o600); err != nil {
		_ = os.Remove(r.path) // half of it is of no use, and the disk is full
	}
}

// give makes the room free and says whether there was any.
func (r *room) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = time.Now() // not again at once
	return r.path != "" && os.Remove(r.path) == nil
}

// RunDelete is RunTx for what makes room, or takes rights away. On a full disk it takes the room that is kept for it: the
// log is moved to the database, and fn is called a second time.
func (d *DB) RunDelete(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	err := d.RunTx(ctx, fn)
	if err == nil {
		d.room.keep()
		return nil
	}
	if !noRoom(err) || d.engine != SQLite {
		return err
	}
	given := d.room.give()
	if _, e := d.write.ExecContext(ctx, "PRAGMA wal_checkpoint(RESTART)"); e != nil && !given {
		return err
	}
	return d.RunTx(ctx, fn)
}
