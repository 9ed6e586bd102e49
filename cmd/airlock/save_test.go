package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// contentServer gives bytes at every path but those below /gone; the connection breaks in the middle below /cut.
func contentServer(t *testing.T) *client {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/files/{id}/content", func(w http.ResponseWriter, r *http.Request) { give(t, w, r.PathValue("id")) })
	mux.HandleFunc("/airlock/v1/containers/{id}/files/", func(w http.ResponseWriter, r *http.Request) { give(t, w, r.PathValue("id")) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return &client{url: srv.URL, http: srv.Client()}
}

func give(t *testing.T, w http.ResponseWriter, id string) {
	t.Helper()
	switch id {
	case "gone":
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"not_found_error","message":"Not found"}}`))
	case "cut":
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
	default:
		_, _ = w.Write([]byte("new"))
	}
}

// The file a person names is replaced by a whole one or not at all, whichever command writes it.
func TestNamedFileIsReplacedWholeOrNotAtAll(t *testing.T) {
	c := contentServer(t)
	ways := map[string]func(id, path string) error{
		"file download -o": func(id, path string) error {
			return save(path, func(w io.Writer) error {
				return c.content(t.Context(), notes{w: io.Discard}, id, "x", w, -1)
			})
		},
		"container cp": func(id, path string) error {
			return c.copyOut(t.Context(), notes{w: io.Discard}, id, "/workspace/x", path, io.Discard)
		},
	}
	for name, get := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, link := filepath.Join(dir, "kept"), filepath.Join(dir, "link")
			if err := errors.Join(os.WriteFile(path, []byte("old"), 0o640), os.Symlink("kept", link)); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"gone", "cut"} {
				if err := get(id, path); err == nil {
					t.Errorf("%s: no error", id)
				}
				if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
					t.Errorf("%s: the file holds %q, %v", id, b, err)
				}
			}
			if err := get("fine", link); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			info, statErr := os.Lstat(path)
			if err := errors.Join(err, statErr); err != nil || string(b) != "new" || info.Mode() != 0o640 {
				t.Errorf("got %q with mode %v, %v", b, info.Mode(), err)
			}
			if err := get("fine", "/dev/null"); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestDownloadToANameAsksTheServerFirst(t *testing.T) {
	c := contentServer(t)
	path := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newFileDownloadCommand()
	cmd.SetArgs([]string{"gone", "-o", path, "--url", c.url, "--key", "sk-airlock-x"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}
