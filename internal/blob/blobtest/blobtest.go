// Package blobtest gives a test an empty blob store on each backend, and holds the conformance suite
// that every backend passes.
//
// The S3 server is named by AIRLOCK_TEST_S3_URL, an s3:// URL as blob.Open takes it, with the credentials in the
// AWS_ variables. Without it the S3 tests are skipped, or fail if AIRLOCK_REQUIRE names s3.
package blobtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/blob"
)

// Run runs fn as a parallel subtest on each backend, each time with an empty store.
func Run(t *testing.T, fn func(t *testing.T, s *blob.Store)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		fn(t, Folder(t))
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		fn(t, open(t, bucketURL(t)))
	})
}

// Folder gives an empty store in the test's folder.
func Folder(t testing.TB) *blob.Store {
	t.Helper()
	return open(t, t.TempDir())
}

func open(t testing.TB, where string) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), where)
	if err != nil {
		t.Fatalf("open blob store: %v", err)
	}
	t.Cleanup(func() {
		empty(t, s)
		if err := s.Close(); err != nil {
			t.Errorf("close blob store: %v", err)
		}
	})
	return s
}

// empty keeps the bucket, which outlives the test, from filling up.
func empty(t testing.TB, s *blob.Store) {
	ctx := context.WithoutCancel(t.Context())
	err := s.List(ctx, "", func(e blob.Entry) error { return s.Delete(ctx, e.Key) })
	if err != nil {
		t.Errorf("empty blob store: %v", err)
	}
}

// bucketURL gives a place of its own inside the test bucket.
func bucketURL(t *testing.T) string {
	t.Helper()
	where := os.Getenv("AIRLOCK_TEST_S3_URL")
	if where == "" {
		if slices.Contains(strings.Split(os.Getenv("AIRLOCK_REQUIRE"), ","), "s3") {
			t.Fatal("s3 is required and AIRLOCK_TEST_S3_URL is not set")
		}
		t.Skip("s3 is not available: AIRLOCK_TEST_S3_URL is not set")
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatalf("AIRLOCK_TEST_S3_URL: %v", err)
	}
	q := u.Query()
	q.Set("prefix", rand.Text()+"/")
	u.RawQuery = q.Encode()
	return u.String()
}
