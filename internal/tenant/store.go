package tenant

import "github.com/uptrace/bun"

// Where is MayUse in SQL. Every read, update and delete of an owned row goes through it or WhereArgs.
func (c Caller) Where(q *bun.SelectQuery) *bun.SelectQuery {
	return q.Where("?TableAlias.owner_app = ? AND ?TableAlias.owner_app <> '' AND (?TableAlias.owner_scope = 'app' OR (?TableAlias.owner_scope = 'user' AND ?TableAlias.owner_user = ?))", c.AppID, c.UserID)
}
