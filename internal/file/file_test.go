package file_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// fixture is a Files API on a real server, with two apps and one clock that tests move.
type fixture struct {
	t     *testing.T
	files *file.Service
	url   string
	// app and other are the owners of two apps.
	app, other tenant.Caller

	mu  sync.Mutex
	now time.Time
}

var quietLog = slog.New(slog.DiscardHandler)

var start = time.Date(2026, 11, 29, 16, 18, 0, 0, time.UTC)

// run runs fn on both databases.
func run(t *testing.T, fn func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) { fn(t, newFixture(t, d, blobtest.Folder(t))) })
}

func newFixture(t *testing.T, d *db.DB, blobs *blob.Store) *fixture {
	t.Helper()
	x := &fixture{t: t, now: start}
	quiet := quietLog
	x.files = &file.Service{DB: d, Blobs: blobs, Log: quiet, Now: x.clock, CursorKey: wire.NewCursorKey()}
	tenants := &tenant.Service{DB: d, Now: x.clock}
	for name, c := range map[string]*tenant.Caller{"one": &x.app, "two": &x.other} {
		a, err := tenants.CreateApp(t.Context(), name)
		if err != nil {
			t.Fatalf("create app: %v", err)
		}
		*c = tenant.Caller{AppID: a.ID, Scope: tenant.ScopeUser}
	}
	mux := &wire.Mux{Log: quiet}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, tenant.Caller) error{
		"POST /v1/files":             x.files.ServeUpload,
		"GET /v1/files":              x.files.ServeList,
		"GET /v1/files/{id}":         x.files.ServeGet,
		"GET /v1/files/{id}/content": x.files.ServeDownload,
		"DELETE /v1/files/{id}":      x.files.ServeDelete,
	} {
		mux.Handle(pattern, wire.Handler(quiet, func(w http.ResponseWriter, r *http.Request) error {
			return h(w, r, x.caller(r.Header))
		}))
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	x.url = srv.URL
	return x
}

// caller stands in for authentication, which tenant tests.
func (x *fixture) caller(h http.Header) tenant.Caller {
	c := x.app
	if h.Get("Test-App") == "two" {
		c = x.other
	}
	c.UserID = h.Get("Test-User")
	if s := h.Get("Test-Scope"); s != "" {
		c.Scope = tenant.Scope(s)
	}
	return c
}

func (x *fixture) clock() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

func (x *fixture) advance(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = x.now.Add(d)
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request; headers are given as name, value, name, value.
func (x *fixture) do(method, path string, body io.Reader, headers ...string) reply {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), method, x.url+path, body)
	if err != nil {
		x.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		x.t.Fatalf("%s %s: %v", method, path, err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		x.t.Fatalf("%s %s: read: %v", method, path, err)
	}
	if err := res.Body.Close(); err != nil {
		x.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, b}
}

// form is a multipart body written by hand, so that tests control every byte of its headers.
func form(parts ...string) io.Reader {
	return strings.NewReader("--b1\r\n" + strings.Join(parts, "\r\n--b1\r\n") + "\r\n--b1--\r\n")
}

// part is one part with its Content-Disposition parameters as sent and its other headers.
func part(disposition, headers, body string) string {
	if headers != "" {
		headers += "\r\n"
	}
	return "Content-Disposition: form-data; " + disposition + "\r\n" + headers + "\r\n" + body
}

func (x *fixture) send(body io.Reader, headers ...string) reply {
	x.t.Helper()
	return x.do("POST", "/v1/files", body, append([]string{"Content-Type", "multipart/form-data; boundary=b1"}, headers...)...)
}

// upload sends a file that must be accepted and gives its metadata.
func (x *fixture) upload(disposition, content string, headers ...string) map[string]any {
	x.t.Helper()
	return decode(x.t, x.send(form(part(disposition, "", content)), headers...), http.StatusOK)
}

// output makes a file as a container does.
func (x *fixture) output(name string, content []byte) *file.File {
	x.t.Helper()
	f, err := x.files.CreateOutput(x.t.Context(), x.app.Owner(), file.OutputParams{
		Filename: name, Body: bytes.NewReader(content), ContainerID: "container_01x", CallID: "srvtoolu_01x",
	})
	if err != nil {
		x.t.Fatalf("create output %q: %v", name, err)
	}
	return f
}

func decode(t *testing.T, r reply, status int) map[string]any {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	if r.header.Get("Request-Id") == "" {
		t.Error("no request-id header")
	}
	return v
}

// wantError checks status, type and code, and that the message contains a text.
func wantError(t *testing.T, r reply, status int, kind, code, contains string) {
	t.Helper()
	v := decode(t, r, status)
	e, ok := v["error"].(map[string]any)
	if !ok || v["type"] != "error" {
		t.Fatalf("no error body: %s", r.body)
	}
	if v["request_id"] != r.header.Get("Request-Id") {
		t.Errorf("request_id %v, header %q", v["request_id"], r.header.Get("Request-Id"))
	}
	if e["type"] != kind {
		t.Errorf("type %v, want %s", e["type"], kind)
	}
	got := ""
	if d, ok := e["details"].(map[string]any); ok {
		got, _ = d["error_code"].(string)
	}
	if got != code {
		t.Errorf("error_code %q, want %q", got, code)
	}
	if msg, _ := e["message"].(string); !strings.Contains(msg, contains) {
		t.Errorf("message %q does not contain %q", msg, contains)
	}
}

// blobs counts the stored blobs.
func (x *fixture) blobs() int {
	x.t.Helper()
	n := 0
	err := x.files.Blobs.List(context.WithoutCancel(x.t.Context()), "", func(blob.Entry) error {
		n++
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// rows counts the files that are no tombstones.
func (x *fixture) rows() int64 {
	x.t.Helper()
	n, err := x.files.DB.Read().NewSelect().Table("files").Where("deleted_at IS NULL").Count(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// nothingStored checks that a refused upload left neither row nor bytes.
func (x *fixture) nothingStored() {
	x.t.Helper()
	if r, b := x.rows(), x.blobs(); r != 0 || b != 0 {
		x.t.Errorf("left behind: %d rows, %d blobs", r, b)
	}
}
