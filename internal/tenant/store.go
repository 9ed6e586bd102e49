package tenant

import (
	"context"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
)

const (
	kindAPI   = "api"
	kindAdmin = "admin"
)

// Where is MayUse in SQL. Every read of an owned row for a caller goes through it; an update or a delete names the id of
// a row that was read so.
func (c Caller) Where(q *bun.SelectQuery) *bun.SelectQuery { return WhereOwner(q, c.AppID, c.UserID) }

// WhereOwner is Caller.Where for a query that is made once for all callers: app and user are their places in it, see db.Arg.
func WhereOwner(q *bun.SelectQuery, app, user any) *bun.SelectQuery {
	return q.Where(ownerRule, app, user)
}

// ownerRule names the scopes in full, so that a value no rule knows lets nobody in.
const ownerRule = `?TableAlias.owner_app = ? AND ?TableAlias.owner_app <> ''
	AND (?TableAlias.owner_scope = 'app' OR (?TableAlias.owner_scope = 'user' AND ?TableAlias.owner_user = ?))`

type position struct {
	createdAt int64
	id        string
}

type appRow struct {
	bun.BaseModel `bun:"table:apps,alias:a"`
	ID            string `bun:"id,pk"`
	Name          string `bun:"name"`
	CreatedAt     int64  `bun:"created_at"`
	DisabledAt    *int64 `bun:"disabled_at"`

	OwnerIssuer         string `bun:"owner_issuer"`
	OwnerSub            string `bun:"owner_sub"`
	RequireTokenBinding bool   `bun:"require_token_app_binding"`
	Origin              string `bun:"origin"`
	AllowedModels       string `bun:"allowed_models"`
	TokenUntil          int64  `bun:"token_until"`
}

func (r *appRow) app() *App {
	return &App{
		ID: r.ID, Name: r.Name, CreatedAt: micros(r.CreatedAt), DisabledAt: microsPtr(r.DisabledAt),
		OwnerIssuer: r.OwnerIssuer, OwnerSub: r.OwnerSub, RequireTokenBinding: r.RequireTokenBinding, Origin: r.Origin,
		AllowedModels: modelList(r.AllowedModels),
	}
}

type keyRow struct {
	bun.BaseModel `bun:"table:api_keys,alias:k"`
	ID            string  `bun:"id,pk"`
	Kind          string  `bun:"kind"`
	AppID         *string `bun:"app_id"`
	Role          string  `bun:"role"`
	Name          string  `bun:"name"`
	Scopes        string  `bun:"scopes"`
	Hash          string  `bun:"hash"`
	Hint          string  `bun:"hint"`
	CreatedAt     int64   `bun:"created_at"`
	ExpiresAt     *int64  `bun:"expires_at"`
	RevokedAt     *int64  `bun:"revoked_at"`

	AppDisabledAt *int64  `bun:"app_disabled_at,scanonly"`
	AllowedModels *string `bun:"allowed_models,scanonly"`
	AppMessages   *int64  `bun:"app_messages,scanonly"`
	AppRequests   *int64  `bun:"app_requests,scanonly"`
}

func (r *keyRow) limits() Limits {
	return Limits{AppMessages: number(r.AppMessages), AppRequests: number(r.AppRequests)}
}

func (r *keyRow) key() *Key {
	k := &Key{
		ID: r.ID, Role: r.Role, Name: r.Name, Scopes: strings.Fields(r.Scopes), Hint: r.Hint, CreatedAt: micros(r.CreatedAt),
		ExpiresAt: microsPtr(r.ExpiresAt), RevokedAt: microsPtr(r.RevokedAt),
	}
	if r.AppID != nil {
		k.AppID = *r.AppID
	}
	return k
}

func micros(n int64) time.Time { return time.UnixMicro(n).UTC() }

func microsPtr(n *int64) *time.Time {
	if n == nil {
		return nil
	}
	t := micros(*n)
	return &t
}

func insertApp(ctx context.Context, tx db.Tx, row *appRow) error {
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

func selectApp(ctx context.Context, q db.IDB, idOrName string) (*appRow, error) {
	row := new(appRow)
	err := q.NewSelect().Model(row).Where("a.id = ? OR a.name = ?", idOrName, idOrName).Limit(1).Scan(ctx)
	return row, db.Err(err)
}

func selectApps(ctx context.Context, q db.IDB, after *position, limit int) ([]*appRow, error) {
	var rows []*appRow
	sel := q.NewSelect().Model(&rows).Order("a.created_at DESC", "a.id DESC").Limit(int64(limit))
	if after != nil {
		sel = sel.Where("(a.created_at, a.id) < (?, ?)", after.createdAt, after.id)
	}
	err := sel.Scan(ctx)
	return rows, db.Err(err)
}

// updateApp writes the columns that change and no others: another change that committed meanwhile stays.
func updateApp(ctx context.Context, tx db.Tx, row *appRow, columns []string) error {
	return db.MustChange(tx.NewUpdate().Model(row).Column(columns...).WherePK().Exec(ctx))
}

// lockOldestApp serialises what must see all apps. The oldest app never changes its place.
func lockOldestApp(ctx context.Context, d *db.DB, tx db.Tx) error {
	var id string
	return db.Err(d.ForUpdate(tx.NewSelect().Table("apps").Column("id").Order("created_at", "id").Limit(1)).Scan(ctx, &id))
}

// lockApp serialises what is read of one app and then written. Who needs lockOldestApp too takes that first.
func lockApp(ctx context.Context, d *db.DB, tx db.Tx, id string) error {
	var locked string
	return db.Err(d.ForUpdate(tx.NewSelect().Table("apps").Column("id").Where("id = ?", id)).Scan(ctx, &locked))
}

// countUsedApps counts, of the apps that are not disabled and have a live key or a token, the named one and the others.
func countUsedApps(ctx context.Context, q db.IDB, app string, now int64) (own, others int, err error) {
	var ids []string
	live := q.NewSelect().Model((*keyRow)(nil)).ColumnExpr("1").
		Where("k.app_id = a.id").
		Where("k.kind = ?", kindAPI).
		Where("k.revoked_at IS NULL").
		Where("k.expires_at IS NULL OR k.expires_at > ?", now)
	err = q.NewSelect().Model((*appRow)(nil)).Column("a.id").
		Where("a.disabled_at IS NULL OR a.id = ?", app).
		Where("a.token_until > ? OR EXISTS (?)", now, live).
		Scan(ctx, &ids)
	for _, id := range ids {
		if id == app {
			own++
		} else {
			others++
		}
	}
	return own, others, db.Err(err)
}

func insertKey(ctx context.Context, tx db.Tx, row *keyRow) error {
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

// selectKeyByHash gives a key of any kind together with the state of its app.
func selectKeyByHash(ctx context.Context, q db.IDB, hash string) (*keyRow, error) {
	row := new(keyRow)
	return row, db.Err(keyByHash(q, row, hash).Scan(ctx))
}

// hotKeyByHash is selectKeyByHash outside of a transaction.
var hotKeyByHash = &db.Hot{Text: func(q db.IDB) string { return keyByHash(q, new(keyRow), db.Arg(1)).String() }}

func keyByHash(q db.IDB, row *keyRow, hash any) *bun.SelectQuery {
	return q.NewSelect().Model(row).ColumnExpr("k.*").ColumnExpr("a.disabled_at AS app_disabled_at, a.allowed_models").
		ColumnExpr("l.messages AS app_messages, l.requests AS app_requests").
		Join("LEFT JOIN apps AS a ON a.id = k.app_id").
		Join("LEFT JOIN limits AS l ON l.app_id = k.app_id AND l.user_id = ''").
		Where("k.hash = ?", hash)
}

func selectKey(ctx context.Context, q db.IDB, id string) (*keyRow, error) {
	row := new(keyRow)
	return row, db.Err(q.NewSelect().Model(row).Where("k.id = ?", id).Scan(ctx))
}

func selectKeys(ctx context.Context, q db.IDB, kind, app string, after *position, limit int) ([]*keyRow, error) {
	var rows []*keyRow
	sel := q.NewSelect().Model(&rows).Where("k.kind = ?", kind).
		Order("k.created_at DESC", "k.id DESC").Limit(int64(limit))
	if app != "" {
		sel = sel.Where("k.app_id = ?", app)
	}
	if after != nil {
		sel = sel.Where("(k.created_at, k.id) < (?, ?)", after.createdAt, after.id)
	}
	err := sel.Scan(ctx)
	return rows, db.Err(err)
}

// revokeKey keeps the moment of an earlier revocation.
func revokeKey(ctx context.Context, tx db.Tx, id string, now int64) error {
	return db.MustChange(tx.NewUpdate().Model((*keyRow)(nil)).
		Set("revoked_at = COALESCE(revoked_at, ?)", now).Where("id = ?", id).Exec(ctx))
}

func revokeAdminKeys(ctx context.Context, tx db.Tx, name string, now int64) error {
	_, err := tx.NewUpdate().Model((*keyRow)(nil)).Set("revoked_at = ?", now).
		Where("kind = ? AND name = ? AND revoked_at IS NULL", kindAdmin, name).Exec(ctx)
	return err
}

func deleteEndedKeys(ctx context.Context, tx db.Tx, before int64) error {
	_, err := tx.NewDelete().Model((*keyRow)(nil)).Where("expires_at < ?", before).Exec(ctx)
	return err
}

// deleteShortKeys removes expired keys that were made for a life of at most so many microseconds.
func deleteShortKeys(ctx context.Context, tx db.Tx, now, life int64) error {
	_, err := tx.NewDelete().Model((*keyRow)(nil)).Where("expires_at <= ? AND expires_at - created_at <= ?", now, life).Exec(ctx)
	return err
}

// AppNames maps the ids of all apps to their names, for the operator.
func AppNames(ctx context.Context, d *db.DB) (map[string]string, error) {
	var rows []appRow
	if err := d.Read().NewSelect().Model(&rows).Column("id", "name").Scan(ctx); err != nil {
		return nil, db.Err(err)
	}
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		out[r.ID] = r.Name
	}
	return out, nil
}
