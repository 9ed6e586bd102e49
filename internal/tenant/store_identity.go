package tenant

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
)

type signingRow struct {
	bun.BaseModel `bun:"table:signing_keys,alias:sk"`
	KID           string `bun:"kid,pk"`
	Private       []byte `bun:"-"`
	Text          string `bun:"private"`
	CreatedAt     int64  `bun:"created_at"`
	EndsAt        *int64 `bun:"ends_at"`
}

func selectSigningKeys(ctx context.Context, q db.IDB) ([]*signingRow, error) {
	var rows []*signingRow
	err := q.NewSelect().Model(&rows).OrderExpr("CASE WHEN ends_at IS NULL THEN 0 ELSE 1 END, created_at DESC, kid").Scan(ctx)
	for _, r := range rows {
		r.Private = decodeText(r.Text)
	}
	return rows, db.Err(err)
}

func insertSigningKey(ctx context.Context, tx db.Tx, row *signingRow) error {
	row.Text = encodeText(row.Private)
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

// endSigningKeys lets the keys verify until a moment at most.
func endSigningKeys(ctx context.Context, tx db.Tx, at int64) error {
	_, err := tx.NewUpdate().Model((*signingRow)(nil)).Set("ends_at = ?", at).Where("ends_at IS NULL OR ends_at > ?", at).Exec(ctx)
	return err
}

func deleteSigningKeys(ctx context.Context, tx db.Tx, before int64) error {
	_, err := tx.NewDelete().Model((*signingRow)(nil)).Where("ends_at < ?", before).Exec(ctx)
	return err
}

type generationRow struct {
	bun.BaseModel `bun:"table:app_identities,alias:ai"`
	AppID         string `bun:"app_id,pk"`
	Gen           int64  `bun:"gen,pk"`
	CreatedAt     int64  `bun:"created_at"`
	EndsAt        *int64 `bun:"ends_at"`
}

func insertGeneration(ctx context.Context, tx db.Tx, row *generationRow) error {
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

func newestGeneration(ctx context.Context, q db.IDB, appID string) (int64, error) {
	var gen int64
	err := q.NewSelect().Model((*generationRow)(nil)).Column("gen").Where("app_id = ?", appID).Order("gen DESC").Limit(1).Scan(ctx, &gen)
	return gen, db.Err(err)
}

func endGenerations(ctx context.Context, tx db.Tx, appID string, at int64) error {
	_, err := tx.NewUpdate().Model((*generationRow)(nil)).Set("ends_at = ?", at).
		Where("app_id = ?", appID).Where("ends_at IS NULL OR ends_at > ?", at).Exec(ctx)
	return err
}

// standing is what the database says of a token's app, subject and id, in one query.
type standing struct {
	AppID          *string `bun:"app_id"`
	OwnerIssuer    *string `bun:"owner_issuer"`
	OwnerSub       *string `bun:"owner_sub"`
	RequireBinding *bool   `bun:"require_binding"`
	Origin         *string `bun:"origin"`
	Models         *string `bun:"allowed_models"`
	DisabledAt     *int64  `bun:"disabled_at"`
	Generations    int     `bun:"generations"` // of the asked one that counts
	LastSeen       *int64  `bun:"last_seen"`
	Blocked        int     `bun:"blocked"`
	Revoked        int     `bun:"revoked"` // the token, or what it was exchanged from
	Signing        int     `bun:"signing"` // the key of ours that signed it still counts
	limitColumns
}

// limitColumns are the limits of an app and of a user in it.
type limitColumns struct {
	AppMessages  *int64 `bun:"app_messages"`
	AppRequests  *int64 `bun:"app_requests"`
	UserMessages *int64 `bun:"user_messages"`
	UserRequests *int64 `bun:"user_requests"`
}

// question is what a standing is asked for.
type question struct {
	verified
	appID string
	gen   int64
	now   int64
}

var hotStanding = &db.Hot{Text: func(db.IDB) string {
	return `
SELECT a.id AS app_id, a.owner_issuer, a.owner_sub, a.require_token_app_binding AS require_binding, a.origin, a.allowed_models, a.disabled_at,
  (SELECT COUNT(*) FROM app_identities g WHERE g.app_id = $1 AND g.gen = $2 AND (g.ends_at IS NULL OR g.ends_at > $3)) AS generations,
  (SELECT u.last_seen FROM users u WHERE u.app_id = $1 AND u.issuer = $4 AND u.sub = $5) AS last_seen,
  (SELECT COUNT(*) FROM users u WHERE u.app_id IN ($1, '') AND u.issuer = $4 AND u.sub = $5 AND u.blocked_at IS NOT NULL) AS blocked,
  (SELECT COUNT(*) FROM revoked_tokens t WHERE t.id IN ($6, $8)) AS revoked,
  (SELECT COUNT(*) FROM signing_keys s WHERE s.kid = $9 AND (s.ends_at IS NULL OR s.ends_at > $3)) AS signing,
  la.messages AS app_messages, la.requests AS app_requests, lu.messages AS user_messages, lu.requests AS user_requests
FROM (SELECT 1 AS one) o
LEFT JOIN apps a ON a.id = $1
LEFT JOIN limits la ON la.app_id = $1 AND la.user_id = ''
LEFT JOIN limits lu ON lu.app_id = $1 AND lu.user_id = $7 AND $7 <> ''`
}}

func selectStanding(ctx context.Context, d *db.DB, k question) (*standing, error) {
	row := new(standing)
	v := k.verified
	return row, hotStanding.Scan(ctx, d, row, k.appID, k.gen, k.now, v.origin, v.Subject, v.tokenID, v.origin+"/"+v.Subject, v.sourceID, v.ownKID)
}

type revokedRow struct {
	bun.BaseModel `bun:"table:revoked_tokens,alias:rt"`
	ID            string `bun:"id,pk"`
	Until         int64  `bun:"until"`
}

func insertRevoked(ctx context.Context, tx db.Tx, row *revokedRow) error {
	_, err := tx.NewInsert().Model(row).On("CONFLICT (id) DO NOTHING").Exec(ctx)
	return err
}

func deleteRevoked(ctx context.Context, tx db.Tx, before int64) error {
	_, err := tx.NewDelete().Model((*revokedRow)(nil)).Where("until < ?", before).Exec(ctx)
	return err
}

func updateTokenUntil(ctx context.Context, tx db.Tx, appID string, until int64) error {
	_, err := tx.NewUpdate().Model((*appRow)(nil)).Set("token_until = ?", until).Where("id = ? AND token_until < ?", appID, until).Exec(ctx)
	return err
}

type issuerRow struct {
	bun.BaseModel `bun:"table:issuers,alias:i"`
	ID            string `bun:"id,pk"`
	Issuer        string `bun:"issuer"`
	Settings      string `bun:"settings"`
	CreatedAt     int64  `bun:"created_at"`
}

func selectIssuers(ctx context.Context, q db.IDB) ([]*issuerRow, error) {
	var rows []*issuerRow
	err := q.NewSelect().Model(&rows).Order("id").Scan(ctx)
	return rows, db.Err(err)
}

func selectIssuer(ctx context.Context, q db.IDB, id string) (*issuerRow, error) {
	row := new(issuerRow)
	err := q.NewSelect().Model(row).Where("id = ?", id).Scan(ctx)
	return row, db.Err(err)
}

func insertIssuer(ctx context.Context, tx db.Tx, row *issuerRow) error {
	_, err := tx.NewInsert().Model(row).On("CONFLICT (id) DO NOTHING").Exec(ctx)
	return err
}

func updateIssuer(ctx context.Context, tx db.Tx, id, settings string) error {
	return db.MustChange(tx.NewUpdate().Model((*issuerRow)(nil)).Set("settings = ?", settings).Where("id = ?", id).Exec(ctx))
}

func encodeText(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// decodeText gives nil for what is damaged.
func decodeText(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

func number(n *int64) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

func (l limitColumns) limits() Limits {
	return Limits{
		AppMessages: number(l.AppMessages), AppRequests: number(l.AppRequests),
		UserMessages: number(l.UserMessages), UserRequests: number(l.UserRequests),
	}
}

// modelList reads the column of allowed models: patterns between spaces.
func modelList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Fields(s)
}
