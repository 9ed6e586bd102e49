package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/container/containertest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// testConfig is a server on a fresh data folder with the scripted model.
func testConfig(t *testing.T) Config {
	t.Helper()
	store, image := containertest.Image(t)
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Data = t.TempDir()
	cfg.Upstream = "script"
	cfg.RootFS = store.Dir
	cfg.Sandbox.RootFS = image.Name
	cfg.Sandbox.DiskBytes = 64 << 20
	cfg.Sandbox.Inodes = 5000
	cfg.Sandbox.MemoryBytes = 512 << 20
	cfg.Sandbox.AllowSharedKernel = true
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	return cfg
}

// running is a server that answers, and an API key of an app.
type running struct {
	*Server
	t     *testing.T
	key   string
	drain context.CancelFunc
	ended chan error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	ctx, drain := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{Server: s, t: t, drain: drain, ended: make(chan error, 1)}
	go func() { r.ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		s.Cut()
		drain()
		if err := <-r.ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	r.key = r.newKey("default")
	return r
}

func (r *running) newKey(app string) string {
	r.t.Helper()
	var out struct {
		Key string `json:"key"`
	}
	r.json("POST", r.AdminURL()+"/airlock/v1/keys", r.AdminKey(), map[string]any{"app": app}, 200, &out)
	return out.Key
}

// do sends a request; a body that is neither nil nor a reader is sent as JSON.
func (r *running) do(method, url, key string, body any, header ...string) *http.Response {
	r.t.Helper()
	rd, isReader := body.(io.Reader)
	if !isReader && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		rd = bytes.NewReader(b)
	}
	if !strings.HasPrefix(url, "http") {
		url = r.URL() + url
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("x-api-key", key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (r *running) json(method, url, key string, body any, status int, out any) {
	r.t.Helper()
	resp := r.do(method, url, key, body)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != status && (status != 200 || resp.StatusCode/100 != 2) {
		r.t.Fatalf("%s %s: %d %s", method, url, resp.StatusCode, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, url, err, b)
		}
	}
}

func (r *running) status(method, url, key string, body any, header ...string) int {
	r.t.Helper()
	resp := r.do(method, url, key, body, header...)
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (r *running) container(key string) string {
	r.t.Helper()
	var c struct {
		ID string `json:"id"`
	}
	r.json("POST", "/airlock/v1/containers", key, map[string]any{}, 200, &c)
	return c.ID
}

func (r *running) upload(key, name, content string) string {
	r.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	p, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = io.WriteString(p, content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		r.t.Fatal(err)
	}
	resp := r.do("POST", "/v1/files", key, &b, "content-type", w.FormDataContentType())
	var f struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || f.ID == "" {
		r.t.Fatalf("upload: %d %v", resp.StatusCode, err)
	}
	return f.ID
}

type execResult struct {
	stdout, stderr string
	exit           map[string]any
	errorType      string
}

func (r *running) exec(key, id string, body any) execResult {
	r.t.Helper()
	resp := r.do("POST", "/airlock/v1/containers/"+id+"/exec", key, body)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		r.t.Fatalf("exec: %d %s", resp.StatusCode, b)
	}
	var res execResult
	for frame := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		name, data, _ := strings.Cut(frame, "\n")
		data = strings.TrimPrefix(data, "data: ")
		switch name {
		case "event: out":
			var o struct {
				Stream string `json:"stream"`
				Data   string `json:"data_base64"`
			}
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				r.t.Fatal(err)
			}
			raw, err := base64.StdEncoding.DecodeString(o.Data)
			if err != nil {
				r.t.Fatal(err)
			}
			if o.Stream == "stdout" {
				res.stdout += string(raw)
			} else {
				res.stderr += string(raw)
			}
		case "event: exit":
			if err := json.Unmarshal([]byte(data), &res.exit); err != nil {
				r.t.Fatal(err)
			}
		default:
			res.errorType = name + " " + data
		}
	}
	return res
}

func TestRouteTable(t *testing.T) {
	t.Parallel()
	s := &Server{parts: &parts{}, cfg: DefaultConfig()}
	var b strings.Builder
	seen := map[string]bool{}
	for _, r := range s.routes() {
		where := "api"
		switch {
		case r.onBoth():
			where = "both"
		case r.onAdmin():
			where = "admin"
		}
		fmt.Fprintf(&b, "%-6s %-45s %-9s %-5s limit=%-10d turn=%-5v writes=%s\n",
			r.Method, r.Pattern, kindName(r.Kind), where, r.Limit, r.Turn, r.Writes)
		if key := r.Method + r.Pattern; seen[key] || r.Handler == nil || r.Summary == "" {
			t.Errorf("%s %s is listed twice, or without handler or summary", r.Method, r.Pattern)
		}
		seen[r.Method+r.Pattern] = true
		if r.Kind == everyone && strings.Contains(r.Pattern, "/v1/") {
			t.Errorf("%s %s takes no credential", r.Method, r.Pattern)
		}
	}
	golden := filepath.Join("testdata", "routes.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("the table changed; look at it and run with -update (-want +got):\n%s", d)
	}
}

func TestEveryRouteAsksForItsCredential(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	for _, route := range r.routes() {
		path := wildcard.ReplaceAllString(route.Pattern, "x")
		for key, kind := range map[string]string{"": "none", "sk-airlock-wrong": "unknown", r.key: "api key", r.AdminKey(): "admin key"} {
			got := r.status(route.Method, path, key, nil)
			refused := got == 401 || got == 403
			may := route.Kind == everyone || kindName(route.Kind) == kind
			if refused == may {
				t.Errorf("%s %s with %s: %d", route.Method, path, kind, got)
			}
		}
	}
}

func TestHealthVersionMetricsAndOpenAPIAnswer(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Version = NewVersion("1.2.3", "abc", "")
	r := start(t, cfg)
	for path, want := range map[string]string{
		"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ok"}`, "/version": `"version":"1.2.3","commit":"abc"`,
		"/metrics": "airlock_http_requests_total{route=", "/airlock/openapi.json": `"/airlock/v1/containers/{id}/files/{path}"`,
	} {
		resp := r.do("GET", path, "", nil)
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %v %.300s", path, resp.StatusCode, err, b)
		}
		if resp.Header.Get("request-id") == "" {
			t.Errorf("%s has no request id", path)
		}
	}
}

func TestUnknownPathsAndMethodsHaveOurErrorShape(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	for _, try := range []struct {
		method, path string
		status       int
	}{{"GET", "/nowhere", 404}, {"PUT", "/v1/messages", 405}, {"GET", "/v1/", 404}} {
		resp := r.do(try.method, try.path, r.key, nil)
		var body struct {
			Type      string `json:"type"`
			RequestID string `json:"request_id"`
		}
		err := json.NewDecoder(resp.Body).Decode(&body)
		if err != nil || resp.StatusCode != try.status || body.Type != "error" || body.RequestID != resp.Header.Get("request-id") {
			t.Errorf("%s %s: %d %+v %v", try.method, try.path, resp.StatusCode, body, err)
		}
	}
}

func TestAPIVersionIsCheckedAndBetasAreAccepted(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	for _, tt := range []struct {
		header []string
		status int
	}{
		{nil, 200},
		{[]string{"anthropic-version", "2023-06-01"}, 200},
		{[]string{"anthropic-version", "2026-10-21"}, 200},
		{[]string{"anthropic-version", "2024-01-01"}, 400},
		{[]string{"anthropic-version", ""}, 400},
		{[]string{"anthropic-beta", "files-api-2025-04-14,some-beta-2030-01-01", "anthropic-beta", "other"}, 200},
		{[]string{"anthropic-beta", "No Beta"}, 400},
	} {
		if got := r.status("GET", "/v1/files", r.key, nil, tt.header...); got != tt.status {
			t.Errorf("%q: %d, want %d", tt.header, got, tt.status)
		}
	}
	if got := r.status("GET", "/airlock/v1/containers", r.key, nil, "anthropic-version", "1"); got != 200 {
		t.Errorf("our own routes: %d", got)
	}
}

func TestExecStreamsOutputAndTellsHowItEnded(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	id := r.container(r.key)
	res := r.exec(r.key, id, map[string]any{
		"argv": []string{"sh", "-c", `cat; echo "$A"; pwd; printf 'a\0b\377' >&2; exit 7`}, "cwd": "/tmp",
		"env": map[string]string{"A": "value"}, "stdin": "given\n",
	})
	if res.stdout != "given\nvalue\n/tmp\n" || res.stderr != "a\x00b\xff" {
		t.Errorf("stdout %q, stderr %q", res.stdout, res.stderr)
	}
	if res.exit["code"] != 7.0 || res.exit["timed_out"] != false || res.exit["signal"] != 0.0 || res.exit["oom"] != false {
		t.Errorf("exit %v", res.exit)
	}
	res = r.exec(r.key, id, map[string]any{"command": "echo partial; sleep 20", "timeout_seconds": 0.5})
	if res.stdout != "partial\n" || res.exit["timed_out"] != true {
		t.Errorf("timed out: %+v", res)
	}
	res = r.exec(r.key, id, map[string]any{"command": "kill -9 $$"})
	if res.exit["signal"] != 9.0 || res.exit["timed_out"] != false || res.exit["oom"] != false {
		t.Errorf("killed: %+v", res)
	}
	res = r.exec(r.key, id, map[string]any{"command": "tail /dev/zero"})
	if res.exit["oom"] != true || res.exit["timed_out"] != false || res.exit["code"] == 0.0 {
		t.Errorf("out of memory: %+v", res)
	}
	for name, body := range map[string]any{
		"unknown member": map[string]any{"command": "true", "tty": true},
		"nothing":        map[string]any{},
		"no program":     map[string]any{"argv": []string{"/no/such/program"}},
		"bad folder":     map[string]any{"argv": []string{"true"}, "cwd": "/no/such/folder"},
	} {
		if got := r.status("POST", "/airlock/v1/containers/"+id+"/exec", r.key, body); got != 400 {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestFilesOfAContainerAreReadWrittenAndDeletedWithTheRightsOfTheCode(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	file := r.upload(r.key, "in.txt", "input")
	var c struct {
		ID     string `json:"id"`
		Inputs []struct {
			FileID string `json:"file_id"`
			Path   string `json:"path"`
		} `json:"inputs"`
	}
	r.json("POST", "/airlock/v1/containers", r.key, map[string]any{"files": []string{file}}, 200, &c)
	if len(c.Inputs) != 1 || c.Inputs[0].Path != "/files/input/in.txt" || c.Inputs[0].FileID != file {
		t.Errorf("inputs %+v", c.Inputs)
	}
	base := "/airlock/v1/containers/" + c.ID + "/files/"
	big := strings.Repeat("0123456789abcdef", 100_000)
	for path, content := range map[string]string{"workspace/a/b/c.txt": "hello", "workspace/empty": "", "tmp/big": big} {
		if got := r.status("PUT", base+path, r.key, strings.NewReader(content)); got != 200 {
			t.Fatalf("put %s: %d", path, got)
		}
		resp := r.do("GET", base+path, r.key, nil)
		b, err := io.ReadAll(resp.Body)
		if err != nil || string(b) != content || resp.ContentLength != int64(len(content)) {
			t.Errorf("get %s: %d bytes of %d, %v", path, len(b), len(content), err)
		}
	}
	var list struct {
		Data []struct{ Name, Type string }
	}
	r.json("GET", base+"workspace?list=1", r.key, nil, 200, &list)
	if d := cmp.Diff([]struct{ Name, Type string }{{"a", "dir"}, {"empty", "file"}}, list.Data); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "files/input/in.txt", 200},
		{"PUT", "files/input/in.txt", 403},
		{"DELETE", "files/input/in.txt", 403},
		{"GET", "workspace/none", 404},
		{"GET", "workspace/a", 400},
		{"GET", "etc/shadow", 403},
		{"PUT", "etc/passwd", 403},
		{"GET", "proc/1/environ", 403},
		{"GET", "dev/zero", 403},
		{"DELETE", "workspace/a", 400},
		{"DELETE", "workspace/a?recursive=1", 204},
		{"DELETE", "workspace/empty", 204},
		{"GET", "workspace/empty", 404},
	} {
		if got := r.status(tt.method, base+tt.path, r.key, nil); got != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, got, tt.status)
		}
	}
}

func TestContainersOfAnotherAppAnswerLikeNone(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.json("POST", "/airlock/v1/apps", r.AdminKey(), map[string]any{"name": "other"}, 200, nil)
	other := r.newKey("other")
	mine := "/airlock/v1/containers/" + r.container(r.key)
	none := "/airlock/v1/containers/container_01aaaaaaaaaaaaaaaaaaaaaa"
	body := func(method, path string) string {
		resp := r.do(method, path, other, map[string]any{"command": "true"})
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(resp.StatusCode, strings.ReplaceAll(string(b), resp.Header.Get("request-id"), "REQ"))
	}
	for _, try := range [][2]string{
		{"GET", ""}, {"DELETE", ""}, {"POST", "/exec"}, {"GET", "/files/etc/passwd"}, {"PUT", "/files/tmp/f"}, {"DELETE", "/files/tmp/f"},
	} {
		got, want := body(try[0], mine+try[1]), body(try[0], none+try[1])
		if got != want || !strings.HasPrefix(got, "404") {
			t.Errorf("%s %s: foreign %s, unknown %s", try[0], try[1], got, want)
		}
	}
}

func TestDeletedContainerIsGone(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	path := "/airlock/v1/containers/" + r.container(r.key)
	if got := r.status("DELETE", path, r.key, nil); got != 200 {
		t.Fatalf("delete: %d", got)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if got := r.status(method, path, r.key, nil); got != 404 {
			t.Errorf("%s after delete: %d", method, got)
		}
	}
}

func TestDrainRefusesNewTurnsAndWaitsForRunningOnes(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	id := r.container(r.key)
	resp := r.do("POST", "/airlock/v1/containers/"+id+"/exec", r.key, map[string]any{"command": "echo go; read x; echo end", "stdin_base64": ""})
	_ = resp.Body.Close()
	running := r.do("POST", "/airlock/v1/containers/"+id+"/exec", r.key,
		map[string]any{"command": "echo go; while ! test -e /tmp/stop; do sleep 0.05; done; echo end"})
	first := make([]byte, 10)
	if _, err := io.ReadFull(running.Body, first); err != nil {
		t.Fatal(err)
	}
	r.drain()
	for r.status("GET", "/readyz", "", nil) != 503 {
	}
	if got := r.status("POST", "/airlock/v1/containers", r.key, map[string]any{}); got != 529 {
		t.Errorf("a new turn while draining: %d", got)
	}
	if got := r.status("GET", "/v1/files", r.key, nil); got != 200 {
		t.Errorf("a read while draining: %d", got)
	}
	// The turn ends by its own time limit or by the cut; here it is cut.
	r.Cut()
	rest, err := io.ReadAll(running.Body)
	if err != nil || !strings.Contains(string(rest), "event: error") {
		t.Errorf("the cut turn ends with %q, %v", rest, err)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	r.ended <- nil
}

func TestDataFolderServesOnceAtATime(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server on the folder: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(cfg.Data, "server.json"))
	if err != nil || !strings.Contains(string(b), r.URL()) {
		t.Errorf("server.json: %s %v", b, err)
	}
	for _, name := range []string{"admin.key", "server.json", "instance"} {
		info, err := os.Stat(filepath.Join(cfg.Data, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

func TestCopyOfADataFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	start(t, cfg)
	id, err := os.ReadFile(filepath.Join(cfg.Data, "instance"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Data = t.TempDir()
	if err := os.WriteFile(filepath.Join(cfg.Data, "instance"), id, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is a copy") {
		t.Errorf("a copy was opened: %v", err)
	}
}

func TestQuietExecSendsPings(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Messages.Ping = 50 * time.Millisecond
	r := start(t, cfg)
	res := r.exec(r.key, r.container(r.key), map[string]any{"command": "sleep 0.5; echo late"})
	if res.stdout != "late\n" || !strings.HasPrefix(res.errorType, "event: ping") {
		t.Errorf("got %+v", res)
	}
}

func TestServesTLS(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	pool := selfSigned(t, &cfg)
	r := &running{t: t}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	ctx, drain := context.WithCancel(t.Context())
	r.ended = make(chan error, 1)
	go func() { r.ended <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(s.URL(), "https://") {
		t.Errorf("%s: %v", s.URL(), err)
	} else {
		_ = resp.Body.Close()
	}
	client.CloseIdleConnections()
	drain()
	if err := errors.Join(<-r.ended, s.Close()); err != nil {
		t.Error(err)
	}
}

// selfSigned makes a certificate for 127.0.0.1 and gives the pool that trusts it.
func selfSigned(t *testing.T, cfg *Config) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	cfg.TLS.Cert = write(t, string(cert))
	cfg.TLS.Key = write(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		t.Fatal("certificate not understood")
	}
	return pool
}

func TestSecondAppWithAKeyNeedsConsentOnASharedKernel(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Sandbox.AllowSharedKernel = false
	func() {
		r := start(t, cfg)
		r.json("POST", "/airlock/v1/apps", r.AdminKey(), map[string]any{"name": "second"}, 200, nil)
		resp := r.do("POST", "/airlock/v1/keys", r.AdminKey(), map[string]any{"app": "second"})
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 400 || !strings.Contains(string(b), sharedKernelSetting) {
			t.Errorf("key of a second app: %d %s", resp.StatusCode, b)
		}
	}()
}

func TestAdminRoutesAnswerOnTheAdminAddressOnly(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.AdminListen = "127.0.0.1:0"
	r := start(t, cfg)
	for path, key := range map[string]string{"/airlock/v1/apps": r.AdminKey(), "/metrics": ""} {
		if got := r.status("GET", r.URL()+path, key, nil); got != 404 {
			t.Errorf("%s on the API's address: %d", path, got)
		}
		if got := r.status("GET", r.AdminURL()+path, key, nil); got != 200 {
			t.Errorf("%s on the admin address: %d", path, got)
		}
	}
	if got := r.status("GET", r.AdminURL()+"/v1/files", r.key, nil); got != 404 {
		t.Errorf("the API on the admin address: %d", got)
	}
}

func TestOnlyTheProxyIsServedBehindAProxy(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{TLS: TLS{BehindProxy: "10.1.0.0/16"}}}
	for addr, ok := range map[string]bool{
		"10.1.2.3:5": true, "127.0.0.1:5": true, "[::1]:5": true, "[::ffff:10.1.2.3]:5": true, "10.2.0.1:5": false, "[2001:db8::1]:5": false,
	} {
		if err := s.fromProxy(&http.Request{RemoteAddr: addr}); (err == nil) != ok {
			t.Errorf("from %s: %v", addr, err)
		}
	}
}

func TestCase49BodyLimitsAreNamedAndDecidedFirst(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.File.MaxBytes = 1 << 20
	r := start(t, cfg)
	for _, try := range []struct {
		method, path string
		size         int
		status       int
		names        string
	}{
		{"POST", "/v1/messages", 32<<20 + 1, 413, "32 MiB"},
		{"POST", "/airlock/v1/containers", 1<<20 + 1, 413, "1 MiB"},
		{"PUT", "/airlock/v1/containers/container_x/files/tmp/f", 1<<20 + 1, 413, "1 MiB"},
	} {
		for _, declared := range []bool{true, false} {
			var body io.Reader = strings.NewReader(strings.Repeat(" ", try.size))
			if !declared {
				body = io.MultiReader(body)
			}
			resp := r.do(try.method, try.path, r.key, body)
			b, err := io.ReadAll(resp.Body)
			if declared && (err != nil || resp.StatusCode != try.status || !strings.Contains(string(b), try.names)) {
				t.Errorf("%s %s: %d %s %v", try.method, try.path, resp.StatusCode, b, err)
			}
			if !declared && resp.StatusCode < 400 {
				t.Errorf("%s %s without a length: %d", try.method, try.path, resp.StatusCode)
			}
		}
	}
}

// Some clients send a body with DELETE or GET; it is not looked at.
func TestBodyOfARouteWithoutOneIsIgnored(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	if got := r.status("GET", "/airlock/v1/containers", r.key, map[string]any{"x": 1}); got != 200 {
		t.Errorf("GET: %d", got)
	}
	if got := r.status("DELETE", "/airlock/v1/containers/"+r.container(r.key), r.key, map[string]any{}); got != 200 {
		t.Errorf("DELETE: %d", got)
	}
}

func TestReadyLineAddressReachesTheServer(t *testing.T) {
	t.Parallel()
	s := &Server{}
	for addr, want := range map[string]string{
		"127.0.0.1:80": "http://127.0.0.1:80", "0.0.0.0:80": "http://127.0.0.1:80", "[::]:80": "http://127.0.0.1:80", "[::1]:80": "http://[::1]:80",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.base(a); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestMessagesTurnRunsCodeAndItsContainerGoesOn(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	body := map[string]any{
		"model": "script", "max_tokens": 1000,
		"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": "```bash\necho made > note; echo out > \"$OUTPUT_DIR/o.txt\"\n```\n"}},
	}
	var msg struct {
		Container struct {
			ID        string    `json:"id"`
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"container"`
		StopReason string `json:"stop_reason"`
	}
	r.json("POST", "/v1/messages", r.key, body, 200, &msg)
	if msg.Container.ID == "" || msg.StopReason != "end_turn" || time.Until(msg.Container.ExpiresAt) < 50*time.Minute {
		t.Fatalf("got %+v", msg)
	}
	if res := r.exec(r.key, msg.Container.ID, map[string]any{"command": "cat note"}); res.stdout != "made\n" {
		t.Errorf("in the container: %+v", res)
	}
	var files struct {
		Data []struct {
			Filename string `json:"filename"`
		} `json:"data"`
	}
	r.json("GET", "/v1/files", r.key, nil, 200, &files)
	if len(files.Data) != 1 || files.Data[0].Filename != "o.txt" {
		t.Errorf("files %+v", files.Data)
	}
}
