package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdminKeyOfADataFolderNeverGoesToAnotherServer(t *testing.T) {
	t.Setenv("AIRLOCK_KEY", "")
	t.Setenv("AIRLOCK_URL", "")
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "admin.key"), []byte("sk-airlock-admin-x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := connection{url: "http://192.0.2.1", data: data}
	if c, err := conn.dial(); err == nil {
		t.Fatalf("dial sent the key %q to an address that is not the data folder's", c.key)
	}
}

func TestDialReadsTheDataFolder(t *testing.T) {
	t.Setenv("AIRLOCK_KEY", "")
	t.Setenv("AIRLOCK_URL", "")
	data := t.TempDir()
	conn := connection{data: data}
	if _, err := conn.dial(); !errors.Is(err, errNoServer) {
		t.Errorf("without a server: %v, want errNoServer", err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("server.json", `{"url":"http://127.0.0.1:1/","admin_url":"http://127.0.0.1:2"}`)
	write("admin.key", "sk-airlock-admin-x\n")
	c, err := conn.dialAdmin()
	if err != nil {
		t.Fatal(err)
	}
	if c.url != "http://127.0.0.1:2" || c.key != "sk-airlock-admin-x" {
		t.Errorf("got %s with key %s", c.url, c.key)
	}
}

// A key in the environment is the application's; managing the server of the own data folder goes on working beside it.
func TestAdminCommandsUseTheFoldersKeyBesideAKeyInTheEnvironment(t *testing.T) {
	t.Setenv("AIRLOCK_KEY", "sk-airlock-app")
	t.Setenv("AIRLOCK_URL", "")
	data := t.TempDir()
	for name, text := range map[string]string{"admin.key": "sk-airlock-admin-x", "server.json": `{"url":"http://127.0.0.1:1"}`} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := (&connection{data: data}).dialAdmin()
	if err != nil || admin.key != "sk-airlock-admin-x" {
		t.Errorf("admin command uses %+v, %v", admin, err)
	}
	api, err := (&connection{data: data}).dialAPI(t.Context())
	if err != nil || api.key != "sk-airlock-app" {
		t.Errorf("app command uses %+v, %v", api, err)
	}
	far := &connection{data: data, url: "http://192.0.2.1"}
	if c, err := far.dialAdmin(); err != nil || c.key != "sk-airlock-app" {
		t.Errorf("a server elsewhere was sent %+v, %v", c, err)
	}
	far.chosen = func(flag string) bool { return flag == "app" }
	if _, err := far.dialAPI(t.Context()); err == nil {
		t.Error("--app beside an API key was ignored without a word")
	}
}

func TestDataFlagCountsForMoreThanTheAddressInTheEnvironment(t *testing.T) {
	t.Setenv("AIRLOCK_KEY", "sk-airlock-app")
	t.Setenv("AIRLOCK_URL", "http://127.0.0.1:1")
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "server.json"), []byte(`{"url":"http://127.0.0.1:2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"data": "http://127.0.0.1:2", "json": "http://127.0.0.1:1"} {
		conn := connection{data: data, chosen: func(name string) bool { return name == flag }}
		if c, err := conn.dial(); err != nil || c.url != want {
			t.Errorf("with --%s: %+v, %v, want %s", flag, c, err, want)
		}
	}
}

// The AI SDK wants /v1 at the end of its base URL, the others do not: the address in a user's environment may be either.
func TestAddressMayEndWithASlashOrTheVersion(t *testing.T) {
	t.Setenv("AIRLOCK_KEY", "sk-airlock-app")
	for given, want := range map[string]string{
		"http://127.0.0.1:1":         "http://127.0.0.1:1",
		"http://127.0.0.1:1/":        "http://127.0.0.1:1",
		"http://127.0.0.1:1/v1":      "http://127.0.0.1:1",
		"http://127.0.0.1:1/v1/":     "http://127.0.0.1:1",
		"https://example.com/box//":  "https://example.com/box",
		"https://example.com/box/v1": "https://example.com/box",
		"http://v1":                  "http://v1",
		"http://127.0.0.1:1/v12":     "http://127.0.0.1:1/v12",
	} {
		t.Setenv("AIRLOCK_URL", given)
		c, err := (&connection{data: t.TempDir()}).dialAPI(t.Context())
		if err != nil || c.url != want {
			t.Errorf("AIRLOCK_URL=%s: %+v, %v, want %s", given, c, err, want)
		}
		c, err = (&connection{data: t.TempDir(), url: given}).dialAdmin()
		if err != nil || c.url != want {
			t.Errorf("--url %s: %+v, %v, want %s", given, c, err, want)
		}
	}
}

func TestSessionKeyIsMadeOnceAndRevoked(t *testing.T) {
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("x-api-key"))
		_, _ = w.Write([]byte(`{"id":"key_1","key":"sk-airlock-short"}`))
	}))
	defer srv.Close()
	c := &client{url: srv.URL, adminURL: srv.URL, key: "sk-airlock-admin-x", http: srv.Client()}
	if err := c.becomeApp(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	if c.key != "sk-airlock-short" {
		t.Errorf("key is %q", c.key)
	}
	c.close(t.Context())
	c.close(t.Context())
	want := "POST /airlock/v1/keys sk-airlock-admin-x, DELETE /airlock/v1/keys/key_1 sk-airlock-admin-x"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestErrorBodyOfTheServerIsShown(t *testing.T) {
	err := parseError(404, []byte(`{"type":"error","error":{"type":"not_found_error","message":"Not found"},"request_id":"req_1"}`))
	if err.Error() != "Not found (req_1)" {
		t.Errorf("got %q", err)
	}
	if err := parseError(502, []byte("<html>")); err.Error() != "server answered 502" {
		t.Errorf("got %q", err)
	}
}

func TestListFollowsPages(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") == "" {
			_, _ = w.Write([]byte(`{"data":[1,2],"next_page":"a b"}`))
			return
		}
		if got := r.URL.Query().Get("page"); got != "a b" {
			t.Errorf("page %q", got)
		}
		_, _ = w.Write([]byte(`{"data":[3],"next_page":null}`))
	}))
	defer srv.Close()
	c := &client{url: srv.URL, http: srv.Client()}
	var got []string
	err := c.list(t.Context(), "/x?app=a", func(raw json.RawMessage) error {
		got = append(got, string(raw))
		return nil
	})
	if err != nil || strings.Join(got, "") != "123" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDownloadsNeverReplaceAndNeverLeaveTheFolder(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, want string }{
		{"report.docx", "report.docx"},
		{"report.docx", "report (2).docx"},
		{"report.docx", "report (3).docx"},
		{"../../etc/passwd", "passwd"},
		{"..", "unnamed"},
		{"", "unnamed (2)"},
		{".profile", ".profile"},
		{".profile", ".profile (2)"},
	} {
		f, err := createBeside(dir, tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := filepath.Base(f.Name()); got != tt.want || filepath.Dir(f.Name()) != dir {
			t.Errorf("createBeside(%q) made %s, want %s", tt.name, f.Name(), tt.want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRemotePaths(t *testing.T) {
	for _, tt := range []struct{ arg, id, path string }{
		{"container_1:/workspace/a b.txt", "container_1", "/airlock/v1/containers/container_1/files/workspace/a%20b.txt"},
		{"container_1:a.txt", "container_1", "/airlock/v1/containers/container_1/files/workspace/a.txt"},
		{"container_1:../tmp/x?y", "container_1", "/airlock/v1/containers/container_1/files/tmp/x%3Fy"},
	} {
		id, p, ok := splitRemote(tt.arg)
		if !ok || id != tt.id || remotePath(id, p) != tt.path {
			t.Errorf("%s: got %s %s %v", tt.arg, id, remotePath(id, p), ok)
		}
	}
	if _, _, ok := splitRemote("C:/report.docx"); ok {
		t.Error("a local path with a colon was taken for a container")
	}
}

func TestTerminalControlIsTakenOut(t *testing.T) {
	if got := printable("a\x1b[2Jb\u202ec\u009bd\ne"); got != "a\ufffd[2Jb\ufffdc\ufffdd\ne" {
		t.Errorf("got %q", got)
	}
}

func TestWhatOthersWroteBeginsNoLineAndNoColumn(t *testing.T) {
	if got := cell("x\n2026-11-30\twarn\u2028y\x1b[1m"); got != "x\ufffd2026-11-30\ufffdwarn\ufffdy\ufffd[1m" {
		t.Errorf("in a table %q", got)
	}
	if got := cell(map[string]any{"a": "b\nc"}); strings.Contains(got, "\n") {
		t.Errorf("a nested value in a table %q", got)
	}
	f, err := createBeside(t.TempDir(), "b\u009b31m\n\u202etxt.exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := filepath.Base(f.Name()); got != "b\ufffd31m\ufffd\ufffdtxt.exe" {
		t.Errorf("a download is called %q", got)
	}
}

func TestKeyFollowsNoRedirect(t *testing.T) {
	reached := make(chan string, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Header.Get("x-api-key") }))
	defer elsewhere.Close()
	there := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer there.Close()
	c, err := (&connection{url: there.URL, key: "sk-airlock-secret"}).dial()
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.send(t.Context(), http.MethodGet, "/v1/files/x", "", nil)
	if err == nil || !strings.Contains(err.Error(), "redirects to "+elsewhere.URL) {
		t.Errorf("a redirect: %v", err)
	}
	select {
	case key := <-reached:
		t.Errorf("the other host was asked with %q", key)
	default:
	}
}

func TestDownloadOfAMissingFileWritesNothing(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/content") {
			_, _ = w.Write([]byte(`{"id":"file_1","filename":"a.txt","size_bytes":3}`))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"not_found_error","message":"Not found"}}`))
	}))
	defer srv.Close()
	dir := t.TempDir()
	c := &client{url: srv.URL, http: srv.Client()}
	if _, path, err := c.download(t.Context(), notes{w: io.Discard}, "file_1", dir); err == nil {
		t.Errorf("an error became the file %s", path)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
