package db_test

import (
	"context"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
)

func exec(ctx context.Context, d *db.DB, statement string) error {
	return d.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	})
}

func TestS94NoStatementChangesAnOwnerOrAScope(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		for _, app := range []string{"app_a", "app_b"} {
			if err := addApp(t.Context(), d, app, app); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range []string{
			`INSERT INTO files (id, owner_app, owner_user, owner_scope, filename, mime_type, size_bytes, sha256, blob_key, origin, container_id, call_id, created_at)
				VALUES ('row', 'app_a', 'u', 'user', 'a.txt', 'text/plain', 1, '', '', 'upload', '', '', 1)`,
			`INSERT INTO containers (id, owner_app, owner_user, owner_scope, state, rootfs, home, has_workspace, repl, idle_ttl_seconds, created_at, last_used_at, expires_at, max_expires_at)
				VALUES ('row', 'app_a', 'u', 'user', 'active', '', '', false, '', 1, 1, 1, 1, 1)`,
			`INSERT INTO executions (id, container_id, owner_app, owner_user, owner_scope, kind, outcome, exit_code, started_at, wall_usec, cpu_usec, peak_bytes, bytes_in, bytes_out)
				VALUES ('row', 'row', 'app_a', 'u', 'user', 'bash', 'exited', 0, 1, 1, 1, 1, 1, 1)`,
		} {
			if err := exec(t.Context(), d, s); err != nil {
				t.Fatal(err)
			}
		}
		for table, harmless := range map[string]string{"files": "filename = 'b.txt'", "containers": "expires_at = 0", "executions": "exit_code = 1"} {
			for _, set := range []string{
				"owner_app = 'app_b'", "owner_user = 'v'", "owner_user = ''", "owner_scope = 'app'", "id = 'other'",
				"owner_app = 'app_b', " + harmless,
			} {
				err := exec(t.Context(), d, "UPDATE "+table+" SET "+set+" WHERE id = 'row'")
				if err == nil || !strings.Contains(err.Error(), "cannot be changed") {
					t.Errorf("update of %s, %s: %v, want a refusal", table, set, err)
				}
			}
			if err := exec(t.Context(), d, "UPDATE "+table+" SET owner_user = 'u', "+harmless+" WHERE id = 'row'"); err != nil {
				t.Errorf("an update of %s that keeps the owner: %v", table, err)
			}
		}
	})
}
