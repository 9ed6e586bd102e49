package container_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// cutOnce is a bucket with one object, whose first reader loses the connection in the middle.
func cutOnce(t *testing.T, object []byte) *blob.Store {
	t.Helper()
	var reads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 10:00:00 GMT")
		if reads.Add(1) > 1 {
			_, _ = w.Write(object) // the client says what it got
			return
		}
		_, _ = w.Write(object[:len(object)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	store, err := blob.Open(t.Context(), "s3://bucket?region=us-east-1&anonymous=true&use_path_style=true&endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// object reads the one packed workspace of the store.
func object(t *testing.T, e *containertest.Env) []byte {
	t.Helper()
	r, err := e.Blobs.Open(t.Context(), packs(t, e)[0].Key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConnectionToTheStoreThatBreaksOffIsNoLoss(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo kept > f")
		rest(t, e, id)
		e.Blobs = cutOnce(t, object(t, e))
		_, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil)
		wantError(t, err, 500, "")
		if out, _ := e.Sh(t, id, "cat f"); out != "kept\n" {
			t.Errorf("the next use reads %q", out)
		}
	})
}

// A damaged workspace is the one whose bytes somebody may want to look at.
func TestDamagedPackedWorkspaceIsKeptForAWeek(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo > f")
		rest(t, e, id)
		if _, err := e.Blobs.Put(t.Context(), packs(t, e)[0].Key, bytes.NewReader([]byte("no workspace"))); err != nil {
			t.Fatal(err)
		}
		_, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil)
		wantError(t, err, 404, container.CodeLost)
		for _, want := range []int{1, 0} {
			if err := e.SweepYoungBlobs(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := len(packs(t, e)); got != want {
				t.Errorf("%d blobs are left, want %d", got, want)
			}
			e.Clock.Add(8 * 24 * time.Hour)
		}
	})
}
