package tenant

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
)

type userRow struct {
	bun.BaseModel `bun:"table:users,alias:u"`
	ID            string `bun:"id,pk"`
	AppID         string `bun:"app_id"`
	Issuer        string `bun:"issuer"`
	Sub           string `bun:"sub"`
	FirstSeen     int64  `bun:"first_seen"`
	BlockedAt     *int64 `bun:"blocked_at"`
}

func (r *userRow) user() *User {
	return &User{ID: r.ID, AppID: r.AppID, Issuer: r.Issuer, Subject: r.Sub, FirstSeen: micros(r.FirstSeen), BlockedAt: microsPtr(r.BlockedAt)}
}

func insertUser(ctx context.Context, tx db.Tx, row *userRow) error {
	_, err := tx.NewInsert().Model(row).On("CONFLICT (app_id, issuer, sub) DO NOTHING").Exec(ctx)
	return err
}

// userFilter names one user (id, or appID, issuer and sub) or narrows a list.
type userFilter struct {
	id, appID, issuer, sub string
	blocked                bool
}

func selectUsers(ctx context.Context, q db.IDB, f userFilter, after *position, limit int) ([]*userRow, error) {
	var rows []*userRow
	sel := q.NewSelect().Model(&rows).Order("u.first_seen DESC", "u.id DESC").Limit(int64(limit))
	if f.appID != "" {
		sel = sel.Where("u.app_id = ?", f.appID)
	}
	if f.sub != "" {
		sel = sel.Where("u.issuer = ? AND u.sub = ?", f.issuer, f.sub)
	}
	if f.blocked {
		sel = sel.Where("u.blocked_at IS NOT NULL")
	}
	if after != nil {
		sel = sel.Where("(u.first_seen, u.id) < (?, ?)", after.createdAt, after.id)
	}
	err := sel.Scan(ctx)
	return rows, db.Err(err)
}

func selectUser(ctx context.Context, q db.IDB, f userFilter) (*userRow, error) {
	row := new(userRow)
	sel := q.NewSelect().Model(row)
	if f.id != "" {
		sel = sel.Where("u.id = ?", f.id)
	} else {
		sel = sel.Where("u.app_id = ? AND u.issuer = ? AND u.sub = ?", f.appID, f.issuer, f.sub)
	}
	return row, db.Err(sel.Scan(ctx))
}

// insertBlocked blocks a user wherever the row comes from. Who is blocked already stays so since then.
func insertBlocked(ctx context.Context, tx db.Tx, row *userRow) error {
	_, err := tx.NewInsert().Model(row).On("CONFLICT (app_id, issuer, sub) DO UPDATE").
		Set("blocked_at = COALESCE(u.blocked_at, EXCLUDED.blocked_at)").Exec(ctx)
	return err
}

func blockUser(ctx context.Context, tx db.Tx, id string, now int64) error {
	return db.MustChange(tx.NewUpdate().Model((*userRow)(nil)).Set("blocked_at = COALESCE(blocked_at, ?)", now).Where("id = ?", id).Exec(ctx))
}

func unblockUser(ctx context.Context, tx db.Tx, f userFilter) error {
	up := tx.NewUpdate().Model((*userRow)(nil)).Set("blocked_at = NULL")
	if f.id != "" {
		up = up.Where("id = ?", f.id)
	} else {
		up = up.Where("app_id = ? AND issuer = ? AND sub = ?", f.appID, f.issuer, f.sub)
	}
	return db.MustChange(up.Exec(ctx))
}

type limitRow struct {
	bun.BaseModel `bun:"table:limits,alias:l"`
	AppID         string `bun:"app_id,pk"`
	UserID        string `bun:"user_id,pk"`
	Messages      int64  `bun:"messages"`
	Requests      int64  `bun:"requests"`
}

func putLimit(l *Limit) func(context.Context, db.Tx) error {
	row := &limitRow{AppID: l.AppID, UserID: l.User, Messages: int64(l.Messages), Requests: int64(l.Requests)}
	return func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewInsert().Model(row).On("CONFLICT (app_id, user_id) DO UPDATE").
			Set("messages = EXCLUDED.messages").Set("requests = EXCLUDED.requests").Exec(ctx)
		return err
	}
}

func dropLimit(appID, userID string) func(context.Context, db.Tx) error {
	return func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewDelete().Model((*limitRow)(nil)).Where("app_id = ? AND user_id = ?", appID, userID).Exec(ctx)
		return err
	}
}

func selectLimits(ctx context.Context, q db.IDB, app, afterApp, afterUser string, after bool, limit int) ([]Limit, error) {
	var rows []*limitRow
	sel := q.NewSelect().Model(&rows).Order("l.app_id", "l.user_id").Limit(int64(limit))
	if app != "" {
		sel = sel.Where("l.app_id = ?", app)
	}
	if after {
		sel = sel.Where("(l.app_id, l.user_id) > (?, ?)", afterApp, afterUser)
	}
	if err := sel.Scan(ctx); err != nil {
		return nil, db.Err(err)
	}
	out := make([]Limit, len(rows))
	for i, r := range rows {
		out[i] = Limit{AppID: r.AppID, User: r.UserID, Messages: int(r.Messages), Requests: int(r.Requests)}
	}
	return out, nil
}
