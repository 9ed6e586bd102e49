package db

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// RunTx runs fn in a transaction, commits if it returns nil and rolls back otherwise. fn must use tx for
// everything and must not do anything slow. It is called once: nothing is retried. A database without
// room is syscall.ENOSPC, and nothing was changed; see RunDelete.
func (d *DB) RunTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return d.full(d.write.RunInTx(ctx, &sql.TxOptions{}, fn))
}

// ForUpdate locks the rows of q until the transaction ends. SQLite needs no such clause, its
// transactions hold the only write lock from the start.
func (d *DB) ForUpdate(q *bun.SelectQuery) *bun.SelectQuery {
	if d.engine == SQLite {
		return q
	}
	return q.For("UPDATE")
}

// ForUpdateSkipLocked is ForUpdate that leaves out rows which another transaction holds.
func (d *DB) ForUpdateSkipLocked(q *bun.SelectQuery) *bun.SelectQuery {
	if d.engine == SQLite {
		return q
	}
	return q.For("UPDATE SKIP LOCKED")
}
