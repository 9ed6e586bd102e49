package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type row struct {
	bun.BaseModel `bun:"table:containers,alias:container"`

	ID string `bun:"id,pk"`
	tenant.Owner
	State        State       `bun:"state"`
	RootFS       string      `bun:"rootfs"`
	Home         string      `bun:"home"`
	HasWorkspace bool        `bun:"has_workspace"`
	PackKey      string      `bun:"pack_key"`
	PackSHA256   string      `bun:"pack_sha256"`
	PackBytes    int64       `bun:"pack_bytes"`
	REPL         replState   `bun:"repl"`
	Unsaved      bool        `bun:"unsaved"`
	IdleTTL      int64       `bun:"idle_ttl_seconds"`
	CreatedAt    wire.Micros `bun:"created_at"`
	LastUsedAt   wire.Micros `bun:"last_used_at"`
	ExpiresAt    wire.Micros `bun:"expires_at"`
	MaxExpiresAt wire.Micros `bun:"max_expires_at"`
}

func (r *row) container() *Container {
	return &Container{
		ID: ID(r.ID), Owner: r.Owner, State: r.State, RootFS: r.RootFS, Home: r.Home,
		IdleTTL: time.Duration(r.IdleTTL) * time.Second, CreatedAt: r.CreatedAt.Time(), LastUsedAt: r.LastUsedAt.Time(),
		ExpiresAt: r.ExpiresAt.Time(), MaxExpiresAt: r.MaxExpiresAt.Time(), hasWorkspace: r.HasWorkspace, repl: r.REPL,
		unsaved: r.Unsaved, packKey: r.PackKey, packSHA256: r.PackSHA256,
	}
}

func insert(ctx context.Context, d *db.DB, c *Container) error {
	r := rowOf(c)
	return write(ctx, d, "insert container "+r.ID, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewInsert().Model(r).Exec(ctx)
		return err
	})
}

// insertFork makes the row of a container that already holds these files.
func insertFork(ctx context.Context, d *db.DB, c *Container, in []Input) error {
	r := rowOf(c)
	files := make([]inputRow, len(in))
	for i, f := range in {
		files[i] = inputRow{ContainerID: r.ID, FileID: f.FileID, Path: f.Path, CreatedAt: r.CreatedAt, Size: f.size}
	}
	return write(ctx, d, "insert container "+r.ID, func(ctx context.Context, tx db.Tx) error {
		if _, err := tx.NewInsert().Model(r).Exec(ctx); err != nil || len(files) == 0 {
			return err
		}
		_, err := tx.NewInsert().Model(&files).Exec(ctx)
		return err
	})
}

func rowOf(c *Container) *row {
	return &row{
		ID: string(c.ID), Owner: c.Owner, State: c.State, RootFS: c.RootFS, Home: c.Home, HasWorkspace: c.hasWorkspace,
		REPL: c.repl, IdleTTL: int64(c.IdleTTL / time.Second), CreatedAt: wire.MicrosOf(c.CreatedAt),
		LastUsedAt: wire.MicrosOf(c.LastUsedAt), ExpiresAt: wire.MicrosOf(c.ExpiresAt), MaxExpiresAt: wire.MicrosOf(c.MaxExpiresAt),
	}
}

func write(ctx context.Context, d *db.DB, what string, f func(context.Context, db.Tx) error) error {
	if err := d.RunTx(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// end is write for a step towards the end of a container, which makes room on a full disk.
func end(ctx context.Context, d *db.DB, what string, f func(context.Context, db.Tx) error) error {
	if err := d.RunDelete(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// load reads a container the caller may use. Unknown, foreign and deleted ones take the same single read and give the
// same answer.
func load(ctx context.Context, d *db.DB, caller tenant.Caller, id ID) (*Container, error) {
	var r row
	err := hotContainer.Scan(ctx, d, &r, string(id), caller.AppID, caller.UserID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, wire.NotFound()
	}
	if err != nil {
		return nil, fmt.Errorf("read container %s: %w", id, err)
	}
	return r.container(), nil
}

var hotContainer = &db.Hot{Text: func(q db.IDB) string {
	sel := q.NewSelect().Model((*row)(nil)).Where("container.id = ?", db.Arg(1)).Where("container.state NOT IN ('deleting', 'deleted')")
	return tenant.WhereOwner(sel, db.Arg(2), db.Arg(3)).String()
}}

// position is a place in a list, newest first.
type position struct {
	createdAt wire.Micros
	id        string
}

// pageOf is the statement of a page.
func pageOf(q db.IDB, rows *[]row, caller tenant.Caller, after *position, limit int) *bun.SelectQuery {
	order := []string{"container.created_at DESC", "container.id DESC"}
	return caller.Page(q, rows, "container", limit, order, func(half *bun.SelectQuery) *bun.SelectQuery {
		if after != nil {
			half = half.Where("(container.created_at, container.id) < (?, ?)", after.createdAt, after.id)
		}
		return half.Where("container.state NOT IN ('deleting', 'deleted')")
	})
}

func list(ctx context.Context, d *db.DB, caller tenant.Caller, after *position, limit int) ([]*Container, error) {
	var rows []row
	q := pageOf(d.Read(), &rows, caller, after, limit)
	if err := q.Scan(ctx); err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := make([]*Container, len(rows))
	for i := range rows {
		out[i] = rows[i].container()
	}
	return out, nil
}

// saveUse stores a use. It is conditional on the state: a container deleted meanwhile is not brought back.
func saveUse(ctx context.Context, d *db.DB, c *Container) error {
	return write(ctx, d, "save use of container "+string(c.ID), func(ctx context.Context, tx db.Tx) error {
		res, err := tx.NewUpdate().Model((*row)(nil)).
			Set("last_used_at = ?", wire.MicrosOf(c.LastUsedAt)).Set("expires_at = ?", wire.MicrosOf(c.ExpiresAt)).
			Where("id = ?", string(c.ID)).Where("state = ?", StateActive).Exec(ctx)
		return db.MustChange(res, err)
	})
}

// setState moves a row from one state to another; an empty from means any but those of a deletion.
func setState(ctx context.Context, d *db.DB, id ID, from, to State) error {
	return end(ctx, d, "set container "+string(id)+" "+string(to), func(ctx context.Context, tx db.Tx) error {
		q := tx.NewUpdate().Model((*row)(nil)).Set("state = ?", to).Where("id = ?", string(id))
		if from == "" {
			q = q.Where("state NOT IN ('deleting', 'deleted')")
		} else {
			q = q.Where("state = ?", from)
		}
		res, err := q.Exec(ctx)
		return db.MustChange(res, err)
	})
}

// setDeleted ends a deletion: what is left is an id that is never used again.
func setDeleted(ctx context.Context, d *db.DB, id ID) error {
	return end(ctx, d, "delete container "+string(id), func(ctx context.Context, tx db.Tx) error {
		if _, err := tx.NewDelete().Model((*inputRow)(nil)).Where("container_id = ?", string(id)).Exec(ctx); err != nil {
			return err
		}
		res, err := tx.NewUpdate().Model((*row)(nil)).Set("state = ?", StateDeleted).Set("pack_key = ''").
			Where("id = ?", string(id)).Where("state = ?", StateDeleting).Exec(ctx)
		return db.MustChange(res, err)
	})
}

// setWorkspace notes that there is an image now, or neither an image nor a blob any more.
func setWorkspace(ctx context.Context, d *db.DB, id ID, has bool) error {
	return end(ctx, d, "note workspace of container "+string(id), func(ctx context.Context, tx db.Tx) error {
		res, err := tx.NewUpdate().Model((*row)(nil)).Set("has_workspace = ?", has).Set("pack_key = ''").
			Where("id = ?", string(id)).Exec(ctx)
		return db.MustChange(res, err)
	})
}

func setREPL(ctx context.Context, d *db.DB, id ID, s replState) error {
	return write(ctx, d, "note interpreter of container "+string(id), func(ctx context.Context, tx db.Tx) error {
		res, err := tx.NewUpdate().Model((*row)(nil)).Set("repl = ?", s).Where("id = ?", string(id)).Exec(ctx)
		return db.MustChange(res, err)
	})
}

// setUnsaved notes that the next use must be told of files that are not saved, or that it was. The disk may be full.
func setUnsaved(ctx context.Context, d *db.DB, id ID, unsaved bool) error {
	return end(ctx, d, "note unsaved files of container "+string(id), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewUpdate().Model((*row)(nil)).Set("unsaved = ?", unsaved).Where("id = ?", string(id)).Exec(ctx)
		return err
	})
}

// due lists containers of one instance whose time is over. It is for the background loop, which acts for every owner.
func due(ctx context.Context, d *db.DB, home string, now time.Time) ([]ID, error) {
	var ids []ID
	err := d.Read().NewSelect().Model((*row)(nil)).Column("id").Where("home = ?", home).Where("state = ?", StateActive).
		Where("expires_at <= ?", wire.MicrosOf(now)).OrderExpr("expires_at").Limit(1000).Scan(ctx, &ids)
	if err != nil {
		return nil, fmt.Errorf("list expired containers: %w", err)
	}
	return ids, nil
}

// markExpired ends a container if its time is still over, and says whether it did.
func markExpired(ctx context.Context, d *db.DB, id ID, now time.Time) (bool, error) {
	err := end(ctx, d, "expire container "+string(id), func(ctx context.Context, tx db.Tx) error {
		res, err := tx.NewUpdate().Model((*row)(nil)).Set("state = ?", StateExpired).Where("id = ?", string(id)).
			Where("state = ?", StateActive).Where("expires_at <= ?", wire.MicrosOf(now)).Exec(ctx)
		return db.MustChange(res, err)
	})
	if errors.Is(err, db.ErrStale) {
		return false, nil
	}
	return err == nil, err
}

// unfinished lists containers of one instance whose end was begun and not finished: deletions, and expired ones that
// still have a workspace. It is for the background loop, which acts for every owner.
func unfinished(ctx context.Context, d *db.DB, home string) ([]*Container, error) {
	var rows []row
	err := d.Read().NewSelect().Model(&rows).Where("container.home = ?", home).
		Where("container.state = 'deleting' OR container.state = 'expired' AND container.has_workspace").
		OrderExpr("container.id").Limit(1000).Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("list unfinished containers: %w", err)
	}
	out := make([]*Container, len(rows))
	for i := range rows {
		out[i] = rows[i].container()
	}
	return out, nil
}

// mine lists the containers of one instance that have not ended, whoever owns them, for the start.
func mine(ctx context.Context, d *db.DB, home string) ([]*Container, error) {
	var rows []row
	err := d.Read().NewSelect().Model(&rows).Where("container.home = ?", home).
		Where("container.state IN (?)", bun.List([]State{StateActive, StateDeleting})).Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("list own containers: %w", err)
	}
	out := make([]*Container, len(rows))
	for i := range rows {
		out[i] = rows[i].container()
	}
	return out, nil
}

type inputRow struct {
	bun.BaseModel `bun:"table:container_files,alias:container_file"`

	ContainerID string      `bun:"container_id,pk"`
	FileID      string      `bun:"file_id,pk"`
	Path        string      `bun:"path"`
	CreatedAt   wire.Micros `bun:"created_at"`
	Size        int64       `bun:"size_bytes"`
}

func addInput(ctx context.Context, d *db.DB, id ID, in Input, now time.Time) error {
	r := inputRow{ContainerID: string(id), FileID: in.FileID, Path: in.Path, CreatedAt: wire.MicrosOf(now), Size: in.size}
	return write(ctx, d, "note input of container "+string(id), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewInsert().Model(&r).Exec(ctx)
		return err
	})
}

// inputs lists the files given to a container; the container was read under the caller's rule before.
func inputs(ctx context.Context, d *db.DB, id ID) ([]Input, error) {
	var rows []inputRow
	err := d.Read().NewSelect().Model(&rows).Where("container_id = ?", string(id)).OrderExpr("created_at, path").Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("list inputs of container %s: %w", id, err)
	}
	out := make([]Input, len(rows))
	for i, r := range rows {
		out[i] = Input{FileID: r.FileID, Path: r.Path, size: r.Size}
	}
	return out, nil
}

// The cursor of a list is good for the list of the same caller only.
func cursorFilter(caller tenant.Caller) string {
	return "containers\x00" + caller.AppID + "\x00" + caller.UserID
}

func (s *Service) encodeCursor(caller tenant.Caller, c *Container) (string, error) {
	return wire.EncodeCursor(s.CursorKey, cursorFilter(caller), wire.MicrosOf(c.CreatedAt), string(c.ID))
}

func (s *Service) decodeCursor(caller tenant.Caller, cursor string) (*position, error) {
	if cursor == "" {
		return nil, nil
	}
	var p position
	if err := wire.DecodeCursor(s.CursorKey, cursorFilter(caller), cursor, &p.createdAt, &p.id); err != nil {
		return nil, err
	}
	return &p, nil
}
