package messages

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// A request that names what its caller may not use is answered at once, however long another turn has the container; the
// container comes first.
func TestContainerAndFilesAreCheckedBeforeWaitingForATurn(t *testing.T) {
	t.Parallel()
	upload := `[{"role":"user","content":[{"type":"container_upload","file_id":"file_01none"}]}]`
	b := newBench(t)
	if code, e := fault(t, b.post(t, body(`,"container":"container_01a"`, upload))); code != 404 || len(b.boxes.acquired) != 0 {
		t.Errorf("an unknown file answered %d %s, acquired %q", code, e.Text(), b.boxes.acquired)
	}
	b.boxes.checkErr = wire.NotFound().WithCode(container.CodeExpired)
	if code, e := fault(t, b.post(t, body(`,"container":"container_01a"`, upload))); code != 404 || e.At("details", "error_code").Str() != container.CodeExpired {
		t.Errorf("an expired container and an unknown file answered %d %s", code, e.Text())
	}
}

func TestCheckNeverWaitsForATurn(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.env.BusyWait = time.Hour
	id := w.ask(t, "", "```bash\ntrue\n```").At("container", "id").Str()
	p, err := w.containers().Acquire(t.Context(), w.env.Caller, id, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.containers().Check(t.Context(), w.env.Caller, id); err != nil {
		t.Errorf("a busy container: %v", err)
	}
	foreign := w.env.Upload(t, w.env.Other, "a.txt", "x")
	if code, e, _ := w.post(t, w.env.Caller, script(id, claude.NewArray(upload(foreign)))); code != 404 {
		t.Errorf("a foreign file in a busy container answered %d %s", code, e.Text())
	}
	p.Release(t.Context())
	w.env.Clock.Add(2 * time.Hour)
	for caller, want := range map[string]struct {
		c    tenant.Caller
		code string
	}{"own": {w.env.Caller, container.CodeExpired}, "foreign": {w.env.Other, ""}} {
		code, e, _ := w.post(t, want.c, script(id, claude.NewArray(upload(foreign))))
		if code != 404 || e.At("error", "details", "error_code").Str() != want.code {
			t.Errorf("%s expired container answered %d %s", caller, code, e.Text())
		}
	}
}

// asked tells when the model was asked.
type asked struct {
	*model
	seen chan struct{}
}

func (a asked) RoundTrip(r *http.Request) (*http.Response, error) {
	close(a.seen)
	return a.model.RoundTrip(r)
}

// Whoever deletes a container wants an end of what happens in it, even where that is only waiting for a model.
func TestDeletingAContainerCutsOffATurnThatWaitsForTheModel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said           string
		stream, noTool bool
		status         int
	}{
		"before the first event":     {": nothing yet\n\n", true, false, 404},
		"plain":                      {frames(evStart), false, false, 404},
		"in the middle of a stream":  {frames(evStart), true, false, 200},
		"without the tool, as it is": {"", false, true, 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWhole(t)
			body := script(w.ask(t, "", "```bash\ntrue\n```").At("container", "id").Str(), "go")
			body.Set("stream", claude.NewBool(tt.stream))
			if tt.noTool {
				body.Delete("tools")
			}
			m := asked{&model{answers: []answer{{sse: tt.said, hang: make(chan struct{}), gone: make(chan struct{})}}}, make(chan struct{})}
			set, err := upstream.New([]upstream.Config{{Name: "slow", BaseURL: "http://upstream.invalid"}}, upstream.Options{Transport: m})
			if err != nil {
				t.Fatal(err)
			}
			w.Upstreams = set
			srv := httptest.NewServer(wire.Handler(slog.New(slog.DiscardHandler), func(rw http.ResponseWriter, r *http.Request) error {
				return w.Create(rw, r, w.env.Caller)
			}))
			defer srv.Close()
			checkCutOff(t, w, srv, body, m.seen, tt.status)
		})
	}
}

// checkCutOff deletes the container of a request when the model was asked, and when the answer has begun if it is to be 200.
func checkCutOff(t *testing.T, w *whole, srv *httptest.Server, body *claude.Node, asked <-chan struct{}, status int) {
	t.Helper()
	id := container.ID(body.Get("container").Str())
	deleted, begun := make(chan error, 1), make(chan struct{})
	go func() {
		<-asked
		if status == http.StatusOK {
			<-begun
		}
		deleted <- w.env.Delete(t.Context(), w.env.Caller, id)
	}()
	// Without the cut nothing would end it.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(body.Text()))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(begun)
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	last := string(all)
	if status == http.StatusOK {
		frames := events(t, all)
		last = frames[len(frames)-1].Text()
	}
	if resp.StatusCode != status {
		t.Errorf("answered %d, want %d", resp.StatusCode, status)
	}
	if e := parse(t, last); e.Type() != "error" || e.At("error", "type").Str() != "not_found_error" {
		t.Errorf("the answer ends with %s", last)
	}
	if err := <-deleted; err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := w.env.Get(t.Context(), w.env.Caller, id); err == nil {
		t.Error("the container is still there")
	}
}
