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
	LastAt        int64  `bun:"last_at"`
	Source        string `bun:"source"`
}

type position struct {
	at int64
	id string
}

// rowsAtOnce keeps a statement within the parameters that a database takes.
const rowsAtOnce = 500

// putEntries writes entries, over what there is of them: their counts are those since they began.
func putEntries(ctx context.Context, tx db.Tx, batch []Entry) error {
	rows := make([]*entryRow, len(batch))
	for i, e := range batch {
		rows[i] = &entryRow{
			ID: e.ID, At: e.At.UnixMicro(), Level: string(e.Level), AppID: e.AppID, UserID: e.User, RequestID: e.RequestID,
			Event: e.Event.Event, Detail: e.Detail, Count: e.Count, LastAt: e.LastAt.UnixMicro(), Source: e.source(),
		}
	}
	for len(rows) > 0 {
		n := min(len(rows), rowsAtOnce)
		part := rows[:n]
		_, err := tx.NewInsert().Model(&part).On("CONFLICT (id) DO UPDATE").Set("count = EXCLUDED.count").Set("last_at = EXCLUDED.last_at").Exec(ctx)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func selectEntries(ctx context.Context, q db.IDB, f Query, after *position, limit int) ([]Entry, error) {
	var rows []*entryRow
	sel := q.NewSelect().Model(&rows).Order("au.at DESC", "au.id DESC").Limit(int64(limit))
	for column, value := range map[string]string{"app_id": f.AppID, "user_id": f.User, "event": f.Event, "request_id": f.RequestID} {
		if value != "" {
			sel = sel.Where("au.? = ?", bun.Ident(column), value)
		}
	}
	if !f.Since.IsZero() {
		// The first condition keeps to the index.
		sel = sel.Where("au.at >= ?", f.Since.Add(-span).UnixMicro()).Where("au.last_at >= ?", f.Since.UnixMicro())
	}
	if after != nil {
		sel = sel.Where("(au.at, au.id) < (?, ?)", after.at, after.id)
	}
	if err := sel.Scan(ctx); err != nil {
		return nil, db.Err(err)
	}
	out := make([]Entry, len(rows))
	for i, r := range rows {
		out[i] = Entry{ID: r.ID, At: time.UnixMicro(r.At).UTC(), LastAt: time.UnixMicro(r.LastAt).UTC(), Count: r.Count, Event: Event{
			Level: Level(r.Level), AppID: r.AppID, User: r.UserID, RequestID: r.RequestID, Event: r.Event, Detail: r.Detail,
		}}
	}
	return out, nil
}

func deleteOld(ctx context.Context, tx db.Tx, before int64) error {
	_, err := tx.NewDelete().Model((*entryRow)(nil)).Where("at < ?", before).Exec(ctx)
	return err
}

func countEntries(ctx context.Context, q db.IDB) (int, error) {
	n, err := q.NewSelect().Model((*entryRow)(nil)).Count(ctx)
	return int(n), err
}

// ofSource is how many entries there are of a source and kind of event.
type ofSource struct {
	Source  string `bun:"source"`
	Event   string `bun:"event"`
	Entries int    `bun:"entries"`
}

func countBySource(ctx context.Context, q db.IDB) ([]ofSource, error) {
	var all []ofSource
	err := q.NewSelect().Model((*entryRow)(nil)).Column("source", "event").ColumnExpr("COUNT(*) AS entries").Group("source", "event").Scan(ctx, &all)
	return all, db.Err(err)
}

// deleteBeyond keeps the newest so many entries of a source and kind, of all for nil.
func deleteBeyond(ctx context.Context, tx db.Tx, g *ofSource, most int) error {
	sel := tx.NewSelect().Model((*entryRow)(nil)).Column("at", "id").Order("au.at DESC", "au.id DESC").Offset(int64(most)).Limit(1)
	del := tx.NewDelete().Model((*entryRow)(nil))
	if g != nil {
		sel = sel.Where("au.source = ? AND au.event = ?", g.Source, g.Event)
		del = del.Where("source = ? AND event = ?", g.Source, g.Event)
	}
	var last entryRow
	err := db.Err(sel.Scan(ctx, &last.At, &last.ID))
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = del.Where("(at, id) <= (?, ?)", last.At, last.ID).Exec(ctx)
	return err
}
