package server

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/db"
)

// ContainersOn counts the containers of the configured database that need a root file system to go on, also while a server
// runs. A data folder without a database has none.
func ContainersOn(ctx context.Context, cfg *Config, rootfs string) (n int, err error) {
	d, err := db.Look(ctx, cmp.Or(cfg.Database, filepath.Join(cfg.Data, "airlock.db")))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return container.CountOn(ctx, d, rootfs)
}
