package server

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

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
			may := route.Kind == everyone || kind == "api key" && route.Kind&apiKey != 0 || kind == "admin key" && route.Kind&tenant.Administration != 0
			if kind == "api key" && strings.HasPrefix(route.Pattern, "/airlock/v1/tokens") {
				may = false // this key lacks the right to make tokens
			}
			if refused == may {
				t.Errorf("%s %s with %s: %d", route.Method, path, kind, got)
			}
		}
	}
}

func TestHealthVersionMetricsAndOpenAPIAnswer(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Version = wire.NewBuild("1.2.3", "abc", "")
	r := start(t, cfg)
	driver := r.parts.caps.Driver
	shared := strconv.FormatBool(driver == "native")
	for _, tt := range [][2]string{
		{"/healthz", `{"status":"ok"}`},
		{"/readyz", `{"status":"ok"}`},
		{"/version", `"version":"1.2.3","commit":"abc"`},
		{"/version", `"sandbox_driver":"` + driver + `","shared_kernel":` + shared + `}`},
		{"/metrics", "airlock_http_requests_total{route="},
		{"/metrics", `airlock_sandbox_driver_info{driver="` + driver + `",shared_kernel="` + shared + `"} 1`},
		{"/airlock/openapi.json", `"/airlock/v1/containers/{id}/files/{path}"`},
	} {
		path, want := tt[0], tt[1]
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

func TestInstanceIsThatOfTheDataFolderAtEveryAddress(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	ask := func() (at, instance string) {
		r, stop := open(t, cfg)
		defer stop()
		var v struct {
			Instance string `json:"instance"`
		}
		r.json("GET", "/version", "", nil, 200, &v)
		return r.URL(), v.Instance
	}
	at, first := ask()
	// Taken, so that the second start has to answer elsewhere.
	l, err := net.Listen("tcp", strings.TrimPrefix(at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	again, second := ask()
	if again == at || first == "" || first != second {
		t.Errorf("instance %q at %s, then %q at %s", first, at, second, again)
	}
	cfg.Data = t.TempDir()
	if _, other := ask(); other == first {
		t.Errorf("two data folders are both instance %s", other)
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
		{[]string{"anthropic-version", "2023-06-01", "anthropic-version", "2026-10-21"}, 400},
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

func TestProxyOnThisMachineDoesNotReachAdminRoutes(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.AdminListen, cfg.TLS.BehindProxy = "127.0.0.1:0", "127.0.0.0/8"
	r := start(t, cfg)
	for path, key := range map[string]string{"/airlock/v1/apps": r.AdminKey(), "/metrics": ""} {
		if got := r.status("GET", r.URL()+path, key, nil); got != 404 {
			t.Errorf("%s on the API's address: %d", path, got)
		}
	}
}

func TestStartSweepsHalfMadeWorkspaces(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	half := filepath.Join(cfg.Data, "workspaces", ".new-1")
	if err := os.MkdirAll(filepath.Join(half, "workspace"), 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what an earlier start left half made: %v", err)
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
