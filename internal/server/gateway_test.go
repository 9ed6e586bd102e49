package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// The tests of the gateway's prefix run against a server with two apps and a model that records what it is asked. Their names
// carry the number of the attempt they stand for.

const proxy = "/api/proxy/anthropic/v1"

// recorder is the upstream.
type recorder struct {
	mu     sync.Mutex
	asked  []asked
	answer func(a asked) (status int, header http.Header, body string) // nil = says ok
}

type asked struct {
	method, url string
	header      http.Header
	body        string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	a := asked{method: req.Method, url: req.URL.String(), header: req.Header.Clone()}
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		a.body = string(b)
	}
	r.mu.Lock()
	r.asked = append(r.asked, a)
	answer := r.answer
	r.mu.Unlock()
	if answer == nil {
		answer = saysOK
	}
	status, header, body := answer(a)
	if header == nil {
		header = http.Header{}
	}
	if strings.HasPrefix(body, "event:") {
		header.Set("Content-Type", "text/event-stream")
	}
	return &http.Response{
		StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func (r *recorder) requests() []asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]asked(nil), r.asked...)
}

// sse writes events as an upstream does.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		var head struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal([]byte(e), &head); err != nil {
			panic(err)
		}
		b.WriteString("event: " + head.Type + "\ndata: " + e + "\n\n")
	}
	return b.String()
}

// The frames of an answer.
const (
	frameStart = `{"type":"message_start","message":{"id":"msg_01Up","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}`
	frameText  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	frameDelta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ok"}}`
	frameEnd   = `{"type":"content_block_stop","index":0}`
	frameDone  = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}`
	frameStop  = `{"type":"message_stop"}`
	plainOK    = `{"id":"msg_01Up","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`
)

func saysOK(a asked) (int, http.Header, string) {
	switch {
	case strings.HasSuffix(a.url, "/count_tokens"):
		return 200, nil, `{"input_tokens":3}`
	case strings.Contains(a.body, `"stream":true`):
		return 200, nil, sse(frameStart, frameText, frameDelta, frameEnd, frameDone, frameStop)
	}
	return 200, nil, plainOK
}

// gatewayServer is a server with the apps A and B.
type gatewayServer struct {
	*running
	up   *recorder
	a, b application

	mu  sync.Mutex
	now time.Time
}

type application struct{ id, identity string }

// who makes a request: a token and an app's identity, each may be "".
type who struct {
	token string
	app   application
	scope string // "" = the header is not sent
}

func (w who) scoped(scope string) who {
	w.scope = scope
	return w
}

// with is the same person with the identity of another app.
func (w who) with(a application) who {
	w.app = a
	return w
}

// startGateway starts a server whose clock and upstream are the test's.
func startGateway(t *testing.T, change ...func(*Config)) *gatewayServer {
	t.Helper()
	g := &gatewayServer{up: &recorder{}, now: time.Now().UTC().Truncate(time.Second)}
	cfg := testConfig(t)
	cfg.Sandbox.Pool = 0
	cfg.Upstream, cfg.UpstreamKey, cfg.UpstreamTransport = "http://model.invalid", "sk-upstream-secret", g.up
	cfg.Now = g.clock
	cfg.Limits = LimitSettings{} // the clock stands still
	for _, c := range change {
		c(&cfg)
	}
	g.running = start(t, cfg)
	g.a, g.b = g.newApp("a"), g.newApp("b")
	return g
}

func (g *gatewayServer) clock() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *gatewayServer) advance(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
}

func (g *gatewayServer) newApp(name string) application {
	g.t.Helper()
	app, err := g.parts.tenants.CreateApp(g.t.Context(), name)
	if err != nil {
		g.t.Fatal(err)
	}
	id, identity, err := g.parts.tenants.AppIdentity(g.t.Context(), app.ID)
	if err != nil {
		g.t.Fatal(err)
	}
	return application{id, identity}
}

func (g *gatewayServer) mint(n tenant.NewToken) string {
	g.t.Helper()
	tok, err := g.parts.tenants.MintToken(g.t.Context(), n)
	if err != nil {
		g.t.Fatal(err)
	}
	return tok.Text
}

// user is a person of an app; owner is the app itself.
func (g *gatewayServer) user(a application, name string) who {
	g.t.Helper()
	return who{token: g.mint(tenant.NewToken{App: a.id, User: name, TTL: 24 * time.Hour}), app: a}
}

func (g *gatewayServer) owner(a application) who {
	g.t.Helper()
	return who{token: g.mint(tenant.NewToken{App: a.id, Owner: true}), app: a}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

type errorAnswer struct {
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Details struct {
			Code string `json:"error_code"`
		} `json:"details"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

func (a answer) failure() errorAnswer {
	var e errorAnswer
	_ = json.Unmarshal([]byte(a.body), &e) // no error body has no code
	return e
}

func (a answer) code() string { return a.failure().Error.Details.Code }

// member is a string member of the answer.
func (a answer) member(name string) string {
	var m map[string]any
	_ = json.Unmarshal([]byte(a.body), &m) // then it has no members
	s, _ := m[name].(string)
	return s
}

// call sends a request with the headers that the gateway's clients send.
func (g *gatewayServer) call(w who, method, path string, body any, header ...string) answer {
	g.t.Helper()
	var all []string
	add := func(name, value string) {
		if value != "" {
			all = append(all, name, value)
		}
	}
	add("x-auth-token", w.token)
	add("x-app-id", w.app.id)
	add("x-app-identity-token", w.app.identity)
	add("x-deepspace-sandbox-scope", w.scope)
	if text, ok := body.(string); ok {
		body = strings.NewReader(text)
		add("content-type", "application/json")
	}
	resp := g.do(method, path, "", body, append(all, header...)...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// part is one part of a form.
type part struct{ name, filename, mime, content string }

func form(t *testing.T, parts ...part) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = new(bytes.Buffer)
	w := multipart.NewWriter(body)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		d := `form-data; name="` + p.name + `"`
		if p.filename != "" {
			d += `; filename="` + p.filename + `"`
		}
		h.Set("Content-Disposition", d)
		if p.mime != "" {
			h.Set("Content-Type", p.mime)
		}
		f, err := w.CreatePart(h)
		if err == nil {
			_, err = io.WriteString(f, p.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return body, w.FormDataContentType()
}

// post uploads a form.
func (g *gatewayServer) post(w who, parts ...part) answer {
	g.t.Helper()
	body, contentType := form(g.t, parts...)
	return g.call(w, "POST", proxy+"/files", io.Reader(body), "content-type", contentType)
}

// put uploads a file and gives its id.
func (g *gatewayServer) put(w who, name, content string) string {
	g.t.Helper()
	a := g.post(w, part{"file", name, "text/plain", content})
	if a.status != 200 || a.member("id") == "" {
		g.t.Fatalf("upload: %d %s", a.status, a.body)
	}
	return a.member("id")
}

// made stores an output file, as a container of that owner would.
func (g *gatewayServer) made(a application, user, scope, name, content string) string {
	g.t.Helper()
	o := tenant.Owner{AppID: a.id, Scope: tenant.Scope(scope)}
	if user != "" {
		o.UserID = jwt.OwnIssuer + "/" + user
	}
	return g.output(o, name, content)
}

const codeTool = `{"type":"code_execution_20260120","name":"code_execution"}`

// message is a body with these content blocks, and members besides.
func message(blocks, more string) string {
	return `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":[` + blocks + `]}]` + more + `}`
}

const textBlock = `{"type":"text","text":"go"}`

func uploadBlock(id string) string { return `{"type":"container_upload","file_id":"` + id + `"}` }

// say sends a message.
func (g *gatewayServer) say(w who, body string) answer {
	g.t.Helper()
	return g.call(w, "POST", proxy+"/messages", body)
}

// refused fails the test unless the answer is an error of that status and code, and the upstream was asked nothing.
func (g *gatewayServer) refused(what string, a answer, status int, code string) {
	g.t.Helper()
	if a.status != status || a.code() != code || a.failure().Error.Message == "" {
		g.t.Errorf("%s: %d %s, want %d with the code %q", what, a.status, strings.TrimSpace(a.body), status, code)
	}
	g.silent(what)
}

// silent fails the test if the upstream was asked since the last look.
func (g *gatewayServer) silent(what string) {
	g.t.Helper()
	g.up.mu.Lock()
	defer g.up.mu.Unlock()
	if n := len(g.up.asked); n > 0 {
		g.t.Errorf("%s: the upstream was asked %d times, first %s", what, n, g.up.asked[0].body)
	}
	g.up.asked = nil
}

// ok fails the test unless the answer is a success; the recording is emptied.
func (g *gatewayServer) ok(what string, a answer) {
	g.t.Helper()
	if a.status != 200 {
		g.t.Errorf("%s: %d %s", what, a.status, strings.TrimSpace(a.body))
	}
	g.up.mu.Lock()
	defer g.up.mu.Unlock()
	g.up.asked = nil
}

// notFound is the one answer for what is not there, byte for byte.
func (g *gatewayServer) notFound(what string, a answer) {
	g.t.Helper()
	want := fmt.Sprintf(`{"type":"error","error":{"type":"not_found_error","message":"Not found"},"request_id":%q}`, a.header.Get("request-id"))
	if a.status != 404 || strings.TrimSpace(a.body) != want {
		g.t.Errorf("%s: %d %s, want 404 and nothing told", what, a.status, strings.TrimSpace(a.body))
	}
	g.silent(what)
}

// decode reads the answer.
func (a answer) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatal(errors.Join(err, errors.New(a.body)))
	}
}

// space makes an empty container, which needs no sandbox.
func (g *gatewayServer) space(w who) string {
	g.t.Helper()
	h := []string{"authorization", "Bearer " + w.token}
	if w.scope != "" {
		h = append(h, "x-deepspace-sandbox-scope", w.scope)
	}
	resp := g.do("POST", "/airlock/v1/containers", "", map[string]any{}, h...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	a := answer{resp.StatusCode, resp.Header, string(b)}
	if a.member("id") == "" {
		g.t.Fatalf("make a container: %d %s", a.status, a.body)
	}
	return a.member("id")
}
