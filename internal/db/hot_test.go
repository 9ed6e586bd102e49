package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
)

func TestHotQueryIsMadeOnceAndTakesItsArgumentsAsTheyAre(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		run(t, d, `INSERT INTO apps (id, name, created_at) VALUES ('app_1', 'it''s $2 ?', 7), ('app_2', 'b', 8)`)
		made := 0
		var mu sync.Mutex
		hot := &db.Hot{Text: func(q db.IDB) string {
			mu.Lock()
			defer mu.Unlock()
			made++
			return q.NewSelect().Table("apps").Column("id", "created_at").Where("name = ? AND created_at < ?", db.Arg(1), db.Arg(2)).String()
		}}
		type app struct {
			ID        string
			CreatedAt int64
		}
		// The first request is over before the second one asks.
		first, cancel := context.WithCancel(ctx)
		var got app
		if err := hot.Scan(first, d, &got, "it's $2 ?", 8); err != nil || got != (app{"app_1", 7}) {
			t.Errorf("got %+v, %v", got, err)
		}
		cancel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				var got app
				if err := hot.Scan(ctx, d, &got, "b", int64(9)); err != nil || got.ID != "app_2" {
					t.Errorf("got %+v, %v", got, err)
				}
				for _, name := range []string{"c", "' OR '1'='1"} {
					if err := hot.Scan(ctx, d, &got, name, 9); !errors.Is(err, db.ErrNotFound) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		all.Wait()
		if made != 1 {
			t.Errorf("the text was made %d times", made)
		}
	})
}

// A server of a later version may change a table under one that runs.
func TestHotQueryOutlivesAChangeOfItsTable(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		hot := &db.Hot{Text: func(db.IDB) string { return "SELECT * FROM changing WHERE id = $1" }}
		var got struct {
			ID  int64
			New int64
		}
		run(t, d, "CREATE TABLE changing (id BIGINT PRIMARY KEY)", "INSERT INTO changing VALUES (1)")
		if err := hot.Scan(t.Context(), d, &got, 1); err != nil {
			t.Fatal(err)
		}
		run(t, d, "ALTER TABLE changing ADD COLUMN new BIGINT NOT NULL DEFAULT 5")
		// PostgreSQL refuses the old statement.
		if err := hot.Scan(t.Context(), d, &got, 1); err != nil || got.New != 5 {
			t.Errorf("after the change: %+v, %v", got, err)
		}
	})
}

// Fails if a request that its client gave up takes the statement from under those of others.
func TestHotQueryThatIsGivenUpHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		run(t, d, `INSERT INTO apps (id, name, created_at) VALUES ('app_1', 'a', 7)`)
		made := make(chan struct{}, 1000)
		hot := &db.Hot{Text: func(db.IDB) string {
			made <- struct{}{}
			return "SELECT id FROM apps WHERE name = $1"
		}}
		var got struct{ ID string }
		if err := hot.Scan(t.Context(), d, &got, "a"); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					var got struct{ ID string }
					if err := hot.Scan(gone, d, &got, "a"); !errors.Is(err, context.Canceled) {
						t.Errorf("given up: %v", err)
					}
					if err := hot.Scan(t.Context(), d, &got, "a"); err != nil {
						t.Errorf("beside it: %v", err)
					}
				}
			})
		}
		all.Wait()
		if len(made) != 1 {
			t.Errorf("the text was made %d times", len(made))
		}
	})
}

// Fails if whoever comes first, or after a statement was given up, waits for a busy database when its client has left.
func TestHotQueryWaitsForTheDatabaseAsLongAsItsRequest(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		pool := d.Read().DB
		for range pool.Stats().MaxOpenConnections {
			busy, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer busy.Close()
		}
		ctx, leave := context.WithCancel(t.Context())
		hot := &db.Hot{Text: func(db.IDB) string {
			leave()
			return "SELECT 1 AS id"
		}}
		var got struct{ ID int }
		if err := hot.Scan(ctx, d, &got); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// run makes statements in one transaction.
func run(t *testing.T, d *db.DB, statements ...string) {
	t.Helper()
	if err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
		for _, s := range statements {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
