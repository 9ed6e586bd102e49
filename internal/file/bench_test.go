package file_test

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// plainServer is what a Go programmer writes in ten minutes: the form's file into a file, synced, and
// http.ServeFile back.
func plainServer(b *testing.B, dir string) http.Handler {
	b.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/files", func(w http.ResponseWriter, r *http.Request) {
		mr, err := r.MultipartReader()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p, err := mr.NextPart()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f, err := os.CreateTemp(dir, "up")
		if err != nil {
			b.Error(err)
			return
		}
		_, err = io.Copy(f, p)
		if err := errors.Join(err, f.Sync(), f.Close(), os.Rename(f.Name(), filepath.Join(dir, "file"))); err != nil {
			b.Error(err)
		}
	})
	mux.HandleFunc("GET /v1/files/{id}/content", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dir, "file"))
	})
	return mux
}

// BenchmarkTransfer compares uploads and downloads of 32 MiB with the plain server, interleaved, and
// reports the ratio of the medians; the budget is 0.8.
func BenchmarkTransfer(b *testing.B) {
	content := randomBytes(32 << 20)
	s := &file.Service{DB: dbtest.SQLite(b), Blobs: blobtest.Folder(b), CursorKey: wire.NewCursorKey(), UploadsDownloadable: true}
	app, err := (&tenant.Service{DB: s.DB}).CreateApp(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	c := tenant.Caller{AppID: app.ID}
	mux := &wire.Mux{Log: quietLog}
	mux.Handle("POST /v1/files", wire.Handler(quietLog, func(w http.ResponseWriter, r *http.Request) error { return s.ServeUpload(w, r, c) }))
	mux.Handle("GET /v1/files/{id}/content", wire.Handler(quietLog, func(w http.ResponseWriter, r *http.Request) error { return s.ServeDownload(w, r, c) }))
	f, err := s.Upload(b.Context(), c, file.UploadParams{Filename: "a.bin", Body: bytes.NewReader(content)})
	if err != nil {
		b.Fatal(err)
	}
	servers := []string{}
	for _, h := range []http.Handler{plainServer(b, b.TempDir()), mux} {
		srv := httptest.NewServer(h)
		b.Cleanup(srv.Close)
		servers = append(servers, srv.URL)
	}
	var up, down [2][]time.Duration
	b.ResetTimer()
	for range b.N {
		for i, url := range servers {
			up[i] = append(up[i], timeUpload(b, url, content))
			down[i] = append(down[i], timeDownload(b, url+"/v1/files/"+string(f.ID)+"/content", len(content)))
		}
	}
	b.ReportMetric(ratio(up), "upload-ratio")
	b.ReportMetric(ratio(down), "download-ratio")
	b.ReportMetric(float64(median(up[1]).Milliseconds()), "upload-ms")
	b.ReportMetric(float64(median(down[1]).Milliseconds()), "download-ms")
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// ratio is our throughput as a part of the plain server's.
func ratio(d [2][]time.Duration) float64 { return float64(median(d[0])) / float64(median(d[1])) }

func timeUpload(b *testing.B, url string, content []byte) time.Duration {
	b.Helper()
	var head bytes.Buffer
	mw := multipart.NewWriter(&head)
	if _, err := mw.CreateFormFile("file", "a.bin"); err != nil {
		b.Fatal(err)
	}
	tail := "\r\n--" + mw.Boundary() + "--\r\n"
	r, err := http.NewRequestWithContext(b.Context(), "POST", url+"/v1/files", io.MultiReader(&head, bytes.NewReader(content), bytes.NewReader([]byte(tail))))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", mw.FormDataContentType())
	return roundTrip(b, r, -1)
}

func timeDownload(b *testing.B, url string, n int) time.Duration {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), "GET", url, nil)
	if err != nil {
		b.Fatal(err)
	}
	return roundTrip(b, r, int64(n))
}

func roundTrip(b *testing.B, r *http.Request, want int64) time.Duration {
	b.Helper()
	began := time.Now()
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK || (want >= 0 && n != want) {
		b.Fatalf("%d, %d bytes, %v", res.StatusCode, n, err)
	}
	return time.Since(began)
}
