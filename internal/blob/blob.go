package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
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

// backend is what a folder and a bucket do in different ways.
type backend interface {
	// create starts a blob that becomes visible, and durable, only at commit.
	create(ctx context.Context, key string) (writer, error)
	open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	remove(ctx context.Context, key string) error
	list(ctx context.Context, prefix string, fn func(Entry) error) error
	clean(ctx context.Context) error
	ping(ctx context.Context) error
	close() error
}

// writer is a blob in the making. Exactly one of commit and abort is called, once.
type writer interface {
	io.Writer
	commit() error
	abort()
}

// Open opens a store: s3://BUCKET with the parameters of openS3, or the path of a folder, which is made if missing.
func Open(ctx context.Context, where string) (*Store, error) {
	var b backend
	var err error
	if strings.HasPrefix(where, "s3://") {
		b, err = openS3(ctx, where)
	} else {
		b, err = openFolder(where)
	}
	if err != nil {
		return nil, err
	}
	return &Store{b: b}, nil
}

// copyBuffer is the piece in which bytes are read, hashed and written.
const copyBuffer = 256 << 10

// Put stores everything r gives under key, counting and hashing on the way. When it returns nil the blob
// is durable. When r or the store fails nothing is left, and an error of r is returned as r gave it. An
// existing blob of the key is replaced.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	w, err := s.b.create(ctx, key)
	if err != nil {
		return Info{}, fmt.Errorf("store blob: %w", err)
	}
	info, err := pump(ctx, w, r)
	if err != nil {
		w.abort()
		return Info{}, err
	}
	if err := w.commit(); err != nil {
		return Info{}, fmt.Errorf("store blob: %w", err)
	}
	return info, nil
}

// pump copies r to w. Reading goes on in this goroutine while another hashes and writes the piece before,
// since the three take turns otherwise and the disk waits for the network.
func pump(ctx context.Context, w io.Writer, r io.Reader) (Info, error) {
	p := &pumping{w: w, sum: sha256.New(), full: make(chan []byte, 1), free: make(chan []byte, 3), done: make(chan struct{})}
	for range cap(p.free) {
		p.free <- make([]byte, copyBuffer)
	}
	go p.drain()
	readErr := p.fill(ctx, r)
	close(p.full)
	<-p.done
	if readErr != nil {
		return Info{}, readErr
	}
	if p.err != nil {
		return Info{}, fmt.Errorf("store blob: %w", p.err)
	}
	return Info{Size: p.size, SHA256: hex.EncodeToString(p.sum.Sum(nil))}, nil
}

type pumping struct {
	w    io.Writer
	sum  hash.Hash
	full chan []byte
	free chan []byte
	done chan struct{} // closed by drain; err and size are read after it
	size int64
	err  error
}

func (p *pumping) fill(ctx context.Context, r io.Reader) error {
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-p.done:
			return nil // the writer failed and says why
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := readPiece(r, buf)
		if n > 0 {
			select {
			case p.full <- buf[:n]:
			case <-p.done:
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readPiece fills buf as far as it can without an error, so that small network reads become large writes.
func readPiece(r io.Reader, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (p *pumping) drain() {
	defer close(p.done)
	for piece := range p.full {
		p.sum.Write(piece) // a hash never fails
		n, err := p.w.Write(piece)
		p.size += int64(n)
		if err != nil {
			p.err = err
			return
		}
		p.free <- piece[:cap(piece)]
	}
}

// Open reads length bytes from offset on; length < 0 means to the end. A missing blob is ErrNotFound,
// found out here and not at the first read.
func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	r, err := s.b.open(ctx, key, offset, length)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return r, nil
}

// Delete removes a blob; a missing one is no error. It may be repeated.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := s.b.remove(ctx, key); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// List calls fn for every blob whose key begins with prefix, in no promised order. An error of fn ends
// the listing and is returned.
func (s *Store) List(ctx context.Context, prefix string, fn func(Entry) error) error {
	return s.b.list(ctx, prefix, fn)
}

// Clean removes the remains of writers that died. It is called now and then while the store is in use.
func (s *Store) Clean(ctx context.Context) error {
	if err := s.b.clean(ctx); err != nil {
		return fmt.Errorf("clean blob store: %w", err)
	}
	return nil
}

// Ping answers whether the store can be reached.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.b.ping(ctx); err != nil {
		return fmt.Errorf("reach blob store: %w", err)
	}
	return nil
}

// Close releases the store.
func (s *Store) Close() error { return s.b.close() }

// checkKey allows what every backend keeps unchanged. Keys are ours, so a bad one is a fault of the
// program; the check is here so that no name of a client can ever become one.
func checkKey(key string) error {
	bad := fmt.Errorf("blob key %q is not allowed", key)
	if key == "" || len(key) > 200 {
		return bad
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part[0] == '.' {
			return bad
		}
	}
	for i := range len(key) {
		c := key[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("/_-.", rune(c)) {
			return bad
		}
	}
	return nil
}
