package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

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
	// How full the disk of this machine is is no matter of these tests; those of a full disk bring one.
	cfg.Disk.CrowdedPercent, cfg.Disk.FullPercent = 99.8, 99.9
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
	r, stop := open(t, cfg)
	t.Cleanup(stop)
	r.key = r.newKey("default")
	return r
}

// open is start without a key, for a server that stops within the test.
func open(t *testing.T, cfg Config) (r *running, stop func()) {
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
	r = &running{Server: s, t: t, drain: drain, ended: make(chan error, 1)}
	go func() { r.ended <- s.Serve(ctx, l) }()
	return r, func() {
		s.Cut()
		drain()
		if err := <-r.ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
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

// output stores an output file, as the container of that owner would.
func (r *running) output(o tenant.Owner, name, content string) string {
	r.t.Helper()
	f, err := r.parts.files.CreateOutput(r.t.Context(), o, file.OutputParams{Filename: name, Body: strings.NewReader(content), ContainerID: "container_01Made", CallID: "call_1"})
	if err != nil {
		r.t.Fatal(err)
	}
	return string(f.ID)
}
