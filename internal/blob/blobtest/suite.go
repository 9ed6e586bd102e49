package blobtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/blob"
)

// Suite is what every backend must do.
func Suite(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func(t *testing.T, s *blob.Store)
	}{
		{"every byte comes back with its size and hash", roundTrip},
		{"a part can be read", ranges},
		{"a missing blob is not found at open", missing},
		{"a failing reader leaves nothing", failingReader},
		{"delete is final and may be repeated", deletion},
		{"list gives exactly the keys of a prefix", listing},
		{"keys that are no plain path are refused", badKeys},
		{"parallel writers do not meet", parallel},
		{"an open reader outlives the blob", readWhileDeleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			Run(t, c.fn)
		})
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

func put(t *testing.T, s *blob.Store, key string, b []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, bytes.NewReader(b)); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func get(t *testing.T, s *blob.Store, key string, offset, length int64) []byte {
	t.Helper()
	r, err := s.Open(t.Context(), key, offset, length)
	if err != nil {
		t.Fatalf("open %s: %v", key, err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	return b
}

func keys(t *testing.T, s *blob.Store, prefix string) []string {
	t.Helper()
	got := []string{}
	err := s.List(t.Context(), prefix, func(e blob.Entry) error {
		got = append(got, e.Key)
		if e.ModTime.IsZero() {
			t.Errorf("%s has no time", e.Key)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	slices.Sort(got)
	return got
}

func roundTrip(t *testing.T, s *blob.Store) {
	for _, n := range []int{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 8<<20 - 1, 8 << 20, 17<<20 + 7} {
		want := content(n)
		info, err := s.Put(t.Context(), "a/b", bytes.NewReader(want))
		if err != nil {
			t.Fatalf("put %d bytes: %v", n, err)
		}
		sum := sha256.Sum256(want)
		if info.Size != int64(n) || info.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%d bytes: info %+v", n, info)
		}
		if got := get(t, s, "a/b", 0, -1); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d other bytes came back", n, len(got))
		}
	}
}

func ranges(t *testing.T, s *blob.Store) {
	want := content(1000)
	put(t, s, "k", want)
	for _, r := range []struct{ offset, length int64 }{{0, 10}, {10, 20}, {990, 10}, {999, -1}, {1, -1}, {5, 0}} {
		end := r.offset + r.length
		if r.length < 0 {
			end = 1000
		}
		if got := get(t, s, "k", r.offset, r.length); !bytes.Equal(got, want[r.offset:end]) {
			t.Errorf("from %d length %d: got %d bytes", r.offset, r.length, len(got))
		}
	}
}

func missing(t *testing.T, s *blob.Store) {
	for _, length := range []int64{-1, 0, 5} {
		if _, err := s.Open(t.Context(), "no/such", 0, length); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("open with length %d: %v, want ErrNotFound", length, err)
		}
	}
}

type failing struct{ n int }

var errBroken = errors.New("broken pipe of the client")

func (f *failing) Read(p []byte) (int, error) {
	if f.n <= 0 {
		return 0, errBroken
	}
	n := min(len(p), f.n)
	f.n -= n
	return n, nil
}

func failingReader(t *testing.T, s *blob.Store) {
	for _, n := range []int{0, 100, 9 << 20} {
		_, err := s.Put(t.Context(), "half", &failing{n: n})
		if !errors.Is(err, errBroken) {
			t.Errorf("after %d bytes: %v, want the reader's error", n, err)
		}
		if _, err := s.Open(t.Context(), "half", 0, -1); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("after %d bytes: open = %v, want ErrNotFound", n, err)
		}
	}
	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func deletion(t *testing.T, s *blob.Store) {
	put(t, s, "x", []byte("x"))
	for range 2 {
		if err := s.Delete(t.Context(), "x"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, err := s.Open(t.Context(), "x", 0, -1); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("open after delete: %v", err)
	}
}

func listing(t *testing.T, s *blob.Store) {
	if got := keys(t, s, "files/"); len(got) != 0 {
		t.Errorf("an empty store lists %v", got)
	}
	for _, k := range []string{"files/aa/1", "files/aa/2", "files/bb/3", "filesystem", "other/4"} {
		put(t, s, k, []byte(k))
	}
	want := []string{"files/aa/1", "files/aa/2", "files/bb/3"}
	if got := keys(t, s, "files/"); !slices.Equal(got, want) {
		t.Errorf("files/ lists %v, want %v", got, want)
	}
	if got := keys(t, s, "files/aa/1"); !slices.Equal(got, want[:1]) {
		t.Errorf("files/aa/1 lists %v", got)
	}
	stop := errors.New("enough")
	if err := s.List(t.Context(), "", func(blob.Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("list = %v, want the function's error", err)
	}
}

func badKeys(t *testing.T, s *blob.Store) {
	for _, k := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".tmp/a", "a b", "a\x00", "ä", "a\\b", "a/.b"} {
		if _, err := s.Put(t.Context(), k, bytes.NewReader(nil)); err == nil {
			t.Errorf("put %q worked", k)
		}
		if r, err := s.Open(t.Context(), k, 0, -1); err == nil {
			t.Errorf("open %q worked", k)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Delete(t.Context(), k); err == nil {
			t.Errorf("delete %q worked", k)
		}
	}
}

func parallel(t *testing.T, s *blob.Store) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := "p/" + string(rune('a'+i%2)) + "/" + string(rune('a'+i))
			want := bytes.Repeat([]byte{byte(i)}, 300_000+i)
			if _, err := s.Put(t.Context(), key, bytes.NewReader(want)); err != nil {
				t.Errorf("put: %v", err)
				return
			}
			r, err := s.Open(t.Context(), key, 0, -1)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
				t.Errorf("writer %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
}

func readWhileDeleted(t *testing.T, s *blob.Store) {
	want := content(100_000)
	put(t, s, "gone", want)
	r, err := s.Open(t.Context(), "gone", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
}
