package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the wanted parts of testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is an upstream whose answers are given; it records what it was asked.
type model struct {
	mu      sync.Mutex
	answers []answer
	asked   []*claude.Node
	headers []http.Header
	paths   []string
}

type answer struct {
	status int    // 0 = 200
	sse    string // an event stream
	body   string // anything else
	header map[string]string
	hang   chan struct{} // the body goes on until this is closed or the request ends
	gone   chan struct{} // closed when the request ended first
}

func (m *model) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var body *claude.Node
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if body, err = claude.Parse(b); err != nil {
			return nil, err
		}
	}
	m.asked = append(m.asked, body)
	m.headers = append(m.headers, r.Header)
	m.paths = append(m.paths, r.URL.Path)
	if len(m.answers) == 0 {
		return nil, errors.New("the model was asked too often")
	}
	a := m.answers[0]
	m.answers = m.answers[1:]
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, ProtoMajor: 1, ProtoMinor: 1}
	if a.status != 0 {
		resp.StatusCode = a.status
	}
	for k, v := range a.header {
		resp.Header.Set(k, v)
	}
	text := a.body
	if a.sse != "" {
		resp.Header.Set("Content-Type", "text/event-stream")
		text = a.sse
	}
	resp.Body = io.NopCloser(strings.NewReader(text))
	if a.hang != nil {
		pr, pw := io.Pipe()
		go func() {
			_, _ = io.WriteString(pw, text)
			select {
			case <-a.hang:
				_ = pw.Close()
			case <-r.Context().Done():
				close(a.gone)
				_ = pw.CloseWithError(r.Context().Err())
			}
		}()
		resp.Body = pr
	}
	return resp, nil
}

func (m *model) bodies() []*claude.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*claude.Node(nil), m.asked...)
}

// boxes is one container whose calls have given results.
type boxes struct {
	known    bool // the container exists from the start
	owner    *tenant.Owner
	holds    map[file.ID]bool
	results  []*claude.Node
	openErr  error
	checkErr error
	acquired []string
	added    []string
	ran      []codeexec.Call
	opened   int
	released int
	pending  bool // code waits
	answers  [][]codeexec.Answer
	stored   map[string][]*claude.Node

	continueErr error
	during      func(ctx context.Context) error
}

func (b *boxes) Check(_ context.Context, _ tenant.Caller, id string) (*tenant.Owner, error) {
	if id == "" {
		return nil, b.checkErr
	}
	return b.owner, b.checkErr
}

func (b *boxes) Holds(context.Context, string) (map[file.ID]bool, error) { return b.holds, nil }

func (b *boxes) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (b *boxes) Join(context.Context, string, codeexec.Call, []codeexec.Answer) (func(), bool, error) {
	return func() {}, false, nil
}

func (b *boxes) Acquire(_ context.Context, _ tenant.Caller, id string, _ bool) (place, error) {
	b.acquired = append(b.acquired, id)
	b.known = b.known || id != ""
	return b, nil
}

func (b *boxes) Shown() *claude.Node {
	if !b.known {
		return nil
	}
	expires := "2026-11-29T17:18:11.000000Z"
	if b.pending {
		expires = "2026-11-29T16:25:00.000000Z"
	}
	return claude.NewObject("id", "container_01FileDemo000000000001", "expires_at", expires, "skills", claude.NewArray())
}

func (b *boxes) Ensure(context.Context) error { b.known = true; return nil }

func (b *boxes) Open(context.Context) error { b.opened++; return b.openErr }

func (b *boxes) AddFile(_ context.Context, _ tenant.Caller, f *file.File) (string, error) {
	b.known = true
	b.added = append(b.added, string(f.ID))
	return "/files/input/" + f.Filename, nil
}

func (b *boxes) Run(ctx context.Context, _ codeexec.Offer, c codeexec.Call) (codeexec.Step, error) {
	b.known = true
	b.ran = append(b.ran, c)
	if b.during != nil {
		if err := b.during(ctx); err != nil {
			return codeexec.Step{}, err
		}
	}
	if len(b.results) == 0 {
		return codeexec.Step{Result: codeexec.ErrorBlock(c, codeexec.CodeUnavailable, "no result was given")}, nil
	}
	content := b.results[0]
	b.results = b.results[1:]
	// An array in place of a content is the calls that the code waits for.
	if content.Is(claude.Array) {
		var step codeexec.Step
		for _, u := range content.Items {
			step.Pending = append(step.Pending, codeexec.ToolUse{ID: u.Get("id").Str(), Name: u.Get("name").Str(), Input: u.Get("input")})
		}
		b.pending = true
		return step, nil
	}
	b.pending = false
	return codeexec.Step{Result: claude.NewObject("type", codeexec.ResultType(c.Name), "tool_use_id", c.ID, "content", content)}, nil
}

func (b *boxes) Continue(_ codeexec.Offer, c codeexec.Call, answers []codeexec.Answer) (continuation, error) {
	b.answers = append(b.answers, answers)
	return &resumed{boxes: b, call: c, key: fmt.Sprint(answers)}, b.continueErr
}

// resumed goes on with the next result of its boxes.
type resumed struct {
	*boxes
	call codeexec.Call
	key  string
}

func (r *resumed) Stored() []*claude.Node { return r.stored[r.key] }

func (r *resumed) Keep(events []*claude.Node) { r.stored = map[string][]*claude.Node{r.key: events} }

func (r *resumed) Next(ctx context.Context) (codeexec.Step, error) {
	return r.boxes.Run(ctx, codeexec.Offer{}, r.call)
}

func (r *resumed) Run(ctx context.Context, c codeexec.Call) (codeexec.Step, error) {
	return r.boxes.Run(ctx, codeexec.Offer{}, c)
}

func (b *boxes) Release(context.Context) { b.released++ }

// shelf is the files a test has; those without an owner are the caller's.
type shelf map[string]*file.File

func (s shelf) AuthorizeQuoted(_ context.Context, _ tenant.Caller, ids, quoted []file.ID) (map[file.ID]*file.File, error) {
	out := map[file.ID]*file.File{}
	for i, id := range append(ids, quoted...) {
		f := s[string(id)]
		if f == nil && i < len(ids) || f != nil && f.DeletedAt != nil && i < len(ids) {
			return nil, wire.NotFound()
		}
		one := file.File{ID: id}
		if f != nil {
			one = *f
		}
		if one.Owner.AppID == "" {
			one.Owner = tenant.Owner{AppID: "app_1", Scope: tenant.ScopeUser}
		}
		out[id] = &one
	}
	return out, nil
}

func (s shelf) Open(_ context.Context, _ tenant.Caller, id file.ID) (*file.File, io.ReadCloser, error) {
	f := s[string(id)]
	return f, io.NopCloser(strings.NewReader(strings.Repeat("x", int(f.Size)))), nil
}

// bench is a Service with everything around it given.
type bench struct {
	*Service
	model  *model
	boxes  *boxes
	caller tenant.Caller
}

func newBench(t *testing.T, answers ...answer) *bench {
	t.Helper()
	m := &model{answers: answers}
	set, err := upstream.New([]upstream.Config{{Name: "given", BaseURL: "http://upstream.invalid", Key: "sk-upstream-secret"}},
		upstream.Options{Transport: m, Retry: upstream.Retry{Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	b := &boxes{owner: &tenant.Owner{AppID: "app_1", Scope: tenant.ScopeUser}}
	return &bench{
		Service: &Service{Upstreams: set, places: b, store: shelf{}, PingEvery: time.Hour}, model: m, boxes: b,
		caller: tenant.Caller{AppID: "app_1", AppProven: true, Scope: tenant.ScopeUser},
	}
}

func (b *bench) handler() http.Handler {
	return wire.Handler(slog.New(slog.DiscardHandler), func(w http.ResponseWriter, r *http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/count_tokens") {
			return b.CountTokens(w, r, b.caller)
		}
		return b.Create(w, r, b.caller)
	})
}

func (b *bench) post(t *testing.T, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return b.postTo(t, "/v1/messages", body, header...)
}

func (b *bench) postTo(t *testing.T, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler().ServeHTTP(w, r)
	return w
}

func parse(t *testing.T, s string) *claude.Node {
	t.Helper()
	n, err := claude.Parse([]byte(s))
	if err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return n
}

// events reads a stream's events.
func events(t *testing.T, sse []byte) []*claude.Node {
	t.Helper()
	var out []*claude.Node
	fr := claude.NewFrameReader(bytes.NewReader(sse))
	for {
		f, err := fr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		e := parse(t, string(f.Data))
		if e.Type() != f.Event {
			t.Errorf("the frame %q has data of type %q", f.Event, e.Type())
		}
		out = append(out, e)
	}
}

// sum adds a stream up as a client does.
func sum(t *testing.T, all []*claude.Node) *claude.Node {
	t.Helper()
	var a claude.Accumulator
	for _, e := range all {
		if err := a.Add(e); err != nil {
			t.Fatalf("%v at %s", err, e.Text())
		}
	}
	if !a.Done() {
		t.Error("the stream has no message_stop")
	}
	return a.Message()
}

// normal writes a stream so that two of the same meaning are equal: pings are
// left out, deltas of one block joined, ids and times replaced, members sorted.
func normal(t *testing.T, all []*claude.Node) string {
	t.Helper()
	var out strings.Builder
	var joined *claude.Node
	flush := func() {
		if joined != nil {
			fmt.Fprintln(&out, sorted(t, joined))
			joined = nil
		}
	}
	for _, e := range all {
		d := e.Get("delta")
		member := map[string]string{"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}[d.Type()]
		switch {
		case e.Type() == "ping":
		case member != "" && joined != nil && joined.At("delta", "type").Str() == d.Type():
			joined.Get("delta").Set(member, claude.NewString(joined.At("delta", member).Str()+d.Get(member).Str()))
		case member != "":
			flush()
			joined = e.Clone()
		default:
			flush()
			fmt.Fprintln(&out, sorted(t, e))
		}
	}
	flush()
	return replaceIDs(out.String())
}

var (
	ids   = regexp.MustCompile(`\b(msg|srvtoolu|toolu|container|file|req)_[A-Za-z0-9_-]+`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`)
)

func replaceIDs(s string) string {
	seen := map[string]string{}
	count := map[string]int{}
	s = ids.ReplaceAllStringFunc(s, func(id string) string {
		prefix, _, _ := strings.Cut(id, "_")
		if prefix == "file" && (id == "file_id" || id == "file_type" || id == "file_text") || id == "container_upload" {
			return id
		}
		if seen[id] == "" {
			count[prefix]++
			seen[id] = fmt.Sprintf("%s_%d", prefix, count[prefix])
		}
		return seen[id]
	})
	return times.ReplaceAllString(s, "TIME")
}

func sorted(t *testing.T, n *claude.Node) string {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(n.Bytes()))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// frames writes events as an upstream would.
func frames(all ...string) string {
	var b strings.Builder
	for _, e := range all {
		n, err := claude.Parse([]byte(e))
		if err != nil {
			panic(err)
		}
		b.WriteString("event: " + n.Type() + "\ndata: " + e + "\n\n")
	}
	return b.String()
}

// The parts of simple upstream answers.
const (
	evStart = `{"type":"message_start","message":{"id":"msg_01Up","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`
	evStop  = `{"type":"message_stop"}`
)

func evEnd(stop string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + stop + `","stop_sequence":null},"usage":{"output_tokens":5}}`
}

func evText(i int, s string) []string {
	return []string{
		fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}`, i),
		fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%s}}`, i, claude.Quote(s)),
		fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i),
	}
}

func evTool(i int, id, name string, pieces ...string) []string {
	out := []string{fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q,"input":{}}}`, i, id, name)}
	for _, p := range pieces {
		out = append(out, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, i, claude.Quote(p)))
	}
	return append(out, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
}

// says is an upstream answer of the given blocks.
func says(stop string, blocks ...[]string) answer {
	all := []string{evStart}
	for _, b := range blocks {
		all = append(all, b...)
	}
	return answer{sse: frames(append(all, evEnd(stop), evStop)...)}
}

const codeTool = `{"type":"code_execution_20260521","name":"code_execution"}`

// body is a request with one user text and the code execution tool.
func body(extra, messages string) string {
	if messages == "" {
		messages = `[{"role":"user","content":"go"}]`
	}
	return `{"model":"m","max_tokens":100,"tools":[` + codeTool + `],"messages":` + messages + extra + `}`
}

func bashResult(stdout string) *claude.Node {
	return claude.NewObject("type", "bash_code_execution_result", "stdout", stdout, "stderr", "", "return_code", 0, "content", claude.NewArray())
}

// fault reads an error answer.
func fault(t *testing.T, w *httptest.ResponseRecorder) (int, *claude.Node) {
	t.Helper()
	n := parse(t, w.Body.String())
	if n.Type() != "error" {
		t.Fatalf("no error body: %d %s", w.Code, w.Body)
	}
	return w.Code, n.Get("error")
}

func testLibrary() codeexec.Library {
	return codeexec.Library{Python: "3.13", Packages: []string{"openpyxl", "pandas"}}
}
