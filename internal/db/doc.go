// Package db opens the database, SQLite or PostgreSQL, brings its schema up to date, and offers what
// the two do not share: transactions, row locks, and the errors stores return.
//
// It knows no table of the product beyond the schema files in migrations/, and imports no other
// package of this module.
//
// Invariants:
//   - One schema, written once, in the SQL subset both engines read. Times are int64 microseconds.
//   - SQLite has one write connection and a pool of readers (WAL, synchronous=FULL), so that a write
//     never meets SQLITE_BUSY and a commit is on the disk when it returns. A transaction of RunTx
//     takes the write lock at its start.
//   - A file beside SQLite keeps room for deletions on a full disk; every other write fails there with
//     syscall.ENOSPC, also where the database has another name for it.
//   - A row never changes its owner, its scope or its id: triggers refuse it.
//   - A database whose schema is newer than the program is refused, with both versions named.
//
// Files: db.go (open, errors), full.go (a disk without room), tx.go (transactions, dialect fragments), migrate.go, owners.go
// (owners that stand), secret.go (random
// values kept in the database). dbtest gives tests a fresh database on each engine.
package db
