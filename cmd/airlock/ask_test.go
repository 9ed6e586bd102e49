package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// fakeServer plays the server and its model, so that a test decides what a command sees and when.
type fakeServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []messagesRequest
}

// fake serves /version with that instance, /v1/messages with frames, and the rest as given, by method and path.
func fake(t *testing.T, instance string, frames func(w http.ResponseWriter, r *http.Request), rest map[string]http.HandlerFunc) *fakeServer {
	t.Helper()
	f := &fakeServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"instance":%q}`, instance) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		var body messagesRequest
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.asked = append(f.asked, body)
		f.mu.Unlock()
		frames(w, r)
	})
	for pattern, h := range rest {
		mux.HandleFunc(pattern, h)
	}
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

// last is the request of the newest turn.
func (f *fakeServer) last(t *testing.T) messagesRequest {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		t.Fatal("no turn was asked for")
	}
	return f.asked[len(f.asked)-1]
}

// command is the binary as a user of f runs it.
func (f *fakeServer) command(t *testing.T, state string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "airlock", args...)
	cmd.Env = append(os.Environ(), "AIRLOCK_URL="+f.URL, "AIRLOCK_KEY=sk-airlock-app", "AIRLOCK_MODEL=", "XDG_STATE_HOME="+state)
	return cmd
}

// run runs a command to its end.
func (f *fakeServer) run(t *testing.T, state string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, notes bytes.Buffer
	cmd := f.command(t, state, args...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	code = exitCode(t, cmd.Run())
	return out.String(), notes.String(), code
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

// send writes events and lets the client have them at once.
func send(w http.ResponseWriter, events ...string) {
	for _, e := range events {
		_, _ = io.WriteString(w, "data: "+e+"\n\n")
	}
	w.(http.Flusher).Flush()
}

// blockEvents are the events of one whole block.
func blockEvents(index int, block string) []string {
	return []string{
		fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, block),
		fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index),
	}
}

const messageStart = `{"type":"message_start","message":{"content":[],"container":null}}`

// sendMessage writes a whole answer.
func sendMessage(w http.ResponseWriter, container string, blocks ...string) {
	send(w, messageStart)
	for i, b := range blocks {
		send(w, blockEvents(i, b)...)
	}
	if container != "null" {
		container = `{"id":"` + container + `"}`
	}
	send(w, `{"type":"message_delta","delta":{"stop_reason":"end_turn","container":`+container+`}}`, `{"type":"message_stop"}`)
}

func bashCall(id string) string {
	return `{"type":"server_tool_use","id":"` + id + `","name":"bash_code_execution","input":{"command":"make"}}`
}

func bashResult(id, content string) string {
	return `{"type":"bash_code_execution_tool_result","tool_use_id":"` + id + `","content":` + content + `}`
}

const (
	bashRan     = `{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":1,"content":[]}`
	bashRefused = `{"type":"bash_code_execution_tool_result_error","error_code":"unavailable"}`
	bashInvalid = `{"type":"bash_code_execution_tool_result_error","error_code":"invalid_tool_input"}`
)

func TestConversationBelongsToTheInstanceAtWhateverAddress(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		sendMessage(w, "container_1", `{"type":"text","text":"Yes."}`)
	}
	first, moved, other := fake(t, "one", answer, nil), fake(t, "one", answer, nil), fake(t, "two", answer, nil)
	if _, stderr, code := first.run(t, state, "ask", "hello"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if _, stderr, code := moved.run(t, state, "ask", "-c", "again"); code != 0 {
		t.Fatalf("at another address: exit code %d: %s", code, stderr)
	}
	if r := moved.last(t); len(r.Messages) != 3 || r.Container != "container_1" {
		t.Errorf("at another address %d messages go on in %q", len(r.Messages), r.Container)
	}
	if _, stderr, code := other.run(t, state, "ask", "-c", "again"); code != 1 || !strings.Contains(stderr, "no conversation") {
		t.Errorf("another instance continues it: exit code %d: %s", code, stderr)
	}
	if _, _, code := moved.run(t, state, "ask", "-c", "--app", "default", "again"); code != 1 {
		t.Errorf("--app beside an API key: exit code %d", code)
	}
}

// A server of before does not tell its instance; its address has to do.
func TestConversationBelongsToTheAddressOfAServerWithoutInstance(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	f := fake(t, "", func(w http.ResponseWriter, _ *http.Request) { sendMessage(w, "null", `{"type":"text","text":"Yes."}`) }, nil)
	for _, args := range [][]string{{"ask", "hello"}, {"ask", "-c", "again"}} {
		if _, stderr, code := f.run(t, state, args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}

func TestAskFailsWithTheReasonWhenNoCodeCouldRun(t *testing.T) {
	t.Parallel()
	const reason = "This server has no root file system yet."
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"api_error","message":"`+reason+`"},"request_id":"req_1"}`)
	}
	rest := map[string]http.HandlerFunc{"POST /airlock/v1/containers": refuse, "POST /airlock/v1/containers/{id}/exec": refuse}
	for _, tt := range []struct {
		name      string
		container string
		results   []string
		code      int
	}{
		{"every call refused, no container", "null", []string{bashRefused, bashRefused}, 1},
		{"every call refused in a container", "container_1", []string{bashRefused}, 1},
		{"refused and wrong", "null", []string{bashInvalid, bashRefused}, 1},
		{"one ran, though it failed", "container_1", []string{bashRefused, bashRan}, 0},
		{"wrong, not refused", "container_1", []string{bashInvalid}, 0},
	} {
		f := fake(t, "one", func(w http.ResponseWriter, _ *http.Request) {
			var blocks []string
			for i, r := range tt.results {
				id := fmt.Sprintf("srvtoolu_%d", i)
				blocks = append(blocks, bashCall(id), bashResult(id, r))
			}
			sendMessage(w, tt.container, blocks...)
		}, rest)
		for _, flags := range [][]string{nil, {"--json"}} {
			_, stderr, code := f.run(t, t.TempDir(), append(append([]string{"ask"}, flags...), "go")...)
			if code != tt.code || strings.Contains(stderr, "no code could be run: "+reason) != (tt.code == 1) {
				t.Errorf("%s %v: exit code %d, want %d: %s", tt.name, flags, code, tt.code, stderr)
			}
		}
	}
}

// started waits until a command has written text to its standard output.
func started(t *testing.T, cmd *exec.Cmd, text string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for r := bufio.NewReader(out); !strings.Contains(seen.String(), text); {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
		seen.WriteByte(b)
	}
	// What else it writes must find a reader.
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

func TestInterruptedAskIsContinuedFromWhatIsWhole(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	blocks := []string{`{"type":"text","text":"I build it."}`, bashCall("srvtoolu_1"), bashResult("srvtoolu_1", bashRan)}
	interrupted := false
	f := fake(t, "one", func(w http.ResponseWriter, r *http.Request) {
		if interrupted {
			sendMessage(w, "container_new", `{"type":"text","text":"Done."}`)
			return
		}
		interrupted = true
		send(w, messageStart)
		for i, b := range append(append([]string{}, blocks...), bashCall("srvtoolu_2")) {
			send(w, blockEvents(i, b)...)
		}
		send(w, `{"type":"content_block_start","index":4,"content_block":{"type":"text","text":"and"}}`,
			`{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":" hal"}}`)
		<-r.Context().Done()
	}, map[string]http.HandlerFunc{"GET /airlock/v1/containers": func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now().UTC().Format(time.RFC3339Nano)
		_, _ = io.WriteString(w, `{"data":[{"id":"container_filled","created_at":"`+now+`","inputs":[{"file_id":"file_9"}]},`+
			`{"id":"container_new","created_at":"`+now+`","inputs":[]},`+
			`{"id":"container_old","created_at":"2020-01-01T00:00:00Z","inputs":[]}],"next_page":null}`)
	}})
	cmd := f.command(t, state, "ask", "build")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	started(t, cmd, "and hal")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 130 || !strings.Contains(stderr.String(), "container container_new") ||
		!strings.Contains(stderr.String(), "stopped: interrupted") {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if _, stderr, code := f.run(t, state, "ask", "-c", "go on"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	r := f.last(t)
	if r.Container != "container_new" || len(r.Messages) != 3 {
		t.Fatalf("%d messages go on in %q", len(r.Messages), r.Container)
	}
	if got, want := string(r.Messages[1].Content), "["+strings.Join(blocks, ",")+"]"; r.Messages[1].Role != "assistant" || got != want {
		t.Errorf("the answer was kept as\n%s\nwant\n%s", got, want)
	}
}

func TestRefusedAskLeavesTheLastConversationAlone(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	var refuse atomic.Bool
	f := fake(t, "one", func(w http.ResponseWriter, _ *http.Request) {
		if refuse.Load() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"No."}}`)
			return
		}
		sendMessage(w, "container_1", `{"type":"text","text":"Yes."}`)
	}, nil)
	if _, stderr, code := f.run(t, state, "ask", "hello"); code != 0 {
		t.Fatal(stderr)
	}
	refuse.Store(true)
	if _, stderr, code := f.run(t, state, "ask", "nonsense"); code != 1 || stderr != "airlock: No.\n" {
		t.Errorf("exit code %d: %q", code, stderr)
	}
	refuse.Store(false)
	if _, stderr, code := f.run(t, state, "ask", "-c", "again"); code != 0 {
		t.Fatal(stderr)
	}
	if r := f.last(t); len(r.Messages) != 3 || r.Container != "container_1" {
		t.Errorf("%d messages go on in %q", len(r.Messages), r.Container)
	}
}

func TestWhatIsKeptOfAnAnswerIsAcceptable(t *testing.T) {
	t.Parallel()
	const think = `{"type":"thinking","thinking":"x","signature":"y"}`
	const text, empty = `{"type":"text","text":"a"}`, `{"type":"text","text":" "}`
	for _, tt := range []struct {
		name         string
		blocks, kept []string
	}{
		{"a call without its result", []string{text, bashCall("s1")}, []string{text}},
		{"a result that came in a later response", []string{bashCall("s1"), text, bashResult("s1", bashRan)}, []string{bashCall("s1"), text, bashResult("s1", bashRan)}},
		{"one of two calls", []string{bashCall("s1"), bashCall("s2"), bashResult("s2", bashRan)}, []string{bashCall("s2"), bashResult("s2", bashRan)}},
		{"an empty text", []string{text, empty}, []string{text}},
		{"thinking at the end", []string{text, think, bashCall("s1")}, []string{text}},
		{"thinking before something", []string{think, text}, []string{think, text}},
		{"nothing", []string{think, empty, bashCall("s1")}, nil},
	} {
		var part answer
		if err := part.add([]byte(messageStart), &askView{}); err != nil {
			t.Fatal(err)
		}
		// All but the last come from a response that had paused.
		early := message{Role: "assistant", Content: json.RawMessage("[" + strings.Join(tt.blocks[:len(tt.blocks)-1], ",") + "]")}
		view := &askView{notes: notes{w: io.Discard}, out: io.Discard}
		for _, e := range blockEvents(0, tt.blocks[len(tt.blocks)-1]) {
			if err := part.add([]byte(e), view); err != nil {
				t.Fatal(err)
			}
		}
		before := message{Role: "user", Content: json.RawMessage(`"before"`)}
		c := &transcript{Messages: []message{before, before, {Role: "user", Content: json.RawMessage(`"x"`)}, early}}
		if err := c.cut(2, &part); err != nil {
			t.Fatal(err)
		}
		want := 4
		if tt.kept == nil {
			want = 2
		}
		if len(c.Messages) != want {
			t.Errorf("%s: %d messages, want %d", tt.name, len(c.Messages), want)
			continue
		}
		if got := string(c.Messages[want-1].Content); tt.kept != nil && got != "["+strings.Join(tt.kept, ",")+"]" {
			t.Errorf("%s: kept %s", tt.name, got)
		}
	}
}

// To go on in a foreign container would be worse than to begin a new one.
func TestContainerOfABrokenOffTurnIsTheOneThatCanOnlyBeIt(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	box := func(id string, at time.Time, files ...string) string {
		var inputs []string
		for _, f := range files {
			inputs = append(inputs, `{"file_id":"`+f+`"}`)
		}
		return `{"id":"` + id + `","created_at":"` + at.Format(time.RFC3339) + `","inputs":[` + strings.Join(inputs, ",") + `]}`
	}
	var called, said answer
	called.Accumulator, called.whole = accumulated(t, bashCall("s1")), 1
	said.Accumulator, said.whole = accumulated(t, `{"type":"text","text":"a"}`), 1
	for _, tt := range []struct {
		name  string
		boxes []string
		files []string
		part  *answer
		want  string
	}{
		{"the only new one", []string{box("new", began), box("old", began.Add(-time.Second))}, nil, &called, "new"},
		{"two new ones", []string{box("other", began), box("new", began)}, nil, &called, ""},
		{"only an old one", []string{box("old", began.Add(-time.Second))}, nil, &called, ""},
		{"a new one of somebody with files", []string{box("other", began, "f9")}, nil, &called, ""},
		{"no code was called", []string{box("other", began)}, nil, &said, ""},
		{"told by a file", []string{box("other", began), box("new", began, "f1"), box("third", began, "f9")}, []string{"f1"}, &said, "new"},
		{"files that are in none", []string{box("other", began)}, []string{"f1"}, &called, ""},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":[`+strings.Join(tt.boxes, ",")+`],"next_page":null}`)
		}))
		c := &client{url: srv.URL, http: srv.Client(), began: began}
		if got := c.madeContainer(t.Context(), tt.files, tt.part); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		srv.Close()
	}
}

func accumulated(t *testing.T, block string) (a claude.Accumulator) {
	t.Helper()
	for _, e := range append([]string{messageStart}, blockEvents(0, block)...) {
		event, err := claude.Parse([]byte(e))
		if err == nil {
			err = a.Add(event)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}
