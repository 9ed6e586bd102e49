package container

import (
	"context"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestPageOfOneUserNeverReadsTheContainersOfAnother(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		for _, s := range []string{
			`INSERT INTO apps (id, name, created_at) VALUES ('app_a', 'a', 0)`,
			`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2999)
				INSERT INTO containers (id, owner_app, owner_user, owner_scope, state, rootfs, home, has_workspace, repl, idle_ttl_seconds, created_at, last_used_at, expires_at, max_expires_at)
				SELECT 'container_' || i, 'app_a', 'u' || (i / 60), CASE WHEN i % 97 = 0 THEN 'app' ELSE 'user' END,
					CASE WHEN i % 2 = 0 THEN 'deleted' ELSE 'active' END, '', '', false, '', 1, i, 1, 1, 1 FROM n`,
		} {
			if err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
				_, err := tx.ExecContext(ctx, s)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		c := tenant.Caller{AppID: "app_a", UserID: "u7", Scope: tenant.ScopeUser}
		for _, after := range []*position{nil, {createdAt: wire.Micros(450), id: "container_450"}} {
			var rows []row
			plan := dbtest.Explain(t, d, pageOf(d.Read(), &rows, c, after, 21).String())
			plan.UsesOnly(t, "containers_of_app", "containers_of_user")
			if plan.Wasted > 0 {
				t.Errorf("%d rows were read in vain:\n%s", plan.Wasted, plan.Text)
			}
		}
		found, err := list(t.Context(), d, c, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 30+15 { // every second of u7 and of the whole app
			t.Errorf("%d containers, want 45", len(found))
		}
	})
}
