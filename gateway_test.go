package airlock_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
)

// gateway is a server that keeps what it was sent and answers from a list, one answer after the other.
type gateway struct {
	url     string
	mu      sync.Mutex
	got     []request
	answers []answer
}

// request is one that the gateway was sent.
type request struct {
	method, uri string
	header      http.Header
	body        []byte
	length      int64
}

// json gives a member of the body, "" if it has none.
func (r request) json(t *testing.T, member string) string {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return string(body[member])
}

// answer writes one response; what was sent has been read.
type answer func(w http.ResponseWriter, got request)

func newGateway(t *testing.T, answers ...answer) *gateway {
	t.Helper()
	g := &gateway{answers: answers}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // a client that gave up
	}
	got := request{r.Method, r.RequestURI, r.Header.Clone(), body, r.ContentLength}
	g.mu.Lock()
	g.got = append(g.got, got)
	n := len(g.got) - 1
	g.mu.Unlock()
	if n >= len(g.answers) {
		refuse(http.StatusTeapot, "the test has no answer for this request", "")(w, got)
		return
	}
	g.answers[n](w, got)
}

func (g *gateway) requests(t *testing.T, want int) []request {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.got) != want {
		t.Fatalf("%d requests came, want %d", len(g.got), want)
	}
	return g.got
}

func (g *gateway) env() airlock.Env {
	return airlock.Env{BaseURL: g.url + "/", OwnerJWT: "owner.jwt", AppID: "app_01", AppIdentityToken: "v1.identity"}
}

func (g *gateway) client(t *testing.T, opts ...airlock.ClientOption) anthropic.Client {
	t.Helper()
	c, err := airlock.NewClient(g.env(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *gateway) files(t *testing.T, opts ...airlock.ClientOption) *airlock.Files {
	t.Helper()
	f, err := airlock.NewFiles(g.env(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func plain(status int, body string, header map[string]string) answer {
	return func(w http.ResponseWriter, _ request) {
		w.Header().Set("content-type", "application/json")
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// refuse answers as every route does. A client that tries again is not made to wait.
func refuse(status int, message, code string) answer {
	kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 404: "not_found_error", 529: "overloaded_error"}[status]
	details := ""
	if code != "" {
		details = fmt.Sprintf(`,"details":{"error_code":%q}`, code)
	}
	body := fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q%s},"request_id":"req_1"}`, kind, message, details)
	return plain(status, body, map[string]string{"retry-after-ms": "1"})
}

// says answers with a message of these blocks, as a stream if one was asked for.
func says(stop, container string, blocks ...string) answer {
	return func(w http.ResponseWriter, got request) {
		with := "null"
		if container != "" {
			with = fmt.Sprintf(`{"id":%q,"expires_at":"2026-12-01T00:00:00Z","skills":null}`, container)
		}
		if !bytes.Contains(got.body, []byte(`"stream":true`)) {
			plain(http.StatusOK, fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[%s],"stop_reason":%q,
				"stop_sequence":null,"container":%s,"usage":{"input_tokens":1,"output_tokens":1}}`, strings.Join(blocks, ","), stop, with), nil)(w, got)
			return
		}
		w.Header().Set("content-type", "text/event-stream")
		io.WriteString(w, startOfStream(blocks...))
		event(w, "message_delta", `"delta":{"stop_reason":%q,"stop_sequence":null,"container":%s},"usage":{"output_tokens":1}`, stop, with)
		event(w, "message_stop", `"x":0`)
	}
}

func startOfStream(blocks ...string) string {
	var w strings.Builder
	event(&w, "message_start", `"message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}`)
	for i, block := range blocks {
		event(&w, "content_block_start", `"index":%d,"content_block":%s`, i, block)
		event(&w, "content_block_stop", `"index":%d`, i)
	}
	return w.String()
}

func event(w io.Writer, kind, format string, args ...any) {
	fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, fmt.Sprintf(format, args...))
}

func text(s string) string { return fmt.Sprintf(`{"type":"text","text":%q,"citations":null}`, s) }

// made is the result of a command that left files.
func made(call string, files ...string) string {
	var content []string
	for _, id := range files {
		content = append(content, fmt.Sprintf(`{"type":"bash_code_execution_output","file_id":%q}`, id))
	}
	return fmt.Sprintf(`{"type":"bash_code_execution_tool_result","tool_use_id":%q,"content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[%s]}}`,
		call, strings.Join(content, ","))
}

// calls is a call of a tool of the application, by code in the sandbox.
func calls(id, name, input string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s,"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}`, id, name, input)
}

func file(id string) string {
	return fmt.Sprintf(`{"type":"file","id":%q,"filename":"a.txt","mime_type":"text/plain","size_bytes":1,"created_at":"2026-11-30T00:00:00Z","downloadable":true,"expires_at":null}`, id)
}

func ask(prompt ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
	if prompt == nil {
		prompt = append(prompt, anthropic.NewTextBlock("Do it."))
	}
	return anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 1000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(prompt...)},
		Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
	}
}

// gatewayHeaders are those of a request that the gateway or Anthropic reads.
func gatewayHeaders(h http.Header) map[string]string {
	got := map[string]string{}
	for name, values := range maps.All(h) {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "x-stainless-") || name == "authorization" || strings.HasPrefix(name, "anthropic-") {
			got[name] = strings.Join(values, "|")
		}
	}
	return got
}

func compact(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
