package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
)

type appRow struct {
	ID        string `bun:"id,pk"`
	Name      string `bun:"name"`
	CreatedAt int64  `bun:"created_at"`
}

func addApp(ctx context.Context, d *db.DB, id, name string) error {
	return d.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewInsert().Model(&appRow{ID: id, Name: name}).ModelTableExpr("apps").Exec(ctx)
		return err
	})
}

func countApps(t *testing.T, d *db.DB) int64 {
	t.Helper()
	n, err := d.Read().NewSelect().Table("apps").Count(t.Context())
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	return n
}

func TestFailedTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		stop := errors.New("stop")
		err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			if _, err := tx.NewInsert().Model(&appRow{ID: "a", Name: "a"}).ModelTableExpr("apps").Exec(ctx); err != nil {
				return err
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Fatalf("RunTx = %v, want the error of the function", err)
		}
		if n := countApps(t, d); n != 0 {
			t.Errorf("%d rows, want 0", n)
		}
	})
}

func TestUniqueViolationIsTold(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		if err := addApp(t.Context(), d, "a", "same"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			if err := addApp(t.Context(), d, id, "same"); !db.IsUnique(err) {
				t.Errorf("insert %s again: %v, want a unique violation", id, err)
			}
		}
	})
}

func TestForeignKeysAreEnforced(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO api_keys (id, kind, app_id, role, name, scopes, hash, hint, created_at)
				VALUES ('k', 'api', 'no-such-app', '', '', '', 'h', '', 0)`)
			return err
		})
		if err == nil {
			t.Error("a key of an app that does not exist was accepted")
		}
	})
}

func TestConcurrentWritersNeverMeetALock(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		const writers, each = 8, 20
		var wg sync.WaitGroup
		errs := make(chan error, writers*each)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					name := string(rune('a'+w)) + "-" + string(rune('a'+i))
					errs <- addApp(t.Context(), d, name, name)
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Errorf("insert: %v", err)
			}
		}
		if n := countApps(t, d); n != writers*each {
			t.Errorf("%d rows, want %d", n, writers*each)
		}
	})
}

func TestReadModifyWriteInTransactionsLosesNoUpdate(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		if err := addApp(t.Context(), d, "a", "a"); err != nil {
			t.Fatal(err)
		}
		const workers, each = 6, 10
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range each {
					err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
						var n int64
						if err := d.ForUpdate(tx.NewSelect().Table("apps").Column("created_at").Where("id = 'a'")).Scan(ctx, &n); err != nil {
							return err
						}
						return db.MustChange(tx.NewUpdate().Table("apps").Set("created_at = ?", n+1).Where("id = 'a'").Exec(ctx))
					})
					if err != nil {
						t.Errorf("update: %v", err)
					}
				}
			})
		}
		wg.Wait()
		var n int64
		if err := d.Read().NewSelect().Table("apps").Column("created_at").Where("id = 'a'").Scan(t.Context(), &n); err != nil {
			t.Fatal(err)
		}
		if n != workers*each {
			t.Errorf("counter = %d, want %d", n, workers*each)
		}
	})
}

func TestUpdateOfNoRowIsStale(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			return db.MustChange(tx.NewUpdate().Table("apps").Set("name = 'x'").Where("id = 'none'").Exec(ctx))
		})
		if !errors.Is(err, db.ErrStale) {
			t.Errorf("got %v, want ErrStale", err)
		}
		var id string
		err = d.Read().NewSelect().Table("apps").Column("id").Scan(t.Context(), &id)
		if !errors.Is(db.Err(err), db.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	})
}

func TestSecretIsMadeOnceAndSurvivesReopening(t *testing.T) {
	t.Parallel()
	dbtest.RunURL(t, func(t *testing.T, where string) {
		read := func(name string) string {
			d, err := db.Open(t.Context(), where)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			b, err := d.Secret(t.Context(), name, 32)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		first := read("one")
		if again := read("one"); again != first {
			t.Error("the secret changed")
		}
		if other := read("other"); other == first {
			t.Error("two names share a secret")
		}
	})
}

func TestDatabaseNewerThanTheProgramIsRefusedNamingBothVersions(t *testing.T) {
	t.Parallel()
	dbtest.RunURL(t, func(t *testing.T, where string) {
		d, err := db.Open(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		err = d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, ?)", 99999, true)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = db.Open(t.Context(), where)
		var ve *db.VersionError
		if !errors.As(err, &ve) || ve.Database != 99999 || ve.Program < 2 {
			t.Fatalf("Open = %v, want a VersionError of 99999", err)
		}
		if !strings.Contains(err.Error(), "99999") {
			t.Errorf("message %q does not name the version", err)
		}
	})
}

func TestOpenByTwoServersAtOnceMigratesOnce(t *testing.T) {
	t.Parallel()
	dbtest.RunURL(t, func(t *testing.T, where string) {
		if !strings.HasPrefix(where, "postgres") {
			return // an SQLite file has one server, held by the lock of the data folder
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				d, err := db.Open(t.Context(), where)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				if err := d.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		wg.Wait()
	})
}

func TestSQLiteIsDurableAndReadsDuringAWrite(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			return tx.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got)
		})
		if err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", pragma, got, err, want)
		}
	}
	err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO apps (id, name, created_at) VALUES ('a', 'a', 0)"); err != nil {
			return err
		}
		if n := countApps(t, d); n != 0 {
			t.Errorf("a reader sees %d uncommitted rows", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := countApps(t, d); n != 1 {
		t.Errorf("a reader sees %d rows after the commit, want 1", n)
	}
}

func TestBadDatabaseURLKeepsThePasswordToItself(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"postgres://u:geheim@127.0.0.1:notaport/x", "postgres://u:geheim@127.0.0.1:1/x?connect_timeout=1"} {
		_, err := db.Open(t.Context(), where)
		if err == nil {
			t.Fatalf("%s opened", where)
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestSQLiteFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	where := filepath.Join(t.TempDir(), "a ? b%20#.db")
	d, err := db.Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	if err := addApp(t.Context(), d, "a", "a"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(where + suffix)
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", where+suffix, info.Mode())
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A table that may not grow is, to SQLite, what a full disk is.
func TestDatabaseWithoutRoomIsAFullDisk(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			if _, err := tx.ExecContext(ctx, "PRAGMA max_page_count = 1"); err != nil { // as small as it is now
				return err
			}
			_, err := tx.NewInsert().Model(&appRow{ID: fmt.Sprint(i), Name: strings.Repeat("x", 4000) + fmt.Sprint(i)}).ModelTableExpr("apps").Exec(ctx)
			return err
		})
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the error is %v, want ENOSPC", err)
	}
	if db.IsUnique(err) {
		t.Error("a full disk is taken for a name that exists")
	}
}

func TestDeletionIsTriedASecondTimeWithTheRoomKeptForIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "airlock.db")
	d, err := db.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if room, err := os.Stat(path + "-room"); err != nil || room.Size() < 1<<20 {
		t.Errorf("no room is kept: %v", err)
	}
	full, calls := fmt.Errorf("full: %w", syscall.ENOSPC), 0
	err = d.RunDelete(t.Context(), func(context.Context, db.Tx) error {
		if calls++; calls == 1 {
			return full
		}
		return nil
	})
	if _, gone := os.Stat(path + "-room"); err != nil || calls != 2 || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("%d calls, %v; room: %v", calls, err, gone)
	}
	stop := errors.New("stop")
	for want, last := range map[int]error{1: stop, 2: full} {
		calls = 0
		err := d.RunDelete(t.Context(), func(context.Context, db.Tx) error { calls++; return last })
		if !errors.Is(err, last) || calls != want {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = db.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-room"); errors.Join(err, d.Close()) != nil {
		t.Errorf("the room was not taken again: %v", err)
	}
}
