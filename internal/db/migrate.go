package db

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// VersionError is the refusal of a database that a newer program has changed.
type VersionError struct {
	// Database is the schema version found, Program the newest one this program knows.
	Database, Program int64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the database has schema version %d, this program knows versions up to %d: use the newer program or an older backup",
		e.Database, e.Program)
}

func (d *DB) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	dialect := goose.DialectSQLite3
	opts := []goose.ProviderOption{goose.WithGoMigrations(ownersStand(d.engine))}
	if d.engine == Postgres {
		dialect = goose.DialectPostgres
		// Replicas that start together take turns.
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return fmt.Errorf("prepare migration lock: %w", err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	p, err := goose.NewProvider(dialect, d.write.DB, files, opts...)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	sources := p.ListSources()
	known := sources[len(sources)-1].Version
	if have > known {
		return &VersionError{Database: have, Program: known}
	}
	if have == known {
		return nil
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	return nil
}
