package file

import (
	"context"
	"fmt"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// crowd fills an app with the files of many users; the newest are not those of user u7.
func crowd(t *testing.T, d *db.DB) {
	t.Helper()
	const users, each = 50, 60
	statements := []string{
		`INSERT INTO apps (id, name, created_at) VALUES ('app_a', 'a', 0), ('app_b', 'b', 0)`,
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO files (id, owner_app, owner_user, owner_scope, filename, mime_type, size_bytes, sha256, blob_key, origin, container_id, call_id, created_at)
			SELECT 'file_' || i, CASE WHEN i %% 3 = 0 THEN 'app_b' ELSE 'app_a' END, 'u' || (i / %d), CASE WHEN i %% 97 = 0 THEN 'app' ELSE 'user' END,
				'f', 'text/plain', 1, '', '', 'upload', '', '', i FROM n`, users*each-1, each),
	}
	for _, s := range statements {
		if err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.ExecContext(ctx, s)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPageOfOneUserNeverReadsTheFilesOfAnother(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		crowd(t, d)
		c := tenant.Caller{AppID: "app_a", UserID: "u7", Scope: tenant.ScopeUser}
		at := &position{createdAt: 450, id: "file_450"}
		for name, p := range map[string]pageQuery{
			"first": {limit: 21}, "next": {limit: 21, at: at}, "newer": {limit: 21, at: at, newer: true},
		} {
			var rows []*fileRow
			statement := pageOf(d.Read(), &rows, c, p).String()
			plan := dbtest.Explain(t, d, statement)
			plan.UsesOnly(t, "files_of_app", "files_of_user")
			if plan.Wasted > 0 {
				t.Errorf("%s page: %d rows were read in vain:\n%s", name, plan.Wasted, plan.Text)
			}
		}
		rows, err := selectPage(t.Context(), d.Read(), c, pageQuery{limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if !c.MayUse(r.Owner) || i > 0 && r.CreatedAt >= rows[i-1].CreatedAt {
				t.Errorf("row %d is %s of %+v", i, r.ID, r.Owner)
			}
		}
		if want := 40 + 20; len(rows) != want { // of u7 in this app, and of the whole app
			t.Errorf("%d rows, want %d", len(rows), want)
		}
	})
}
