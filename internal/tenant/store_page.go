package tenant

import (
	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
)

// Page is Where for a page of a list: the first limit rows of what the caller may use, in one order. In one condition the two
// halves of the rule, what is open to the app and what is the caller's own, would make the database read the rows of every
// user of the app; so each half is read by itself, to the limit, along an index that holds nothing else.
//
// model is a pointer to a slice of rows whose table has that alias. narrow adds order and conditions to a half, and is called
// for each; its conditions must be those of the indexes, word for word.
func (c Caller) Page(q db.IDB, model any, alias string, limit int, order []string, narrow func(*bun.SelectQuery) *bun.SelectQuery) *bun.SelectQuery {
	half := func(rule string, args ...any) *bun.SelectQuery {
		sel := q.NewSelect().Model(model).Where("?TableAlias.owner_app = ?", c.AppID).Where("?TableAlias.owner_app <> ''").Where(rule, args...)
		return narrow(sel).Order(order...).Limit(int64(limit))
	}
	return q.NewSelect().Model(model).
		ModelTableExpr("(SELECT * FROM (?) AS shared UNION ALL SELECT * FROM (?) AS own) AS ?",
			half("?TableAlias.owner_scope = 'app'"), half("?TableAlias.owner_scope = 'user' AND ?TableAlias.owner_user = ?", c.UserID), bun.Ident(alias)).
		Order(order...).Limit(int64(limit))
}
