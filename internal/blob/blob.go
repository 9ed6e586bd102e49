package blob

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrNotFound is returned when no blob has the key.
var ErrNotFound = errors.New("blob not found")

// Info says what was stored.
type Info struct {
	Size   int64
	SHA256 string // hex
}

// Entry is one blob of a listing.
type Entry struct {
	Key     string
	Size    int64
	ModTime time.Time
}

// Store is a place for bytes. It is safe for concurrent use.
type Store struct{ b backend }

type backend interface{}

// Open opens a store: a folder path (made if missing) or an s3:// URL of gocloud.dev.
func Open(ctx context.Context, where string) (*Store, error) { panic("soon") }

// Put stores everything r gives under key, counting and hashing. If r or the store fails, nothing is left.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) (Info, error) { panic("soon") }

// Open reads length bytes from offset; length < 0 means to the end.
func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	panic("soon")
}

// Delete removes a blob; a missing one is no error.
func (s *Store) Delete(ctx context.Context, key string) error { panic("soon") }

// List calls fn for every blob whose key begins with prefix, in no promised order.
func (s *Store) List(ctx context.Context, prefix string, fn func(Entry) error) error { panic("soon") }

// Ping answers whether the store can be reached.
func (s *Store) Ping(ctx context.Context) error { panic("soon") }

// Close releases the store.
func (s *Store) Close() error { panic("soon") }
