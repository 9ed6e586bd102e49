package file_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
)

func TestSweepRemovesBlobsWithoutARowAndNothingElse(t *testing.T) {
	t.Parallel()
	t.Run("databases", func(t *testing.T) { run(t, sweepOrphans) })
	t.Run("stores", func(t *testing.T) {
		t.Parallel()
		blobtest.Run(t, func(t *testing.T, blobs *blob.Store) {
			sweepOrphans(t, newFixture(t, dbtest.SQLite(t), blobs))
		})
	})
}

func sweepOrphans(t *testing.T, x *fixture) {
	d, blobs := x.files.DB, x.files.Blobs
	var kept []*file.File
	for range 3 {
		kept = append(kept, x.output("a", []byte("kept")))
	}
	orphan, other := "files/zz/orphan", "workspaces/image"
	for _, key := range []string{orphan, other} {
		if _, err := blobs.Put(t.Context(), key, bytes.NewReader([]byte("lost"))); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(key string) bool {
		r, err := blobs.Open(t.Context(), key, 0, -1)
		if errors.Is(err, blob.ErrNotFound) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if err := x.files.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !exists(orphan) {
		t.Error("a young blob was swept; it may belong to a running upload")
	}
	old := &file.Service{DB: d, Blobs: blobs, Log: x.files.Log, Now: x.clock, OrphanAge: time.Nanosecond}
	if err := old.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(orphan) {
		t.Error("the blob without a row is still there")
	}
	if !exists(other) {
		t.Error("a blob of somebody else was swept")
	}
	for _, f := range kept {
		_, body, err := x.files.Open(t.Context(), x.app, f.ID)
		if err != nil {
			t.Fatalf("a file lost its bytes: %v", err)
		}
		b, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || string(b) != "kept" {
			t.Errorf("%q, %v", b, err)
		}
	}
}

func TestSweepFreesExpiredBytesAndKeepsMetadata(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		hour := int64(3600)
		for range 3 {
			if _, err := x.files.Upload(t.Context(), x.app, file.UploadParams{Filename: "a", Body: strings.NewReader("x"), ExpiresIn: &hour}); err != nil {
				t.Fatal(err)
			}
		}
		x.output("stays", []byte("x"))
		if err := x.files.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := x.blobs(); n != 4 {
			t.Errorf("%d blobs before expiry, want 4", n)
		}
		x.advance(time.Hour)
		for range 2 {
			if err := x.files.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := x.blobs(); n != 1 {
			t.Errorf("%d blobs after expiry, want 1", n)
		}
		if n := len(decode(t, x.do("GET", "/v1/files", nil), http.StatusOK)["data"].([]any)); n != 4 {
			t.Errorf("%d listed, want 4", n)
		}
	})
}

func TestUploadThatEndsTooLateIsRefusedBeforeTheSweeperCouldTakeItsBytes(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.files.OrphanAge = time.Nanosecond
		r := x.send(form(part(`name="file"; filename="a"`, "", "x")))
		wantError(t, r, http.StatusBadRequest, "invalid_request_error", "", "too long")
		x.nothingStored()
	})
}
