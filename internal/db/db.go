package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrNotFound is returned when a row does not exist, or not for this owner.
	ErrNotFound = errors.New("row not found")
	// ErrStale is returned when a conditional update met a row in another state than expected.
	ErrStale = errors.New("row has changed")
)

// Engine is which database stands behind a DB.
type Engine string

// The two engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// IDB is what store functions take: a pool or a transaction.
type IDB = bun.IDB

// Tx is a transaction.
type Tx = bun.Tx

// DB is an open database. It is safe for concurrent use.
type DB struct {
	engine Engine
	read   *bun.DB
	write  *bun.DB
	folder string // of SQLite's files
	room   room
	hot    sync.Map // *Hot to *sql.Stmt
}

// maxConns bounds the connections of one server to PostgreSQL, whose default limit is 100 in all.
const maxConns = 16

// Open opens the database and applies outstanding migrations. where is a postgres:// URL or the path of
// an SQLite file, which is created if it does not exist. On a full disk it takes the room that is kept for
// deletions; syscall.ENOSPC if there is none.
func Open(ctx context.Context, where string) (*DB, error) {
	d, err := connect(where)
	if err != nil {
		return nil, err
	}
	err = d.full(d.write.PingContext(ctx))
	if noRoom(err) && d.room.give() {
		err = d.full(d.write.PingContext(ctx))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", redact(err)), d.Close())
	}
	if err := d.full(d.migrate(ctx)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.room.keep()
	return d, nil
}

// Look opens a database as it is, for a program that only reads beside a server: nothing is made and no schema is changed.
// The error is os.ErrNotExist if there is no SQLite file.
func Look(ctx context.Context, where string) (*DB, error) {
	if !strings.HasPrefix(where, "postgres://") && !strings.HasPrefix(where, "postgresql://") {
		if _, err := os.Stat(where); err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
	}
	d, err := connect(where)
	if err != nil {
		return nil, err
	}
	if err := d.read.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", redact(err)), d.Close())
	}
	return d, nil
}

func connect(where string) (*DB, error) {
	if strings.HasPrefix(where, "postgres://") || strings.HasPrefix(where, "postgresql://") {
		return connectPostgres(where)
	}
	return connectSQLite(where)
}

func connectPostgres(where string) (*DB, error) {
	cfg, err := pgx.ParseConfig(where)
	if err != nil {
		return nil, fmt.Errorf("parse database url: %w", redact(err))
	}
	pool := stdlib.OpenDB(*cfg)
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns)
	b := bun.NewDB(pool, pgdialect.New())
	return &DB{engine: Postgres, read: b, write: b}, nil
}

func connectSQLite(path string) (*DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	// SQLite itself would let others read it, and gives its log the mode of the database.
	file, err := os.OpenFile(abs, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	open := func(conns int, lock string) (*bun.DB, error) {
		q := url.Values{"_txlock": {lock}, "_pragma": {
			"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)",
		}}
		u := url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}
		pool, err := sql.Open("sqlite", u.String())
		if err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
		pool.SetMaxOpenConns(conns)
		pool.SetMaxIdleConns(conns)
		return bun.NewDB(pool, sqlitedialect.New()), nil
	}
	write, err := open(1, "immediate")
	if err != nil {
		return nil, err
	}
	read, err := open(max(4, runtime.NumCPU()), "deferred")
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return &DB{engine: SQLite, read: read, write: write, folder: filepath.Dir(abs), room: room{path: abs + "-room"}}, nil
}

// Engine says which database this is.
func (d *DB) Engine() Engine { return d.engine }

// Read is the pool for queries outside of a transaction. On SQLite writing through it may meet a lock.
func (d *DB) Read() *bun.DB { return d.read }

// Ping answers whether the database can be reached, for readiness.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.read.PingContext(ctx); err != nil {
		return fmt.Errorf("ping database: %w", redact(err))
	}
	return nil
}

// Close closes all connections and waits for running queries.
func (d *DB) Close() error {
	var err error
	if d.read != d.write {
		err = d.read.Close()
	}
	return errors.Join(err, d.write.Close())
}

// Err turns the drivers' "no rows" into ErrNotFound and leaves other errors alone. Stores pass every
// error of a query through it.
func Err(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// MustChange makes an update or delete that met no row ErrStale.
func MustChange(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("count changed rows: %w", err)
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}

// IsUnique says whether err is the violation of a unique constraint.
func IsUnique(err error) bool {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.Code == "23505"
	}
	if se, ok := errors.AsType[*sqlite.Error](err); ok {
		return se.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || se.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	return false
}

// redact keeps a password in a connection string out of error texts: pgx puts the whole string there.
func redact(err error) error {
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return errors.New("the database url cannot be read")
	}
	return err
}
