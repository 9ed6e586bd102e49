package tenant_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// ruleRow is a table of owned rows that only this test has.
type ruleRow struct {
	bun.BaseModel `bun:"table:rule_rows,alias:r"`
	ID            int64 `bun:"id,pk"`
	tenant.Owner
}

// TestRuleAndItsSQLAgreeEverywhere goes over every combination of owner and caller, among them values no
// row should have, and compares MayUse with Where and with the rule written down independently.
func TestRuleAndItsSQLAgreeEverywhere(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		apps, users := []string{"", "app_a", "app_b"}, []string{"", "u", "v", "U", "u' OR '1'='1"}
		var rows []*ruleRow
		for _, a := range apps {
			for _, u := range users {
				for _, s := range []tenant.Scope{tenant.ScopeUser, tenant.ScopeApp, "", "APP", "org"} {
					rows = append(rows, &ruleRow{ID: int64(len(rows)), Owner: tenant.Owner{AppID: a, UserID: u, Scope: s}})
				}
			}
		}
		err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
			if _, err := tx.ExecContext(ctx, "CREATE TABLE rule_rows (id BIGINT, owner_app TEXT, owner_user TEXT, owner_scope TEXT)"); err != nil {
				return err
			}
			_, err := tx.NewInsert().Model(&rows).Exec(ctx)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range apps {
			for _, u := range users {
				for _, s := range []tenant.Scope{tenant.ScopeUser, tenant.ScopeApp, ""} {
					for _, admin := range []bool{false, true} {
						checkCaller(t, d, tenant.Caller{AppID: a, UserID: u, Scope: s, Admin: admin}, rows)
					}
				}
			}
		}
	})
}

func checkCaller(t *testing.T, d *db.DB, c tenant.Caller, rows []*ruleRow) {
	t.Helper()
	var got []*ruleRow
	if err := c.Where(d.Read().NewSelect().Model(&got)).Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	inSQL := map[int64]bool{}
	for _, r := range got {
		inSQL[r.ID] = true
	}
	for _, r := range rows {
		o := r.Owner
		want := c.AppID != "" && o.AppID == c.AppID && (o.Scope == "app" || (o.Scope == "user" && o.UserID == c.UserID))
		if c.MayUse(o) != want || inSQL[r.ID] != want {
			t.Errorf("caller %+v, owner %+v: MayUse %v, SQL %v, want %v", c, o, c.MayUse(o), inSQL[r.ID], want)
		}
	}
}

func TestWhatACallerCreatesIsItsOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []tenant.Caller{
		{AppID: "a"}, {AppID: "a", UserID: "u"}, {AppID: "a", UserID: "u", Scope: tenant.ScopeApp}, {AppID: "a", Scope: tenant.ScopeUser},
	} {
		o := c.Owner()
		if !c.MayUse(o) {
			t.Errorf("%+v may not use what it creates", c)
		}
		if (c.Scope == "" && o.Scope != tenant.ScopeUser) || (c.Scope != "" && o.Scope != c.Scope) {
			t.Errorf("%+v creates scope %q", c, o.Scope)
		}
	}
}

func ExampleCaller_MayUse() {
	u := tenant.Caller{AppID: "app_1", UserID: "u"}
	owner := tenant.Caller{AppID: "app_1"}
	fmt.Println(u.MayUse(u.Owner()), owner.MayUse(u.Owner()))
	// Output: true false
}

// queries counts the queries that name a text.
type queries struct {
	text string
	n    atomic.Int64
}

func (q *queries) BeforeQuery(ctx context.Context, e *bun.QueryEvent) context.Context {
	if strings.Contains(e.Query, q.text) {
		q.n.Add(1)
	}
	return ctx
}

func (q *queries) AfterQuery(context.Context, *bun.QueryEvent) {}
