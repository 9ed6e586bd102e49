package main

import (
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
	"testing"
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
