package db

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/uptrace/bun"
)

// Hot is a query of at most one row that is asked in every request. Each connection parses it once: the arguments are not
// part of its text, as they are in the texts of bun.
type Hot struct {
	// Text makes the query, with an Arg for each argument. It is called once for each database.
	Text func(q IDB) string
}

// Arg stands for the nth argument of a Hot query, the first is 1.
func Arg(n int) bun.Safe { return bun.Safe("$" + strconv.Itoa(n)) }

// Scan reads the row into dest, a pointer to a struct. The error is ErrNotFound if there is none.
func (h *Hot) Scan(ctx context.Context, d *DB, dest any, args ...any) (err error) {
	rows, err := h.query(ctx, d, args)
	if err != nil && ctx.Err() == nil {
		// It may be the statement: a server of a later version has changed the table, or somebody else who found that out has
		// closed it. A request that was given up says nothing about it.
		rows, err = h.query(ctx, d, args)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return ErrNotFound
	}
	return d.read.ScanRow(ctx, rows, dest)
}

// query gives up a statement that fails while its request goes on, so that the next one makes it anew.
func (h *Hot) query(ctx context.Context, d *DB, args []any) (*sql.Rows, error) {
	stmt, err := d.prepared(ctx, h)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil && ctx.Err() == nil && d.hot.CompareAndDelete(h, stmt) {
		err = errors.Join(err, stmt.Close()) //nolint:sqlclosecheck // it is kept for the next request otherwise
	}
	return rows, err
}

func (d *DB) prepared(ctx context.Context, h *Hot) (*sql.Stmt, error) {
	if stmt, ok := d.hot.Load(h); ok {
		return stmt.(*sql.Stmt), nil
	}
	// The statement outlives the request that makes it, which need not wait for the database longer than its client does.
	stmt, err := d.read.DB.PrepareContext(ctx, h.Text(d.read))
	if err != nil {
		return nil, err
	}
	if first, loaded := d.hot.LoadOrStore(h, stmt); loaded {
		return first.(*sql.Stmt), stmt.Close() //nolint:sqlclosecheck // the one that is kept is open until the database is closed
	}
	return stmt, nil
}
