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
	LastSeen      int64  `bun:"last_seen"`
	BlockedAt     *int64 `bun:"blocked_at"`
	DeletedAt     *int64 `bun:"deleted_at"`
	Erasing       bool   `bun:"erasing"`
}

func (r *userRow) user() *User {
	return &User{
		ID: r.ID, AppID: r.AppID, Issuer: r.Issuer, Subject: r.Sub, FirstSeen: micros(r.FirstSeen), LastSeen: micros(r.LastSeen),
		BlockedAt: microsPtr(r.BlockedAt), DeletedAt: microsPtr(r.DeletedAt),
	}
}

// noteUser remembers a user, or that he was there again.
func noteUser(ctx context.Context, tx db.Tx, row *userRow) error {
	_, err := tx.NewInsert().Model(row).On("CONFLICT (app_id, issuer, sub) DO UPDATE").
		Set("last_seen = CASE WHEN u.last_seen > EXCLUDED.last_seen THEN u.last_seen ELSE EXCLUDED.last_seen END").Exec(ctx)
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
	up := tx.NewUpdate().Model((*userRow)(nil)).Set("blocked_at = NULL").Set("deleted_at = NULL").Set("erasing = FALSE")
	if f.id != "" {
		up = up.Where("id = ?", f.id)
	} else {
		up = up.Where("app_id = ? AND issuer = ? AND sub = ?", f.appID, f.issuer, f.sub)
	}
	return db.MustChange(up.Exec(ctx))
}

// insertDeleted blocks a user of an app for good and has what is his erased.
func insertDeleted(ctx context.Context, tx db.Tx, row *userRow) error {
	_, err := tx.NewInsert().Model(row).On("CONFLICT (app_id, issuer, sub) DO UPDATE").
		Set("blocked_at = COALESCE(u.blocked_at, EXCLUDED.blocked_at)").Set("deleted_at = EXCLUDED.deleted_at").Set("erasing = TRUE").Exec(ctx)
	return err
}

func selectErasing(ctx context.Context, q db.IDB) ([]*userRow, error) {
	var rows []*userRow
	err := q.NewSelect().Model(&rows).Where("u.erasing").Order("u.id").Scan(ctx)
	return rows, db.Err(err)
}

// endErasing notes that nothing is left, unless he was deleted once more meanwhile.
func endErasing(ctx context.Context, tx db.Tx, row *userRow) error {
	_, err := tx.NewUpdate().Model((*userRow)(nil)).Set("erasing = FALSE").Where("id = ?", row.ID).Where("deleted_at = ?", row.DeletedAt).Exec(ctx)
	return err
}

// ownsNothing: what is open to the whole app is not the user's alone. The conditions are those of the indexes of owners.
const ownsNothing = `u.blocked_at IS NULL AND u.deleted_at IS NULL
	AND NOT EXISTS (SELECT 1 FROM files f WHERE f.owner_app = u.app_id AND f.owner_user = u.issuer || '/' || u.sub
		AND f.owner_scope = 'user' AND f.deleted_at IS NULL)
	AND NOT EXISTS (SELECT 1 FROM containers c WHERE c.owner_app = u.app_id AND c.owner_user = u.issuer || '/' || u.sub
		AND c.owner_scope = 'user' AND c.state NOT IN ('deleting', 'deleted'))`

// selectIdleUsers gives users who own nothing, are not blocked and were not seen since a moment, those of one app or of all ("*").
func selectIdleUsers(ctx context.Context, q db.IDB, app string, before int64, limit int) ([]*userRow, error) {
	var rows []*userRow
	sel := q.NewSelect().Model(&rows).Column("u.id", "u.last_seen").Where("u.last_seen < ?", before).Where(ownsNothing)
	if app != allApps {
		sel = sel.Where("u.app_id = ?", app)
	}
	err := sel.Order("u.last_seen").Limit(int64(limit)).Scan(ctx)
	return rows, db.Err(err)
}

// dropUsers forgets users unless they were blocked or seen since they were read.
func dropUsers(ctx context.Context, tx db.Tx, rows []*userRow) error {
	for _, r := range rows {
		_, err := tx.NewDelete().Model((*userRow)(nil)).Where("id = ?", r.ID).Where("last_seen = ?", r.LastSeen).Where("blocked_at IS NULL").Exec(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// crowded is an app of which more users are remembered than may be.
type crowded struct {
	AppID string `bun:"app_id"`
	Users int    `bun:"users"`
}

func selectCrowded(ctx context.Context, q db.IDB, most int) ([]crowded, error) {
	var rows []crowded
	err := q.NewSelect().Model((*userRow)(nil)).Column("app_id").ColumnExpr("COUNT(*) AS users").Group("app_id").
		Having("COUNT(*) > ?", most).Scan(ctx, &rows)
	return rows, db.Err(err)
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
		return db.MustChange(tx.NewDelete().Model((*limitRow)(nil)).Where("app_id = ? AND user_id = ?", appID, userID).Exec(ctx))
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
