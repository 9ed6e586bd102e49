package server

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// AppSize is what one app keeps: files, and workspaces and snapshots of its containers.
type AppSize struct {
	Name  string
	Bytes int64
}

// LargestApps says who fills the disk of a configuration, the largest first, also beside a running server.
func LargestApps(ctx context.Context, cfg *Config) (out []AppSize, err error) {
	d, err := db.Look(ctx, cmp.Or(cfg.Database, filepath.Join(cfg.Data, "airlock.db")))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	files, err := file.SizeByApp(ctx, d)
	if err != nil {
		return nil, err
	}
	spaces, err := container.SizeByApp(ctx, d, &sandbox.Workspaces{Dir: filepath.Join(cfg.Data, "workspaces")},
		&sandbox.Snapshots{Dir: filepath.Join(cfg.Data, "snapshots")})
	if err != nil {
		return nil, err
	}
	names, err := tenant.AppNames(ctx, d)
	if err != nil {
		return nil, err
	}
	for id, name := range names {
		if n := files[id] + spaces[id]; n > 0 {
			out = append(out, AppSize{name, n})
		}
	}
	slices.SortFunc(out, func(a, b AppSize) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	return out, nil
}
