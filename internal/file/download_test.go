package file_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b) // never fails
	return b
}

func TestUploadsAreNotDownloadableAndOutputsAre(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		up := x.upload(`name="file"; filename="a.txt"`, "x")
		path := fmt.Sprintf("/v1/files/%s/content", up["id"])
		wantError(t, x.do("GET", path, nil), http.StatusBadRequest, "invalid_request_error", "file_not_downloadable",
			fmt.Sprintf("`%s`", up["id"]))
		x.files.UploadsDownloadable = true
		if r := x.do("GET", path, nil); r.status != http.StatusOK || string(r.body) != "x" {
			t.Errorf("with the setting: %d %q", r.status, r.body)
		}
		x.files.UploadsDownloadable = false
		content := randomBytes(3 << 20)
		out := x.output("a.bin", content)
		r := x.do("GET", "/v1/files/"+string(out.ID)+"/content", nil, "Accept", "application/binary")
		if r.status != http.StatusOK || !bytes.Equal(r.body, content) {
			t.Errorf("output: %d, %d bytes", r.status, len(r.body))
		}
		meta := decode(t, x.do("GET", "/v1/files/"+string(out.ID), nil), http.StatusOK)
		if meta["downloadable"] != true || meta["expires_at"] != nil {
			t.Errorf("metadata %v", meta)
		}
	})
}

func TestDownloadHeaders(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		out := x.output("page.html", []byte("<script>alert(1)</script>"))
		for _, method := range []string{"GET", "HEAD"} {
			r := x.do(method, "/v1/files/"+string(out.ID)+"/content", nil)
			got := map[string]string{}
			for _, h := range []string{"Content-Type", "Content-Length", "Content-Disposition", "X-Content-Type-Options", "Cache-Control", "Content-Security-Policy", "Accept-Ranges"} {
				got[h] = r.header.Get(h)
			}
			want := map[string]string{
				"Content-Type": "text/html", "Content-Length": "25", "X-Content-Type-Options": "nosniff",
				"Content-Disposition":     `attachment; filename="page.html"; filename*=UTF-8''page.html`,
				"Cache-Control":           "private, no-store",
				"Content-Security-Policy": "sandbox", "Accept-Ranges": "bytes",
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", method, d)
			}
			if method == "HEAD" && (r.status != http.StatusOK || len(r.body) != 0) {
				t.Errorf("HEAD: %d, %d bytes", r.status, len(r.body))
			}
		}
	})
}

func TestCase39DownloadNamesTheFileTwice(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for name, want := range map[string]string{
			"第1组.txt":          `attachment; filename="_1_.txt"; filename*=UTF-8''%E7%AC%AC1%E7%BB%84.txt`,
			"naïve file.csv":   `attachment; filename="na_ve file.csv"; filename*=UTF-8''na%C3%AFve%20file.csv`,
			"100% a+b;c.txt":   `attachment; filename="100_ a+b;c.txt"; filename*=UTF-8''100%25%20a%2Bb%3Bc.txt`,
			"a\u202eb\u0085.x": `attachment; filename="a_b_.x"; filename*=UTF-8''a%E2%80%AEb%C2%85.x`,
		} {
			out := x.output(name, []byte("x"))
			r := x.do("GET", "/v1/files/"+string(out.ID)+"/content", nil)
			if got := r.header.Values("Content-Disposition"); len(got) != 1 || got[0] != want {
				t.Errorf("%q:\ngot  %q\nwant %q", name, got, want)
			}
		}
	})
}

func TestRanges(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		content := randomBytes(1000)
		out := x.output("a.bin", content)
		path := "/v1/files/" + string(out.ID) + "/content"
		etag := x.do("HEAD", path, nil).header.Get("Etag")
		for _, tt := range []struct {
			headers    []string
			status     int
			start, end int
			rangeText  string
		}{
			{[]string{"Range", "bytes=0-9"}, 206, 0, 10, "bytes 0-9/1000"},
			{[]string{"Range", "bytes=10-"}, 206, 10, 1000, "bytes 10-999/1000"},
			{[]string{"Range", "bytes=-10"}, 206, 990, 1000, "bytes 990-999/1000"},
			{[]string{"Range", "bytes=-5000"}, 206, 0, 1000, "bytes 0-999/1000"},
			{[]string{"Range", "bytes=990-5000"}, 206, 990, 1000, "bytes 990-999/1000"},
			{[]string{"Range", "bytes=0-0"}, 206, 0, 1, "bytes 0-0/1000"},
			{[]string{"Range", "bytes=0-9", "If-Range", etag}, 206, 0, 10, "bytes 0-9/1000"},
			{[]string{"Range", "bytes=0-9", "If-Range", `"other"`}, 200, 0, 1000, ""},
			{[]string{"Range", "bytes=0-1,5-6"}, 200, 0, 1000, ""},
			{[]string{"Range", "bytes=9-1"}, 200, 0, 1000, ""},
			{[]string{"Range", "bytes=a-b"}, 200, 0, 1000, ""},
			{[]string{"Range", "lines=1-2"}, 200, 0, 1000, ""},
		} {
			r := x.do("GET", path, nil, tt.headers...)
			if r.status != tt.status || !bytes.Equal(r.body, content[tt.start:tt.end]) || r.header.Get("Content-Range") != tt.rangeText {
				t.Errorf("%v: status %d, %d bytes, %q", tt.headers, r.status, len(r.body), r.header.Get("Content-Range"))
			}
		}
		for _, v := range []string{"bytes=1000-", "bytes=5000-6000", "bytes=-0", "bytes=99999999999999999999-"} {
			r := x.do("GET", path, nil, "Range", v)
			wantError(t, r, http.StatusRequestedRangeNotSatisfiable, "invalid_request_error", "", "1000 bytes")
			if got := r.header.Get("Content-Range"); got != "bytes */1000" {
				t.Errorf("%s: content-range %q", v, got)
			}
		}
		if r := x.do("GET", path, nil, "If-None-Match", etag); r.status != http.StatusNotModified || len(r.body) != 0 {
			t.Errorf("If-None-Match: %d", r.status)
		}
	})
}

func TestExpiryIsReadFromTheClockNotFromTheSweeper(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.files.UploadsDownloadable = true
		var id file.ID
		var meta, content string
		upload := func() {
			got := decode(t, x.send(form(part(`name="expires_in_seconds"`, "", "3600"), part(`name="file"; filename="a"`, "", "x"))), http.StatusOK)
			id = file.ID(got["id"].(string))
			meta, content = "/v1/files/"+string(id), "/v1/files/"+string(id)+"/content"
		}
		check := func(usable, listed bool) {
			t.Helper()
			r := x.do("GET", content, nil)
			_, body, openErr := x.files.Open(t.Context(), x.app, id)
			_, authErr := x.files.Authorize(t.Context(), x.app, []file.ID{id})
			switch {
			case usable:
				if r.status != http.StatusOK || openErr != nil || authErr != nil {
					t.Errorf("content %d, open %v, authorize %v", r.status, openErr, authErr)
				} else if err := body.Close(); err != nil {
					t.Error(err)
				}
			case listed:
				wantError(t, r, http.StatusNotFound, "not_found_error", "file_expired", "expired")
				if r.header.Get("X-Should-Retry") != "false" {
					t.Error("a retry is invited")
				}
				for _, err := range []error{openErr, authErr} {
					if err == nil || !strings.Contains(err.Error(), "expired") {
						t.Errorf("got %v", err)
					}
				}
			default:
				wantError(t, r, http.StatusNotFound, "not_found_error", "", "Not found")
			}
			want := http.StatusNotFound
			n := 0
			if listed {
				want, n = http.StatusOK, 1
			}
			if r := x.do("GET", meta, nil); r.status != want {
				t.Errorf("metadata %d, want %d", r.status, want)
			}
			list := decode(t, x.do("GET", "/v1/files", nil), http.StatusOK)
			if d := list["data"].([]any); len(d) != n {
				t.Errorf("list has %d, want %d", len(d), n)
			}
		}
		for _, sweep := range []bool{false, true} {
			step := func() {
				if sweep {
					if err := x.files.Sweep(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			upload() // the clock of a server never goes back
			if !sweep {
				x.advance(3600*time.Second - time.Microsecond)
				check(true, true)
				x.advance(time.Microsecond)
			} else {
				x.advance(3600 * time.Second)
			}
			step()
			check(false, true)
			x.advance(30*24*time.Hour - time.Microsecond)
			step()
			check(false, true)
			x.advance(time.Microsecond)
			step()
			check(false, false)
		}
		x.nothingStored()
	})
}

func TestExpiredFileCanBeDeletedAndDeletionIsFinal(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		got := decode(t, x.send(form(part(`name="expires_in_seconds"`, "", "3600"), part(`name="file"; filename="a"`, "", "x"))), http.StatusOK)
		path := fmt.Sprintf("/v1/files/%s", got["id"])
		x.advance(2 * time.Hour)
		want := fmt.Sprintf(`{"id":"%s","type":"file_deleted"}`, got["id"])
		if r := x.do("DELETE", path, nil); r.status != http.StatusOK || string(r.body) != want {
			t.Errorf("%d %s, want %s", r.status, r.body, want)
		}
		for _, method := range []string{"DELETE", "GET"} {
			wantError(t, x.do(method, path, nil), http.StatusNotFound, "not_found_error", "", "Not found")
		}
		x.nothingStored()
	})
}

func TestExactlyOneOfConcurrentDeletesSucceeds(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		out := x.output("a", []byte("x"))
		var wg sync.WaitGroup
		statuses := make(chan int, 8)
		for range 8 {
			wg.Go(func() { statuses <- x.do("DELETE", "/v1/files/"+string(out.ID), nil).status })
		}
		wg.Wait()
		close(statuses)
		n := map[int]int{}
		for s := range statuses {
			n[s]++
		}
		if n[200] != 1 || n[404] != 7 {
			t.Errorf("statuses %v", n)
		}
	})
}

func TestDownloadThatBeganBeforeADeletionIsComplete(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		content := randomBytes(8 << 20)
		out := x.output("a", content)
		r, err := http.NewRequestWithContext(t.Context(), "GET", x.url+"/v1/files/"+string(out.ID)+"/content", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.files.Delete(t.Context(), x.app, out.ID); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || !bytes.Equal(b, content) {
			t.Errorf("%d of %d bytes, %v", len(b), len(content), err)
		}
	})
}

func TestBytesLostByTheStoreAreOurFaultAndSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blobs, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	x := newFixture(t, dbtest.SQLite(t), blobs)
	out := x.output("a", []byte("x"))
	if err := os.RemoveAll(filepath.Join(dir, "files")); err != nil {
		t.Fatal(err)
	}
	r := x.do("GET", "/v1/files/"+string(out.ID)+"/content", nil)
	wantError(t, r, http.StatusInternalServerError, "api_error", "", "Internal server error")
	if bytes.Contains(r.body, []byte(dir)) || bytes.Contains(r.body, []byte("blob")) {
		t.Errorf("the answer tells of the inside: %s", r.body)
	}
}

// slowConn takes a little at a time, as a client behind a slow line does.
type slowConn struct {
	net.Conn
}

func (c slowConn) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		m, err := c.Conn.Write(b[n:min(len(b), n+16<<10)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return len(b), nil
}

func TestCase43SlowDownloadIsNeverCut(t *testing.T) {
	t.Parallel()
	content := randomBytes(8 << 20)
	d, blobs := dbtest.SQLite(t), blobtest.Folder(t)
	x := newFixture(t, d, blobs)
	out := x.output("a", content)
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("id", string(out.ID))
		if err := x.files.ServeDownload(w, r, x.app); err != nil {
			t.Errorf("download: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// A pipe has no buffer at all: every byte handed over is a byte the client has taken.
		client, server := net.Pipe()
		w := &pipeWriter{conn: slowConn{Conn: server}, header: http.Header{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err := http.NewRequestWithContext(context.Background(), "GET", "/", nil)
			if err != nil {
				t.Error(err)
				return
			}
			handler.ServeHTTP(w, r)
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		sum, total := sha256.New(), 0
		buf := make([]byte, 16<<10)
		for {
			n, err := client.Read(buf)
			sum.Write(buf[:n])
			total += n
			if err != nil {
				break
			}
			<-time.After(4 * time.Second) // 4 KiB/s: over half an hour in all, in the bubble's time
		}
		<-done
		want := sha256.Sum256(content)
		if total != len(content) || !bytes.Equal(sum.Sum(nil), want[:]) {
			t.Errorf("%d of %d bytes arrived", total, len(content))
		}
		if took := time.Since(began); took < 30*time.Minute {
			t.Errorf("took %v, so the client was not slow", took)
		}
	})
}

// pipeWriter is a response on a pipe, with the deadlines a real connection has.
type pipeWriter struct {
	conn   slowConn
	header http.Header
}

func (w *pipeWriter) Header() http.Header                { return w.header }
func (w *pipeWriter) WriteHeader(int)                    {}
func (w *pipeWriter) Write(b []byte) (int, error)        { return w.conn.Write(b) }
func (w *pipeWriter) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

func TestCase43SilentClientIsGivenUp(t *testing.T) {
	t.Parallel()
	x := newFixture(t, dbtest.SQLite(t), blobtest.Folder(t))
	out := x.output("a", randomBytes(1<<20))
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		r, err := http.NewRequestWithContext(context.Background(), "GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetPathValue("id", string(out.ID))
		err = x.files.ServeDownload(&pipeWriter{conn: slowConn{Conn: server}, header: http.Header{}}, r, x.app)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a deadline", err)
		}
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestCase44ErrorIsNeverTakenForContent(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		r := x.do("GET", "/v1/files/file_01nosuch/content", nil)
		wantError(t, r, http.StatusNotFound, "not_found_error", "", "Not found")
		if ct := r.header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("content-type %q", ct)
		}
		if r.header.Get("Content-Disposition") != "" || r.header.Get("Etag") != "" {
			t.Errorf("headers of a file: %v", r.header)
		}
	})
}
