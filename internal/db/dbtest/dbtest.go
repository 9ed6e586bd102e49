// Package dbtest gives a test a fresh, migrated database on each engine.
//
// SQLite is a file in the test's folder. PostgreSQL is a schema of its own on the server named by
// AIRLOCK_TEST_POSTGRES_URL; without that a private server is started once for the test binary and ends
// with it. Where PostgreSQL is not installed its tests are skipped, or fail if AIRLOCK_REQUIRE names
// postgres.
package dbtest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
)

// Run runs fn as a parallel subtest on each engine, each time with an empty database.
func Run(t *testing.T, fn func(t *testing.T, d *db.DB)) {
	t.Helper()
	RunURL(t, func(t *testing.T, where string) {
		d, err := db.Open(t.Context(), where)
		if err != nil {
			t.Fatalf("open database: %v", err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Errorf("close database: %v", err)
			}
		})
		fn(t, d)
	})
}

// RunURL is Run for tests that open the database themselves. It does not exist yet when fn is called.
func RunURL(t *testing.T, fn func(t *testing.T, where string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, filepath.Join(t.TempDir(), "airlock.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, postgresSchema(t))
	})
}

// SQLite gives an open SQLite database, for tests whose subject is not the store.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "airlock.db"))
	if err != nil {
		t.Fatalf("open database: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close database: %v", err)
		}
	})
	return d
}

// postgresSchema makes an empty schema and gives the URL whose connections work in it.
func postgresSchema(t *testing.T) string {
	t.Helper()
	server, err := postgresURL(t.Context())
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("AIRLOCK_REQUIRE"), ","), "postgres") {
			t.Fatalf("postgres is required and cannot be used: %v", err)
		}
		t.Skipf("postgres is not available: %v", err)
	}
	schema := "t_" + strings.ToLower(randomText())
	execute(t.Context(), t, server, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		execute(context.WithoutCancel(t.Context()), t, server, "DROP SCHEMA "+schema+" CASCADE")
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("AIRLOCK_TEST_POSTGRES_URL: %v", err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func execute(ctx context.Context, t *testing.T, server, statement string) {
	t.Helper()
	pool, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatalf("open postgres: %v", err)
	}
	if _, err := pool.ExecContext(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
	if err := pool.Close(); err != nil {
		t.Errorf("close postgres: %v", err)
	}
}
