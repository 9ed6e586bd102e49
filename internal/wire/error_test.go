package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

var quiet = slog.New(slog.DiscardHandler)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func do(t *testing.T, method, url string, body io.Reader, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, b}
}

const diskFull = `{"type":"overloaded_error","message":"The server's disk is full, so this could not be done. Reading works, and deleting makes room.","details":{"error_code":"disk_full"}}`

func TestErrorBodies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err     error
		status  int
		want    string // of the member error
		headers map[string]string
	}{
		{wire.Invalid("a.%d: bad.", 1), 400, `{"type":"invalid_request_error","message":"a.1: bad."}`, nil},
		{wire.Invalid("x").WithCode("file_not_downloadable"), 400, `{"type":"invalid_request_error","message":"x","details":{"error_code":"file_not_downloadable"}}`, nil},
		{wire.Unauthorized("x"), 401, `{"type":"authentication_error","message":"x"}`, nil},
		{&wire.Error{Type: wire.TypeBilling, Message: "x"}, 402, `{"type":"billing_error","message":"x"}`, nil},
		{wire.Forbidden("x"), 403, `{"type":"permission_error","message":"x"}`, nil},
		{wire.NotFound(), 404, `{"type":"not_found_error","message":"Not found"}`, nil},
		{wire.Conflict("x"), 409, `{"type":"conflict_error","message":"x"}`, map[string]string{"X-Should-Retry": "false"}},
		{wire.TooLarge("x"), 413, `{"type":"request_too_large","message":"x"}`, nil},
		{wire.RateLimited(5*time.Second, "x"), 429, `{"type":"rate_limit_error","message":"x"}`, map[string]string{"Retry-After": "5", "X-Should-Retry": ""}},
		{wire.Overloaded(1500*time.Millisecond, "x"), 529, `{"type":"overloaded_error","message":"x"}`, map[string]string{"Retry-After": "2"}},
		{fmt.Errorf("write: %w", &os.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}), 529, diskFull, map[string]string{"Retry-After": "60"}},
		{errors.Join(errors.New("x"), fmt.Errorf("write: %w", syscall.EDQUOT)), 529, diskFull, map[string]string{"Retry-After": "60"}},
		{&wire.Error{Type: wire.TypeTimeout, Message: "x"}, 504, `{"type":"timeout_error","message":"x"}`, nil},
		{
			&wire.Error{Type: wire.TypeInvalidRequest, Message: "x", Code: "thread_unsupported_request", Details: map[string]any{"unsupported": nil}}, 400,
			`{"type":"invalid_request_error","message":"x","details":{"error_code":"thread_unsupported_request","unsupported":null}}`, nil,
		},
		{fmt.Errorf("wrapped: %w", wire.NotFound()), 404, `{"type":"not_found_error","message":"Not found"}`, nil},
		{wire.Invalid("quotes <b> & \"q\" é"), 400, `{"type":"invalid_request_error","message":"quotes <b> & \"q\" é"}`, nil},
	} {
		url := serve(t, wire.Handler(quiet, func(http.ResponseWriter, *http.Request) error { return tt.err }))
		r := do(t, "GET", url, nil)
		id := r.header.Get("Request-Id")
		want := `{"type":"error","error":` + tt.want + `,"request_id":"` + id + `"}`
		if r.status != tt.status || string(r.body) != want {
			t.Errorf("%v:\ngot  %d %s\nwant %d %s", tt.err, r.status, r.body, tt.status, want)
		}
		if !strings.HasPrefix(id, "req_01") || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%v: headers %v", tt.err, r.header)
		}
		for k, v := range tt.headers {
			if r.header.Get(k) != v {
				t.Errorf("%v: %s %q, want %q", tt.err, k, r.header.Get(k), v)
			}
		}
		if head := do(t, "HEAD", url, nil); head.status != tt.status || len(head.body) != 0 {
			t.Errorf("%v: HEAD %d with %d bytes", tt.err, head.status, len(head.body))
		}
	}
}

func TestUnknownErrorsAndPanicsTellTheClientNothingAndTheLogEverything(t *testing.T) {
	t.Parallel()
	const marker = "SELECT secret FROM /var/lib/airlock"
	for name, h := range map[string]wire.HandlerFunc{
		"error":    func(http.ResponseWriter, *http.Request) error { return errors.New(marker) },
		"internal": func(http.ResponseWriter, *http.Request) error { return wire.Internal(errors.New(marker)) },
		"panic":    func(http.ResponseWriter, *http.Request) error { panic(marker) },
		"cause": func(http.ResponseWriter, *http.Request) error {
			return &wire.Error{Type: wire.TypeAPI, Message: "Something went wrong.", Err: errors.New(marker)}
		},
	} {
		var log bytes.Buffer
		url := serve(t, wire.Handler(slog.New(slog.NewTextHandler(&log, nil)), h))
		r := do(t, "GET", url, nil)
		if r.status != 500 || bytes.Contains(r.body, []byte("SELECT")) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if !strings.Contains(log.String(), marker) || !strings.Contains(log.String(), r.header.Get("Request-Id")) {
			t.Errorf("%s: log %s", name, log.String())
		}
	}
}

func TestErrorAfterTheAnswerStartedCutsTheConnection(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]wire.HandlerFunc{
		"error": func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = w.Write(make([]byte, 100_000))
			return errors.New("lost")
		},
		"panic": func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = w.Write(make([]byte, 100_000))
			panic("lost")
		},
		"abort": func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = w.Write(make([]byte, 100_000))
			panic(http.ErrAbortHandler)
		},
	} {
		srv := httptest.NewUnstartedServer(wire.Handler(quiet, h))
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		srv.Start()
		t.Cleanup(srv.Close)
		r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.ReadAll(res.Body); err == nil {
			t.Errorf("%s: a truncated answer looks whole", name)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What is left of a body that broke off would be read as the next request, and the server thinks that its client has gone.
func TestConnectionOfABodyThatBrokeOffIsClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rest   io.Reader
		closed string
	}{"broken": {iotest.ErrReader(os.ErrDeadlineExceeded), "close"}, "whole": {strings.NewReader("rest"), ""}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", io.MultiReader(strings.NewReader("begin"), tt.rest))
		r.ContentLength = 9
		wire.Handler(quiet, func(_ http.ResponseWriter, r *http.Request) error {
			_, err := io.ReadAll(r.Body)
			return wire.Invalid("refused: %v", err)
		}).ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != tt.closed {
			t.Errorf("%s: connection %q, want %q", name, got, tt.closed)
		}
	}
}

func TestErrorBodyForStreamsCarriesTheRequestID(t *testing.T) {
	t.Parallel()
	ctx := wire.WithRequestID(context.Background(), "req_1")
	got := string(wire.ErrorBody(ctx, wire.Overloaded(time.Second, "busy")))
	if want := `{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"req_1"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if b := wire.ErrorBody(ctx, &wire.Error{Message: "x", Details: map[string]any{"f": func() {}}}); !json.Valid(b) {
		t.Errorf("details that cannot be encoded give %s", b)
	}
}

func TestHandlerKeepsTheRequestIDOfAnOuterOne(t *testing.T) {
	t.Parallel()
	inner := wire.Handler(quiet, func(_ http.ResponseWriter, r *http.Request) error {
		return wire.Invalid("%s", wire.RequestID(r.Context()))
	})
	url := serve(t, wire.Handler(quiet, func(w http.ResponseWriter, r *http.Request) error {
		inner.ServeHTTP(w, r)
		return nil
	}))
	r := do(t, "GET", url, nil)
	if id := r.header.Get("Request-Id"); !bytes.Contains(r.body, []byte(`"message":"`+id+`"`)) {
		t.Errorf("header %s, body %s", id, r.body)
	}
}

func TestMuxAnswersUnknownPathsAndMethodsInOurShape(t *testing.T) {
	t.Parallel()
	mux := &wire.Mux{Log: quiet}
	ok := wire.Handler(quiet, func(w http.ResponseWriter, r *http.Request) error {
		return wire.WriteJSON(w, http.StatusOK, map[string]string{"id": r.PathValue("id")})
	})
	mux.Handle("GET /v1/files/{id}", ok)
	mux.Handle("DELETE /v1/files/{id}", ok)
	mux.Handle("POST /v1/messages", ok)
	mux.Handle("GET /v1/tree/{path...}", ok)
	url := serve(t, mux)
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/v1/files/a", 200, ""},
		{"HEAD", "/v1/files/a", 200, ""},
		{"GET", "/v1/files/a%2Fcontent", 200, ""},
		{"GET", "/nothing", 404, ""},
		{"GET", "/", 404, ""},
		{"POST", "/v1/files/a/b", 404, ""},
		{"PUT", "/v1/files/a", 405, "DELETE, GET, HEAD"},
		{"GET", "/v1/messages", 405, "POST"},
		{"GET", "//v1/files/a", 404, ""},
		{"GET", "/v1/./files/a", 404, ""},
		{"POST", "/v1/files/../messages", 404, ""},
		{"POST", "/v1/files/%2e%2e/messages", 404, ""},
		{"GET", "/v1/files/a/", 404, ""},
		{"GET", "/v1/tree/", 200, ""},
		{"GET", "/v1/tree", 404, ""},
		{"POST", "/v1/messages;x=1", 404, ""},
		{"BREW", "/v1/messages", 405, "POST"},
	} {
		r := do(t, tt.method, url+tt.path, nil)
		if r.status != tt.status || r.header.Get("Allow") != tt.allow {
			t.Errorf("%s %s: %d allow %q, want %d %q", tt.method, tt.path, r.status, r.header.Get("Allow"), tt.status, tt.allow)
		}
		if tt.status >= 400 && tt.method != "HEAD" {
			kind := map[int]string{404: "not_found_error", 405: "invalid_request_error"}[tt.status]
			if !bytes.Contains(r.body, []byte(`"type":"`+kind+`"`)) || !bytes.Contains(r.body, []byte(r.header.Get("Request-Id"))) {
				t.Errorf("%s %s: %s", tt.method, tt.path, r.body)
			}
		}
	}
}

func TestCase49BodyOverTheLimitIs413NamingItAndTheClientSeesIt(t *testing.T) {
	t.Parallel()
	const limit = 32 << 20
	url := serve(t, wire.Handler(quiet, func(w http.ResponseWriter, r *http.Request) error {
		b, err := wire.ReadBody(r, limit)
		if err != nil {
			return err
		}
		return wire.WriteJSON(w, http.StatusOK, len(b))
	}))
	for _, n := range []int64{limit - 1, limit, limit + 1, 3 * limit} {
		for _, declared := range []bool{true, false} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", url, io.LimitReader(zeros{}, n))
			if err != nil {
				t.Fatal(err)
			}
			if declared {
				r.ContentLength = n
			}
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Errorf("%d bytes, declared %v: the client sees %v in place of an answer", n, declared, err)
				continue
			}
			b, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Error(err)
			}
			if n <= limit {
				if res.StatusCode != 200 || string(b) != strconv.FormatInt(n, 10) {
					t.Errorf("%d bytes: %d %s", n, res.StatusCode, b)
				}
				continue
			}
			if res.StatusCode != 413 || !bytes.Contains(b, []byte("32 MiB (33554432 bytes)")) || !bytes.Contains(b, []byte("request_too_large")) {
				t.Errorf("%d bytes: %d %s", n, res.StatusCode, b)
			}
		}
	}
}

// TestRefusedClientThatSendsBlindlyStillGetsTheAnswer is a client that writes its whole body before it
// reads, as many do: a server that closes at once resets the connection and the answer is lost.
func TestRefusedClientThatSendsBlindlyStillGetsTheAnswer(t *testing.T) {
	t.Parallel()
	url := serve(t, wire.Handler(quiet, func(_ http.ResponseWriter, r *http.Request) error {
		_, err := wire.ReadBody(r, 1000)
		return err
	}))
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const n = 24 << 20
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", n); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(conn, io.LimitReader(zeros{}, n)); err != nil {
		t.Fatalf("sending: %v", err)
	}
	b, err := io.ReadAll(conn)
	if err := errors.Join(err, conn.Close()); err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 413 ")) || !bytes.Contains(b, []byte("1000 bytes")) {
		t.Errorf("answer %.300q, %v", b, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestBodyThatEndsEarlyIsTheClientsFault(t *testing.T) {
	t.Parallel()
	url := serve(t, wire.Handler(quiet, func(_ http.ResponseWriter, r *http.Request) error {
		_, err := wire.ReadBody(r, 1000)
		return err
	}))
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nshort"); err != nil {
		t.Fatal(err)
	}
	tcp, _ := conn.(*net.TCPConn)
	if err := tcp.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err := errors.Join(err, conn.Close()); err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 400 ")) {
		t.Errorf("answer %.200q, %v", b, err)
	}
}

func TestConnectionIsReusableAfterAnError(t *testing.T) {
	t.Parallel()
	url := serve(t, wire.Handler(quiet, func(_ http.ResponseWriter, r *http.Request) error {
		if _, err := wire.ReadBody(r, 1000); err != nil {
			return err
		}
		return wire.Invalid("x")
	}))
	for range 3 {
		if r := do(t, "POST", url, strings.NewReader("body")); r.status != 400 || r.header.Get("Connection") != "" {
			t.Errorf("%d %v", r.status, r.header)
		}
	}
}

func TestMessageInABodyIsBoundedAndStaysText(t *testing.T) {
	t.Parallel()
	b := wire.ErrorBody(t.Context(), wire.Invalid("%s", strings.Repeat("é", 1<<20)))
	if len(b) > 5000 || !utf8.Valid(b) || bytes.Contains(b, []byte("\uFFFD")) {
		t.Errorf("%d bytes: %.80s", len(b), b)
	}
}
