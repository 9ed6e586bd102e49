package container

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// find reads a row for the server's own work, whoever owns it and whatever its state.
func find(ctx context.Context, d *db.DB, id ID) (*Container, error) {
	var r row
	if err := db.Err(d.Read().NewSelect().Model(&r).Where("container.id = ?", string(id)).Scan(ctx)); err != nil {
		return nil, fmt.Errorf("read container %s: %w", id, err)
	}
	return r.container(), nil
}

// packable lists containers of one instance whose image was not used since before, the longest unused first. It is for
// the background loop, which acts for every owner.
func packable(ctx context.Context, d *db.DB, home string, before time.Time) ([]ID, error) {
	var ids []ID
	err := d.Read().NewSelect().Model((*row)(nil)).Column("id").Where("home = ?", home).Where("state = ?", StateActive).
		Where("has_workspace AND pack_key = ''").Where("last_used_at <= ?", wire.MicrosOf(before)).
		OrderExpr("last_used_at, id").Limit(packBatch).Scan(ctx, &ids)
	if err != nil {
		return nil, fmt.Errorf("list unused containers: %w", err)
	}
	return ids, nil
}

// setPacked makes a blob the workspace of a container. db.ErrStale if the container has ended, moved or is packed.
func setPacked(ctx context.Context, d *db.DB, c *Container, key string, b blob.Info) error {
	return write(ctx, d, "note packed workspace of container "+string(c.ID), func(ctx context.Context, tx db.Tx) error {
		res, err := tx.NewUpdate().Model((*row)(nil)).Set("pack_key = ?", key).Set("pack_sha256 = ?", b.SHA256).Set("pack_bytes = ?", b.Size).
			Where("id = ?", string(c.ID)).Where("state = ?", StateActive).Where("home = ?", c.Home).
			Where("has_workspace AND pack_key = ''").Exec(ctx)
		return db.MustChange(res, err)
	})
}

// setUnpacked makes the image on the disk of home the workspace of a packed container. db.ErrStale if the container has
// ended, or somebody else has unpacked it.
func setUnpacked(ctx context.Context, d *db.DB, c *Container, home string) error {
	return write(ctx, d, "note unpacked workspace of container "+string(c.ID), func(ctx context.Context, tx db.Tx) error {
		res, err := tx.NewUpdate().Model((*row)(nil)).Set("pack_key = ''").Set("pack_sha256 = ''").Set("home = ?", home).
			Where("id = ?", string(c.ID)).Where("state = ?", StateActive).Where("home = ?", c.Home).
			Where("pack_key = ?", c.packKey).Exec(ctx)
		return db.MustChange(res, err)
	})
}

// packsNamed says which of these blobs are the workspace of a container that has not ended, or was lost in a use after
// lostAfter.
func packsNamed(ctx context.Context, d *db.DB, keys []string, lostAfter time.Time) (map[string]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var named []string
	err := d.Read().NewSelect().Model((*row)(nil)).Column("pack_key").Where("pack_key IN (?)", bun.List(keys)).
		Where("state NOT IN ('lost', 'deleted') OR state = 'lost' AND last_used_at > ?", wire.MicrosOf(lostAfter)).Scan(ctx, &named)
	if err != nil {
		return nil, fmt.Errorf("list packed workspaces: %w", err)
	}
	out := make(map[string]bool, len(named))
	for _, key := range named {
		out[key] = true
	}
	return out, nil
}

// CountOn counts the containers that need a root file system to go on, whoever owns them. It is for the operator.
func CountOn(ctx context.Context, d *db.DB, rootfs string) (int, error) {
	n, err := d.Read().NewSelect().Model((*row)(nil)).Where("rootfs = ?", rootfs).Where("state = ?", StateActive).Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count containers on %s: %w", rootfs, err)
	}
	return int(n), nil
}

// SizeByApp sums what workspaces and snapshots take, by app, for the operator: images and snapshots on this disk, and the
// blobs of packed workspaces.
func SizeByApp(ctx context.Context, d *db.DB, w *sandbox.Workspaces, snaps *sandbox.Snapshots) (map[string]int64, error) {
	var rows []row
	err := d.Read().NewSelect().Model(&rows).Column("id", "owner_app", "pack_key", "pack_bytes").Where("has_workspace").
		Where("state <> ?", StateDeleted).Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workspaces by app: %w", err)
	}
	out := make(map[string]int64)
	for _, r := range rows {
		if r.PackKey != "" {
			out[r.AppID] += r.PackBytes
		} else {
			out[r.AppID] += w.Size(r.ID) + snaps.Size(r.ID)
		}
	}
	return out, nil
}
