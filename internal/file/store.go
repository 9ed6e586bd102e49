package file

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

type position struct {
	createdAt int64
	id        string
}

type fileRow struct {
	bun.BaseModel `bun:"table:files,alias:f"`
	ID            string `bun:"id,pk"`
	tenant.Owner
	Filename    string `bun:"filename"`
	MIME        string `bun:"mime_type"`
	Size        int64  `bun:"size_bytes"`
	SHA256      string `bun:"sha256"`
	BlobKey     string `bun:"blob_key"`
	Origin      string `bun:"origin"`
	ContainerID string `bun:"container_id"`
	CallID      string `bun:"call_id"`
	CreatedAt   int64  `bun:"created_at"`
	ExpiresAt   *int64 `bun:"expires_at"`
	DeletedAt   *int64 `bun:"deleted_at"`
}

func rowOf(f *File) *fileRow {
	r := &fileRow{
		ID: string(f.ID), Owner: f.Owner, Filename: f.Filename, MIME: f.MIME, Size: f.Size, SHA256: f.SHA256,
		BlobKey: f.blobKey, Origin: string(f.Origin), ContainerID: f.ContainerID, CallID: f.CallID,
		CreatedAt: f.CreatedAt.UnixMicro(),
	}
	if f.ExpiresAt != nil {
		at := f.ExpiresAt.UnixMicro()
		r.ExpiresAt = &at
	}
	return r
}

func (r *fileRow) file() *File {
	return &File{
		ID: ID(r.ID), Owner: r.Owner, Filename: r.Filename, MIME: r.MIME, Size: r.Size, SHA256: r.SHA256,
		blobKey: r.BlobKey, Origin: Origin(r.Origin), ContainerID: r.ContainerID, CallID: r.CallID,
		CreatedAt: time.UnixMicro(r.CreatedAt).UTC(), ExpiresAt: timePtr(r.ExpiresAt), DeletedAt: timePtr(r.DeletedAt),
	}
}

func timePtr(n *int64) *time.Time {
	if n == nil {
		return nil
	}
	t := time.UnixMicro(*n).UTC()
	return &t
}

func insertFile(ctx context.Context, tx db.Tx, row *fileRow) error {
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

// visible leaves out tombstones and metadata that has reached its end.
func visible(q *bun.SelectQuery, metadataLimit any) *bun.SelectQuery {
	return q.Where("f.deleted_at IS NULL").Where("f.expires_at IS NULL OR f.expires_at > ?", metadataLimit)
}

var hotVisible = &db.Hot{Text: func(q db.IDB) string {
	sel := tenant.WhereOwner(q.NewSelect().Model((*fileRow)(nil)).Where("f.id = ?", db.Arg(1)), db.Arg(2), db.Arg(3))
	return visible(sel, db.Arg(4)).String()
}}

func selectVisible(ctx context.Context, d *db.DB, c tenant.Caller, id string, metadataLimit int64) (*fileRow, error) {
	row := new(fileRow)
	if !ID(id).Valid() {
		return nil, db.ErrNotFound
	}
	return row, hotVisible.Scan(ctx, d, row, id, c.AppID, c.UserID, metadataLimit)
}

func lockVisible(ctx context.Context, d *db.DB, tx db.Tx, c tenant.Caller, id string, metadataLimit int64) (*fileRow, error) {
	row := new(fileRow)
	if !ID(id).Valid() {
		return nil, db.ErrNotFound
	}
	err := d.ForUpdate(visible(c.Where(tx.NewSelect().Model(row).Where("f.id = ?", id)), metadataLimit)).Scan(ctx)
	return row, db.Err(err)
}

// selectOwned also finds tombstones.
func selectOwned(ctx context.Context, q db.IDB, c tenant.Caller, id ID) (*fileRow, error) {
	row := new(fileRow)
	if !id.Valid() {
		return nil, db.ErrNotFound
	}
	err := c.Where(q.NewSelect().Model(row).Where("f.id = ?", string(id))).Scan(ctx)
	return row, db.Err(err)
}

// selectForReferences also finds tombstones.
func selectForReferences(ctx context.Context, q db.IDB, c tenant.Caller, ids []string) ([]*fileRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []*fileRow
	err := c.Where(q.NewSelect().Model(&rows).Where("f.id IN (?)", bun.List(ids))).Scan(ctx)
	return rows, db.Err(err)
}

func selectByIDs(ctx context.Context, q db.IDB, c tenant.Caller, ids []string, metadataLimit int64) ([]*fileRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []*fileRow
	sel := q.NewSelect().Model(&rows).Where("f.id IN (?)", bun.List(ids)).Order("f.created_at DESC", "f.id DESC")
	err := visible(c.Where(sel), metadataLimit).Scan(ctx)
	return rows, db.Err(err)
}

type pageQuery struct {
	at            *position
	newer         bool // than at, nearest first
	limit         int
	metadataLimit int64
}

// pageOf is the statement of a page.
func pageOf(q db.IDB, rows *[]*fileRow, c tenant.Caller, p pageQuery) *bun.SelectQuery {
	order := []string{"f.created_at DESC", "f.id DESC"}
	if p.newer {
		order = []string{"f.created_at", "f.id"}
	}
	return c.Page(q, rows, "f", p.limit, order, func(half *bun.SelectQuery) *bun.SelectQuery {
		switch {
		case p.newer:
			half = half.Where("(f.created_at, f.id) > (?, ?)", p.at.createdAt, p.at.id)
		case p.at != nil:
			half = half.Where("(f.created_at, f.id) < (?, ?)", p.at.createdAt, p.at.id)
		}
		return visible(half, p.metadataLimit)
	})
}

func selectPage(ctx context.Context, q db.IDB, c tenant.Caller, p pageQuery) ([]*fileRow, error) {
	var rows []*fileRow
	err := pageOf(q, &rows, c, p).Scan(ctx)
	return rows, db.Err(err)
}

// selectPrivate gives the ids of what is a user's alone, also of what has expired, in their order.
func selectPrivate(ctx context.Context, q db.IDB, c tenant.Caller, after string, limit int) ([]string, error) {
	var ids []string
	err := c.Where(q.NewSelect().Model((*fileRow)(nil)).Column("f.id")).Where("f.owner_user = ?", c.UserID).Where("f.owner_scope = 'user'").
		Where("f.deleted_at IS NULL").Where("f.id > ?", after).Order("f.id").Limit(int64(limit)).Scan(ctx, &ids)
	return ids, db.Err(err)
}

// entomb keeps id, owner and order of a row and forgets the rest.
func entomb(ctx context.Context, tx db.Tx, row *fileRow, now int64) error {
	return db.MustChange(tx.NewUpdate().Model((*fileRow)(nil)).
		Set("deleted_at = ?", now).Set("blob_key = ''").Set("filename = ''").Set("mime_type = ''").Set("sha256 = ''").Set("size_bytes = 0").
		Where("id = ?", row.ID).Where("deleted_at IS NULL").Exec(ctx))
}

// lockUsage adds up the live files of an app and keeps others from adding to them until the transaction
// ends.
func lockUsage(ctx context.Context, d *db.DB, tx db.Tx, app string, now int64) (int64, error) {
	var id string
	if err := d.ForUpdate(tx.NewSelect().Table("apps").Column("id").Where("id = ?", app)).Scan(ctx, &id); err != nil {
		return 0, db.Err(err)
	}
	var used int64
	err := tx.NewSelect().Model((*fileRow)(nil)).ColumnExpr("CAST(COALESCE(SUM(f.size_bytes), 0) AS BIGINT)").
		Where("f.owner_app = ?", app).Where("f.deleted_at IS NULL").
		Where("f.expires_at IS NULL OR f.expires_at > ?", now).Scan(ctx, &used)
	return used, db.Err(err)
}

// sweepExpired is for the sweeper, which acts for no caller: files whose bytes are due.
func sweepExpired(ctx context.Context, d *db.DB, tx db.Tx, now int64, limit int) ([]*fileRow, error) {
	var rows []*fileRow
	err := d.ForUpdateSkipLocked(tx.NewSelect().Model(&rows).
		Where("f.expires_at <= ?", now).Where("f.blob_key <> ''").Order("f.expires_at").Limit(int64(limit))).Scan(ctx)
	if err != nil || len(rows) == 0 {
		return nil, db.Err(err)
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	_, err = tx.NewUpdate().Model((*fileRow)(nil)).Set("blob_key = ''").Where("id IN (?)", bun.List(ids)).Exec(ctx)
	return rows, err
}

// sweepMetadata is for the sweeper: it entombs what has been expired for long enough.
func sweepMetadata(ctx context.Context, tx db.Tx, metadataLimit, now int64) error {
	_, err := tx.NewUpdate().Model((*fileRow)(nil)).
		Set("deleted_at = ?", now).Set("blob_key = ''").Set("filename = ''").Set("mime_type = ''").Set("sha256 = ''").Set("size_bytes = 0").
		Where("expires_at <= ?", metadataLimit).Where("deleted_at IS NULL").Where("blob_key = ''").Exec(ctx)
	return err
}

// sweepClaimed is for the sweeper: which of these blobs have a row.
func sweepClaimed(ctx context.Context, q db.IDB, keys []string) (map[string]bool, error) {
	var have []string
	err := q.NewSelect().Model((*fileRow)(nil)).Column("f.blob_key").Where("f.blob_key IN (?)", bun.List(keys)).Scan(ctx, &have)
	claimed := make(map[string]bool, len(have))
	for _, k := range have {
		claimed[k] = true
	}
	return claimed, db.Err(err)
}

// SizeByApp sums the bytes of all files by app, for the operator.
func SizeByApp(ctx context.Context, d *db.DB) (map[string]int64, error) {
	var rows []struct {
		App   string `bun:"owner_app"`
		Bytes int64  `bun:"bytes"`
	}
	err := d.Read().NewSelect().Model((*fileRow)(nil)).Column("owner_app").ColumnExpr("SUM(size_bytes) AS bytes").
		Where("deleted_at IS NULL").Group("owner_app").Scan(ctx, &rows)
	if err != nil {
		return nil, db.Err(err)
	}
	out := make(map[string]int64, len(rows))
	for _, r := range rows {
		out[r.App] = r.Bytes
	}
	return out, nil
}
