package audit

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
)

type entryRow struct {
	bun.BaseModel `bun:"table:audit,alias:au"`
	ID            string `bun:"id,pk"`
	At            int64  `bun:"at"`
	Level         string `bun:"level"`
	AppID         string `bun:"app_id"`
	UserID        string `bun:"user_id"`
	RequestID     string `bun:"request_id"`
	Event         string `bun:"event"`
	Detail        string `bun:"detail"`
	Count         int64  `bun:"count"`
}

type position struct {
	at int64
	id string
}

// rowsAtOnce keeps a statement within the parameters that a database takes.
const rowsAtOnce = 500

func insertEntries(ctx context.Context, tx db.Tx, batch []*Entry) error {
	rows := make([]*entryRow, len(batch))
	for i, e := range batch {
		rows[i] = &entryRow{
			ID: e.ID, At: e.At.UnixMicro(), Level: string(e.Level), AppID: e.AppID, UserID: e.User, RequestID: e.RequestID,
			Event: e.Event.Event, Detail: e.Detail, Count: e.Count,
		}
	}
	for len(rows) > 0 {
		n := min(len(rows), rowsAtOnce)
		part := rows[:n]
		// A commit of unknown outcome is made again.
		if _, err := tx.NewInsert().Model(&part).On("CONFLICT (id) DO NOTHING").Exec(ctx); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func selectEntries(ctx context.Context, q db.IDB, f Query, after *position, limit int) ([]Entry, error) {
	var rows []*entryRow
	sel := q.NewSelect().Model(&rows).Order("au.at DESC", "au.id DESC").Limit(int64(limit))
	for column, value := range map[string]string{"app_id": f.AppID, "user_id": f.User, "event": f.Event} {
		if value != "" {
			sel = sel.Where("au.? = ?", bun.Ident(column), value)
		}
	}
	if !f.Since.IsZero() {
		sel = sel.Where("au.at >= ?", f.Since.UnixMicro())
	}
	if after != nil {
		sel = sel.Where("(au.at, au.id) < (?, ?)", after.at, after.id)
	}
	if err := sel.Scan(ctx); err != nil {
		return nil, db.Err(err)
	}
	out := make([]Entry, len(rows))
	for i, r := range rows {
		out[i] = Entry{ID: r.ID, At: time.UnixMicro(r.At).UTC(), Count: r.Count, Event: Event{
			Level: Level(r.Level), AppID: r.AppID, User: r.UserID, RequestID: r.RequestID, Event: r.Event, Detail: r.Detail,
		}}
	}
	return out, nil
}

func deleteEntries(ctx context.Context, tx db.Tx, before int64, most int) error {
	if _, err := tx.NewDelete().Model((*entryRow)(nil)).Where("at < ?", before).Exec(ctx); err != nil {
		return err
	}
	var last entryRow
	err := tx.NewSelect().Model(&last).Column("at", "id").Order("au.at DESC", "au.id DESC").Offset(int64(most)).Limit(1).Scan(ctx)
	if errors.Is(db.Err(err), db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = tx.NewDelete().Model((*entryRow)(nil)).Where("(at, id) <= (?, ?)", last.At, last.ID).Exec(ctx)
	return err
}
