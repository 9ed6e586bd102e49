package messages

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// whole is a Service with real containers and the scripted model.
type whole struct {
	*Service
	env *containertest.Env
}

func newWhole(t *testing.T) *whole {
	t.Helper()
	env := containertest.New(t, dbtest.SQLite(t))
	set, err := upstream.New([]upstream.Config{{Kind: upstream.KindScript}}, upstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &whole{&Service{Files: env.Files, Containers: env.Service, Upstreams: set}, env}
}

func (w *whole) post(t *testing.T, c tenant.Caller, body *claude.Node) (int, *claude.Node, http.Header) {
	t.Helper()
	h := wire.Handler(slog.New(slog.DiscardHandler), func(rw http.ResponseWriter, r *http.Request) error { return w.Create(rw, r, c) })
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/messages", strings.NewReader(body.Text())))
	if body.Get("stream").IsTrue() && rec.Code == 200 {
		all := events(t, rec.Body.Bytes())
		checkStream(t, all)
		return rec.Code, sum(t, all), rec.Header()
	}
	return rec.Code, parse(t, rec.Body.String()), rec.Header()
}

// ask runs a script; content is a string or an array of blocks.
func (w *whole) ask(t *testing.T, container string, content any) *claude.Node {
	t.Helper()
	code, m, _ := w.post(t, w.env.Caller, script(container, content))
	if code != 200 {
		t.Fatalf("answered %d %s", code, m.Text())
	}
	return m
}

func script(container string, content any) *claude.Node {
	body := claude.NewObject("model", "m", "max_tokens", 100,
		"tools", claude.NewArray(claude.NewObject("type", "code_execution_20260521", "name", "code_execution")),
		"messages", claude.NewArray(claude.NewObject("role", "user", "content", content)))
	if container != "" {
		body.Set("container", claude.NewString(container))
	}
	return body
}

func text(s string) *claude.Node { return claude.NewObject("type", "text", "text", s) }

func upload(f *file.File) *claude.Node {
	return claude.NewObject("type", "container_upload", "file_id", string(f.ID))
}

// outputs are the results of a message, in order.
func outputs(m *claude.Node) []*claude.Node {
	var out []*claude.Node
	for _, b := range m.Get("content").Elems() {
		if strings.HasSuffix(b.Type(), "_tool_result") {
			out = append(out, b.Get("content"))
		}
	}
	return out
}

func stdout(t *testing.T, m *claude.Node) string {
	t.Helper()
	var s strings.Builder
	for _, c := range outputs(m) {
		if c.Get("return_code").Text() != "0" {
			t.Errorf("a call gave %s", c.Text())
		}
		s.WriteString(c.Get("stdout").Str())
	}
	return s.String()
}

func TestFileGoesInAndComesOut(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	f := w.env.Upload(t, w.env.Caller, "naïve file.csv", "a,b\n1,2\n")
	empty := w.env.Upload(t, w.env.Caller, "empty.bin", "")
	m := w.ask(t, "", claude.NewArray(upload(f), upload(empty), text("Work.\n```bash\ncat \"$INPUT_DIR/naïve file.csv\"; wc -c < \"$INPUT_DIR/empty.bin\"; tr , ';' < \"$INPUT_DIR/naïve file.csv\" > \"$OUTPUT_DIR/out.csv\"; : > \"$OUTPUT_DIR/zero\"\n```")))
	if got := stdout(t, m); got != "a,b\n1,2\n0\n" {
		t.Errorf("stdout %q", got)
	}
	files := outputs(m)[0].Get("content").Elems()
	if len(files) != 2 {
		t.Fatalf("outputs %s", outputs(m)[0].Text())
	}
	meta, body, err := w.env.Files.Open(t.Context(), w.env.Caller, file.ID(files[0].Get("file_id").Str()))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil || string(b) != "a;b\n1;2\n" || meta.Filename != "out.csv" || meta.Origin != file.OriginOutput {
		t.Errorf("output %q %+v %v", b, meta, err)
	}
	zero, err := w.env.Files.Get(t.Context(), w.env.Caller, file.ID(files[1].Get("file_id").Str()))
	if err != nil || zero.Size != 0 || zero.Filename != "zero" {
		t.Errorf("the empty output is %+v, %v", zero, err)
	}
}

func TestContainerKeepsFilesAndVariablesOverTurns(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	m := w.ask(t, "", "```bash\necho kept > f\n```\n```cell\nx = 7\n```")
	id := m.At("container", "id").Str()
	again := w.ask(t, id, "```bash\ncat f\n```\n```cell\nprint(x)\n```")
	if got := stdout(t, again); got != "kept\n7\n" {
		t.Errorf("second turn %q", got)
	}
	if again.At("container", "id").Str() != id || again.At("usage", "server_tool_use", "code_execution_requests").Text() != "2" {
		t.Errorf("second turn in %s with %s", again.Get("container").Text(), again.Get("usage").Text())
	}
}

func TestNoContainerIsMadeWhenNoCodeRuns(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	for _, stream := range []bool{false, true} {
		body := script("", "hello")
		body.Set("stream", claude.NewBool(stream))
		_, m, _ := w.post(t, w.env.Caller, body)
		if c := m.Get("container"); c == nil || !c.IsNull() {
			t.Errorf("container = %v", c.Text())
		}
	}
}

func TestCase30ExpiredContainerIsToldApartFromAMissingOne(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	id := w.ask(t, "", "```bash\ntrue\n```").At("container", "id").Str()
	w.env.Clock.Add(2 * time.Hour)
	code, e, h := w.post(t, w.env.Caller, script(id, "```bash\ntrue\n```"))
	msg := e.At("error", "message").Str()
	if code != 404 || e.At("error", "details", "error_code").Str() != "container_expired" || !strings.Contains(msg, "container") || !strings.Contains(msg, "expired") || h.Get("X-Should-Retry") != "false" {
		t.Errorf("an expired container answered %d %s %v", code, e.Text(), h)
	}
	if m := w.ask(t, "", "```bash\necho new\n```"); stdout(t, m) != "new\n" {
		t.Error("the conversation cannot go on without the container")
	}
}

func TestForeignThingsAnswerLikeMissingOnes(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	id := w.ask(t, "", "```bash\ntrue\n```").At("container", "id").Str()
	f := w.env.Upload(t, w.env.Caller, "a", "x")
	answer := func(body *claude.Node) string {
		code, e, _ := w.post(t, w.env.Other, body)
		e.Delete("request_id")
		return fmt.Sprint(code, e.Text())
	}
	if got, want := answer(script(id, "hi")), answer(script("container_01unknown", "hi")); got != want || !strings.HasPrefix(got, "404") {
		t.Errorf("a foreign container answers %s, a missing one %s", got, want)
	}
	missing := *f
	missing.ID = file.ID(wire.NewID("file"))
	for _, block := range []func(*file.File) *claude.Node{upload, func(f *file.File) *claude.Node {
		return claude.NewObject("type", "document", "source", claude.NewObject("type", "file", "file_id", string(f.ID)))
	}} {
		if got, want := answer(script("", claude.NewArray(block(f)))), answer(script("", claude.NewArray(block(&missing)))); got != want || !strings.HasPrefix(got, "404") {
			t.Errorf("a foreign file answers %s, a missing one %s", got, want)
		}
	}
}

func TestCase34SecondFileOfANameIsReachable(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	a, b := w.env.Upload(t, w.env.Caller, "image.png", "first"), w.env.Upload(t, w.env.Caller, "image.png", "second")
	m := w.ask(t, "", claude.NewArray(upload(a), upload(b), upload(a), text("```bash\ncd $INPUT_DIR; cat image.png; echo; cat 'image (2).png'; echo; ls | wc -l\n```")))
	if got := stdout(t, m); got != "first\nsecond\n2\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestUploadInAnOldTurnIsLoadedIntoAFreshContainer(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	f := w.env.Upload(t, w.env.Caller, "old.txt", "old")
	body := script("", "x")
	body.Set("messages", claude.NewArray(
		claude.NewObject("role", "user", "content", claude.NewArray(upload(f))),
		claude.NewObject("role", "assistant", "content", "Thanks."),
		claude.NewObject("role", "user", "content", "```bash\ncat $INPUT_DIR/old.txt\n```")))
	code, m, _ := w.post(t, w.env.Caller, body)
	if code != 200 || stdout(t, m) != "old" {
		t.Errorf("answered %d %s", code, m.Text())
	}
}

func TestCase71RequestsOfOneContainerDoNotInterleave(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	id := w.ask(t, "", "```bash\n: > log\n```").At("container", "id").Str()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			code, m, _ := w.post(t, w.env.Caller, script(id, "```bash\necho begin >> log\n```\n```bash\necho end >> log\n```"))
			if code != 200 {
				t.Errorf("answered %d %s", code, m.Text())
			}
		})
	}
	all.Wait()
	if got := stdout(t, w.ask(t, id, "```bash\ncat log\n```")); got != strings.Repeat("begin\nend\n", 4) {
		t.Errorf("log %q", got)
	}
}

func TestFortyFiveCallsEndInOneResponse(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	m := w.ask(t, "", strings.Repeat("```bash\necho x >> f\n```\n", 44)+"```bash\nwc -l < f\n```")
	if m.Get("stop_reason").Str() != "end_turn" || stdout(t, m) != "44\n" {
		t.Errorf("ended with %s after %q", m.Get("stop_reason").Text(), stdout(t, m))
	}
}

func TestPauseAndContinuationInARealContainer(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.MaxIterations = 2
	first := w.ask(t, "", "```bash\necho one\n```\n```bash\necho two\n```\nend")
	if first.Get("stop_reason").Str() != "pause_turn" || stdout(t, first) != "one\n" {
		t.Fatalf("no pause: %s", first.Text())
	}
	body := script(first.At("container", "id").Str(), "x")
	body.Set("messages", claude.NewArray(
		claude.NewObject("role", "user", "content", "```bash\necho one\n```\n```bash\necho two\n```\nend"),
		claude.NewObject("role", "assistant", "content", first.Get("content"))))
	body.Set("stream", claude.NewBool(true))
	code, second, _ := w.post(t, w.env.Caller, body)
	if code != 200 || second.Get("stop_reason").Str() != "end_turn" || stdout(t, second) != "two\n" {
		t.Errorf("continued with %d %s", code, second.Text())
	}
}

func TestBusyContainerIsToldToRetry(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	id := w.ask(t, "", "```bash\ntrue\n```").At("container", "id").Str()
	w.env.BusyWait = -1
	p, err := w.containers().Acquire(t.Context(), w.env.Caller, id, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(t.Context())
	code, e, h := w.post(t, w.env.Caller, script(id, "hi"))
	if code != 429 || e.At("error", "type").Str() != "rate_limit_error" || h.Get("Retry-After") != "5" {
		t.Errorf("answered %d %s retry-after %q", code, e.Text(), h.Get("Retry-After"))
	}
}

func TestQuotedOutputMayBeDeletedButNotForeign(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	m := w.ask(t, "", "```bash\necho x > $OUTPUT_DIR/x\n```")
	id := file.ID(outputs(m)[0].Get("content").Items[0].Get("file_id").Str())
	replay := script("", "x")
	replay.Set("messages", claude.NewArray(
		claude.NewObject("role", "user", "content", "go"),
		claude.NewObject("role", "assistant", "content", m.Get("content")),
		claude.NewObject("role", "user", "content", "thanks")))
	if err := w.env.Files.Delete(t.Context(), w.env.Caller, id); err != nil {
		t.Fatal(err)
	}
	if code, e, _ := w.post(t, w.env.Caller, replay); code != 200 {
		t.Errorf("a deleted output in history answered %d %s", code, e.Text())
	}
	if code, e, _ := w.post(t, w.env.Other, replay); code != 404 || e.At("error", "message").Str() != "Not found" {
		t.Errorf("a foreign output in history answered %d %s", code, e.Text())
	}
}

func TestExpiredUploadIsRefusedBeforeTheModelIsAsked(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	hour := int64(3600)
	f, err := w.env.Files.Upload(t.Context(), w.env.Caller, file.UploadParams{Filename: "a", Body: strings.NewReader("x"), ExpiresIn: &hour})
	if err != nil {
		t.Fatal(err)
	}
	w.env.Clock.Add(2 * time.Hour)
	code, e, _ := w.post(t, w.env.Caller, script("", claude.NewArray(upload(f), text("```bash\ntrue\n```"))))
	if code != 404 || e.At("error", "details", "error_code").Str() != "file_expired" {
		t.Errorf("answered %d %s", code, e.Text())
	}
}
