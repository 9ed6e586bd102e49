package messages

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func bashCall(i int, id, command string) []string {
	return evTool(i, id, "bash_code_execution", claude.NewObject("command", command).Text())
}

// blocksOf lists the types of content blocks.
func blocksOf(n *claude.Node) []string {
	var out []string
	for _, b := range n.Get("content").Elems() {
		out = append(out, b.Type())
	}
	return out
}

func TestCase02ContainerStandsInMessageDelta(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "ls")), says("end_turn", evText(0, "ok")))
	b.boxes.results = []*claude.Node{bashResult("x\n")}
	all := events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
	if c := all[0].At("message", "container"); !c.IsNull() {
		t.Errorf("message_start tells a container before there is one: %s", c.Text())
	}
	var told string
	for _, e := range all {
		if e.Type() == "message_delta" {
			told = e.At("delta", "container", "id").Str()
		}
	}
	if told != "container_01FileDemo000000000001" {
		t.Errorf("container in message_delta = %q", told)
	}
	// A client that lost the id continues without one and is not refused.
	b.model.answers = []answer{says("end_turn", evText(0, "again"))}
	replay := `[{"role":"user","content":"go"},{"role":"assistant","content":` + sum(t, all).Get("content").Text() + `},{"role":"user","content":"more"}]`
	if w := b.post(t, body("", replay)); w.Code != http.StatusOK {
		t.Errorf("continuation without a container answered %d %s", w.Code, w.Body)
	}
}

func TestCase03KnownContainerStandsInStartAndDelta(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("end_turn", evText(0, "ok")))
	all := events(t, b.post(t, body(`,"stream":true,"container":"container_01a"`, "")).Body.Bytes())
	for _, c := range []*claude.Node{all[0].At("message", "container"), all[len(all)-2].At("delta", "container")} {
		if c.Get("id").Str() == "" || c.Get("expires_at").Str() == "" || !c.Get("skills").Is(claude.Array) {
			t.Errorf("container = %s", c.Text())
		}
	}
}

func TestCase04ContainerAsStringObjectOrNull(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		`"container_01a"`: "container_01a", `{"id":"container_01a"}`: "container_01a", `{"id":"container_01a","skills":[]}`: "container_01a",
		`{}`: "", `null`: "", `{"id":null}`: "",
	} {
		b := newBench(t, says("end_turn", evText(0, "ok")))
		w := b.post(t, body(`,"container":`+form, ""))
		if w.Code != http.StatusOK {
			t.Errorf("container %s answered %d %s", form, w.Code, w.Body)
			continue
		}
		if got := b.boxes.acquired; len(got) != 1 || got[0] != want {
			t.Errorf("container %s acquired %q, want %q", form, got, want)
		}
		if got := b.model.bodies()[0].Get("container"); got != nil {
			t.Errorf("the upstream was sent container %s", got.Text())
		}
	}
	for _, form := range []string{`""`, `{"id":""}`, `7`, `{"skills":[{"type":"anthropic","skill_id":"xlsx"}]}`} {
		b := newBench(t)
		if code, e := fault(t, b.post(t, body(`,"container":`+form, ""))); code != 400 || !strings.HasPrefix(e.Get("message").Str(), "container") {
			t.Errorf("container %s answered %d %s", form, code, e.Text())
		}
	}
}

// everyBlock are result contents of every kind that this server makes, with the
// call that each belongs to.
func everyBlock() (calls [][]string, results []string) {
	calls = [][]string{
		bashCall(0, "toolu_01k0", "ls"),
		evTool(1, "toolu_01k1", "text_editor_code_execution", `{"command":"view","path":"a"}`),
		evTool(2, "toolu_01k2", "text_editor_code_execution", `{"command":"create","path":"a"}`),
		evTool(3, "toolu_01k3", "text_editor_code_execution", `{"command":"str_replace","path":"a","old_str":"x"}`),
		evTool(4, "toolu_01k4", "code_execution", `{"code":"1"}`),
		bashCall(5, "toolu_01k5", "x"),
		evTool(6, "toolu_01k6", "text_editor_code_execution", `{"command":"view","path":"b"}`),
		evTool(7, "toolu_01k7", "code_execution", `{"code":"2"}`),
	}
	return calls, []string{
		`{"type":"bash_code_execution_result","stdout":"a","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"file_01gone"}]}`,
		`{"type":"text_editor_code_execution_view_result","file_type":"text","content":"x","num_lines":1,"start_line":1,"total_lines":1}`,
		`{"type":"text_editor_code_execution_create_result","is_file_update":true}`,
		`{"type":"text_editor_code_execution_str_replace_result","old_start":1,"old_lines":1,"new_start":1,"new_lines":1,"lines":["-x","+"]}`,
		`{"type":"code_execution_result","stdout":"","stderr":"","return_code":0,"content":[]}`,
		`{"type":"bash_code_execution_tool_result_error","error_code":"execution_time_exceeded"}`,
		`{"type":"text_editor_code_execution_tool_result_error","error_code":"file_not_found","error_message":"no such file: /workspace/b"}`,
		`{"type":"code_execution_tool_result_error","error_code":"unavailable"}`,
	}
}

func TestCase05EveryBlockIsAcceptedBack(t *testing.T) {
	t.Parallel()
	calls, results := everyBlock()
	b := newBench(t, says("tool_use", calls...), says("end_turn", evText(0, "done")), says("end_turn", evText(0, "and on")))
	for _, r := range results {
		b.boxes.results = append(b.boxes.results, parse(t, r))
	}
	first := parse(t, b.post(t, body("", "")).Body.String())
	if got := len(first.Get("content").Elems()); got != 2*len(calls)+1 {
		t.Fatalf("%d blocks in %s", got, first.Text())
	}
	replay := `[{"role":"user","content":"go"},{"role":"assistant","content":` + first.Get("content").Text() + `},{"role":"user","content":"more"}]`
	if w := b.post(t, body("", replay)); w.Code != http.StatusOK {
		t.Fatalf("the replay answered %d %s", w.Code, w.Body)
	}
	sent := b.model.bodies()
	loop, again := sent[1].Get("messages").Items, sent[2].Get("messages").Items
	for i, m := range loop {
		if d := cmp.Diff(again[i].Text(), m.Text()); d != "" {
			t.Errorf("message %d of the replay differs from the first turn (-replay +first):\n%s", i, d)
		}
	}
	if got := len(loop[2].Get("content").Elems()); got != len(calls) {
		t.Errorf("%d tool_result blocks follow %d calls", got, len(calls))
	}
}

func TestCase05OldResultsStayReadable(t *testing.T) {
	t.Parallel()
	for _, content := range []string{
		`{"type":"encrypted_code_execution_result","encrypted_stdout":"AAAA","stderr":"e","return_code":0,"content":[]}`,
		`{"type":"code_execution_tool_result_error","error_code":"container_expired"}`,
		`{"type":"code_execution_tool_result_error","error_code":"unknown"}`,
		`{"type":"from_the_future","x":1}`,
	} {
		b := newBench(t, says("end_turn", evText(0, "ok")))
		w := b.post(t, body("", `[{"role":"user","content":"go"},{"role":"assistant","content":[
			{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"code":"1"}},
			{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_1","content":`+content+`}]},{"role":"user","content":"more"}]`))
		if w.Code != http.StatusOK {
			t.Errorf("%s answered %d %s", content, w.Code, w.Body)
			continue
		}
		if sent := b.model.bodies()[0].Text(); strings.Contains(sent, "AAAA") || strings.Contains(sent, "server_tool_use") {
			t.Errorf("the upstream was sent %s", sent)
		}
	}
}

func TestCase08UnknownKeysInReplayedInputKeepThePrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", evTool(0, "toolu_01a", "bash_code_execution", `{"command":"echo \u00e9"}`)), says("end_turn", evText(0, "ok")), says("end_turn", evText(0, "ok")))
	b.boxes.results = []*claude.Node{bashResult("é\n")}
	content := parse(t, b.post(t, body("", "")).Body.String()).Get("content")
	input := content.Items[0].Get("input")
	content.Items[0].Set("input", claude.NewObject("type", "bash_code_execution", "command", input.Get("command").Str(), "x", 1))
	content.Items[0].Delete("caller")
	w := b.post(t, body("", `[{"role":"user","content":"go"},{"role":"assistant","content":`+content.Text()+`},{"role":"user","content":"more"}]`))
	if w.Code != http.StatusOK {
		t.Fatalf("the replay answered %d %s", w.Code, w.Body)
	}
	sent := b.model.bodies()
	for i, m := range sent[1].Get("messages").Items {
		if got := sent[2].Get("messages").Items[i].Text(); got != m.Text() {
			t.Errorf("message %d: got %s, want %s", i, got, m.Text())
		}
	}
	if sent[1].Get("tools").Text() != sent[2].Get("tools").Text() {
		t.Error("the tools differ between the turns")
	}
}

func TestCase09SubToolNameAndJoinedDeltas(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", evTool(0, "toolu_01a", "text_editor_code_execution", ``, ` `, `{`, `"comm`, `and":"view","path":"/a"}`)), says("end_turn", evText(0, "ok")))
	b.boxes.results = []*claude.Node{parse(t, `{"type":"text_editor_code_execution_create_result","is_file_update":false}`)}
	all := events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
	checkStream(t, all)
	start := all[1].Get("content_block")
	if start.Get("name").Str() != "text_editor_code_execution" || start.Type() != "server_tool_use" || start.Get("input").Text() != "{}" || start.At("caller", "type").Str() != "direct" {
		t.Errorf("content_block_start has %s", start.Text())
	}
	if got := b.boxes.ran[0].Input.Text(); got != `{"command":"view","path":"/a"}` {
		t.Errorf("the call was run with %s", got)
	}
}

func TestCase12EmptyInputIsAnObject(t *testing.T) {
	t.Parallel()
	for _, pieces := range [][]string{nil, {""}, {"", "{}"}, {"{", "}"}, {" {", " } "}} {
		b := newBench(t, says("tool_use", evTool(0, "toolu_01a", "client_tool", pieces...)))
		all := events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
		checkStream(t, all)
		if got := sum(t, all).Get("content").Items[0].Get("input").Text(); got != "{}" {
			t.Errorf("pieces %q gave input %s", pieces, got)
		}
	}
	b := newBench(t, says("tool_use", evTool(0, "toolu_01a", "bash_code_execution", "{", "}")), says("end_turn", evText(0, "ok")))
	all := events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
	checkStream(t, all)
	if got := b.boxes.ran[0].Input.Text(); got != "{}" {
		t.Errorf("a sub-tool without input was run with %s", got)
	}
}

func TestInputInTheStartBecomesDeltas(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{sse: frames(evStart,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"call_1","name":"bash_code_execution","input":{"command":"ls"}}}`,
		`{"type":"content_block_stop","index":0}`, evEnd("tool_use"), evStop)}, says("end_turn", evText(0, "ok")))
	all := events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
	checkStream(t, all)
	if got := b.boxes.ran[0]; got.Input.Text() != `{"command":"ls"}` || got.ID != "srvtoolu_call_1" {
		t.Errorf("the call was run as %+v with %s", got, got.Input.Text())
	}
}

func TestCase14OneMessagePerResponse(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", evText(0, "a"), bashCall(1, "toolu_01a", "1")), says("tool_use", bashCall(0, "toolu_01a", "2")), says("end_turn", evText(0, "b")))
	all := events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
	checkStream(t, all)
	m := sum(t, all)
	want := []string{"text", "server_tool_use", "bash_code_execution_tool_result", "server_tool_use", "bash_code_execution_tool_result", "text"}
	if d := cmp.Diff(blocksOf(m), want); d != "" {
		t.Errorf("blocks differ (-got +want):\n%s", d)
	}
	if c := m.Get("content").Items; c[1].Get("id").Str() == c[3].Get("id").Str() {
		t.Error("an id that the upstream used twice was used twice")
	}
	if got := m.At("usage", "input_tokens").Text() + " " + m.At("usage", "output_tokens").Text() + " " + m.At("usage", "server_tool_use", "code_execution_requests").Text(); got != "30 15 2" {
		t.Errorf("usage = %s", m.Get("usage").Text())
	}
	// An upstream that begins again inside one answer is an error, not a splice.
	b = newBench(t, answer{sse: frames(evStart, evStart, evEnd("end_turn"), evStop)})
	all = events(t, b.post(t, body(`,"stream":true`, "")).Body.Bytes())
	if last := all[len(all)-1]; last.Type() != "error" || last.At("error", "type").Str() != "api_error" {
		t.Errorf("a spliced answer ended with %s", last.Text())
	}
}

func TestCase15OverloadBeforeTheFirstByteHasItsStatus(t *testing.T) {
	t.Parallel()
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for name, a := range map[string]answer{
		"status": {status: 529, body: overloaded},
		"event":  {sse: frames(overloaded)},
	} {
		for _, extra := range []string{`,"stream":true`, ``} {
			b := newBench(t, a)
			w := b.post(t, body(extra, ""))
			if code, e := fault(t, w); code != 529 || e.Type() != "overloaded_error" {
				t.Errorf("%s%s: %d %s", name, extra, code, e.Text())
			}
			if ct := w.Header().Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
				t.Errorf("%s%s: content type %q", name, extra, ct)
			}
		}
	}
}

func TestMidStreamErrorIsAnErrorEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{sse: frames(append([]string{evStart}, append(evText(0, "a"), `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)...)...)})
	w := b.post(t, body(`,"stream":true`, ""))
	all := events(t, w.Body.Bytes())
	if last := all[len(all)-1]; w.Code != 200 || last.Type() != "error" || last.At("error", "type").Str() != "overloaded_error" || last.Get("request_id").Str() == "" {
		t.Errorf("%d, last event %s", w.Code, last.Text())
	}
}

func TestCutAnswerIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{sse: frames(append([]string{evStart}, evText(0, "a")...)...)})
	if code, e := fault(t, b.post(t, body("", ""))); code != 502 || e.Type() != "api_error" {
		t.Errorf("a cut answer gave %d %s", code, e.Text())
	}
	// One that only lacks message_stop is complete.
	b = newBench(t, answer{sse: frames(append(append([]string{evStart}, evText(0, "a")...), evEnd("end_turn"))...)})
	if w := b.post(t, body("", "")); w.Code != 200 {
		t.Errorf("an answer without message_stop gave %d %s", w.Code, w.Body)
	}
}

func TestCase16SandboxOpensBeforeTheHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.boxes.openErr = wire.Overloaded(time.Second, "No room for another sandbox.")
	code, e := fault(t, b.post(t, body(`,"stream":true,"container":"container_01a"`, "")))
	if code != 529 || e.Type() != "overloaded_error" || len(b.model.bodies()) != 0 {
		t.Errorf("answered %d %s after %d requests to the upstream", code, e.Text(), len(b.model.bodies()))
	}
	if b.boxes.released == 0 {
		t.Error("the container was not released")
	}
}

// paused runs a loop into its limit and returns the paused message.
func paused(t *testing.T, b *bench) *claude.Node {
	t.Helper()
	m := parse(t, b.post(t, body("", "")).Body.String())
	if m.Get("stop_reason").Str() != "pause_turn" || m.At("container", "id").Str() == "" {
		t.Fatalf("no pause: %s", m.Text())
	}
	return m
}

func TestCase18PauseIsResumable(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "1")), says("tool_use", evText(0, "next"), bashCall(1, "toolu_01b", "2")), says("end_turn", evText(0, "done")))
	b.MaxIterations = 2
	b.boxes.results = []*claude.Node{bashResult("one"), bashResult("two")}
	m := paused(t, b)
	if d := cmp.Diff(blocksOf(m), []string{"server_tool_use", "bash_code_execution_tool_result", "text", "server_tool_use"}); d != "" {
		t.Errorf("paused blocks (-got +want):\n%s", d)
	}
	if len(b.boxes.ran) != 1 {
		t.Errorf("%d calls ran before the pause", len(b.boxes.ran))
	}
	w := b.post(t, body(`,"stream":true,"container":"container_01a"`, `[{"role":"user","content":"go"},{"role":"assistant","content":`+m.Get("content").Text()+`}]`))
	all := events(t, w.Body.Bytes())
	checkStream(t, all)
	got := sum(t, all)
	if d := cmp.Diff(blocksOf(got), []string{"bash_code_execution_tool_result", "text"}); d != "" {
		t.Errorf("continued blocks (-got +want):\n%s", d)
	}
	if id := got.Get("content").Items[0].Get("tool_use_id").Str(); id != m.Get("content").Items[3].Get("id").Str() {
		t.Errorf("the continuation begins with the result of %s", id)
	}
	sent := b.model.bodies()[2].Get("messages").Items
	last := sent[len(sent)-1]
	if last.Get("role").Str() != "user" || !strings.Contains(last.Text(), "two") {
		t.Errorf("the upstream was sent last %s", last.Text())
	}
	if b.boxes.opened == 0 {
		t.Error("the sandbox was not opened before the stream began")
	}
}

func TestCase19DanglingCallIsAnsweredAndTheConversationGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "1")), says("end_turn", evText(0, "fine")), says("end_turn", evText(0, "fine")))
	b.MaxIterations = 1
	m := paused(t, b)
	history := `{"role":"user","content":"go"},{"role":"assistant","content":` + m.Get("content").Text() + `},{"role":"user","content":"never mind"}`
	for _, messages := range []string{history, history + `,{"role":"assistant","content":"fine"},{"role":"user","content":"and?"}`} {
		w := b.post(t, body("", "["+messages+"]"))
		if w.Code != http.StatusOK {
			t.Fatalf("answered %d %s", w.Code, w.Body)
		}
		sent := b.model.bodies()[len(b.model.bodies())-1].Get("messages").Items
		user := sent[2].Get("content").Elems()
		if len(user) != 2 || user[0].Type() != "tool_result" || !strings.Contains(user[0].Text(), "unavailable") || !user[0].Get("is_error").IsTrue() || user[1].Get("text").Str() != "never mind" {
			t.Errorf("the upstream was sent %s", sent[2].Text())
		}
	}
	if len(b.boxes.ran) != 0 {
		t.Error("an abandoned call was run")
	}
}

func TestCase21MixedGroupRunsNothingAndContinuesWithItsResults(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "ls"), evTool(1, "toolu_01c", "client_tool", `{"q":1}`)), says("end_turn", evText(0, "done")))
	m := parse(t, b.post(t, body("", "")).Body.String())
	if m.Get("stop_reason").Str() != "tool_use" || len(b.boxes.ran) != 0 || m.At("container", "id").Str() == "" {
		t.Fatalf("a mixed group gave %s after %d calls", m.Text(), len(b.boxes.ran))
	}
	if c := m.Get("content").Items[1].At("caller", "type").Str(); c != "direct" {
		t.Errorf("caller of the client's call = %q", c)
	}
	b.boxes.results = []*claude.Node{bashResult("listing")}
	assistant := `{"role":"assistant","content":` + m.Get("content").Text() + `}`
	// No container is named: the deferred call needs none.
	w := b.post(t, body("", `[{"role":"user","content":"go"},`+assistant+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01c","content":"42"}]}]`))
	got := parse(t, w.Body.String())
	if d := cmp.Diff(blocksOf(got), []string{"bash_code_execution_tool_result", "text"}); d != "" {
		t.Fatalf("continued blocks (-got +want):\n%s\n%s", d, w.Body)
	}
	sent := b.model.bodies()[1].Get("messages").Items
	if len(sent) != 3 || len(sent[2].Get("content").Elems()) != 2 || !strings.Contains(sent[2].Text(), "listing") || !strings.Contains(sent[2].Text(), "42") {
		t.Errorf("the upstream was sent %s", b.model.bodies()[1].Get("messages").Text())
	}
	for name, messages := range map[string]string{
		"was found without a corresponding `bash_code_execution_tool_result` block":           `[{"role":"user","content":"go"},` + assistant + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01c","content":"42"},{"type":"text","text":"also"}]}]`,
		"`tool_use` ids were found without `tool_result` blocks immediately after: toolu_01c": `[{"role":"user","content":"go"},` + assistant + `]`,
		"unexpected `tool_use_id` found in `tool_result` blocks":                              `[{"role":"user","content":"go"},` + assistant + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01x","content":"42"}]}]`,
	} {
		if code, e := fault(t, newBench(t).post(t, body("", messages))); code != 400 || !strings.Contains(e.Get("message").Str(), name) {
			t.Errorf("%s: answered %d %s", name, code, e.Text())
		}
	}
	noTool := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"go"},` + assistant + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01c","content":"42"}]}]}`
	if code, e := fault(t, newBench(t).post(t, noTool)); code != 400 || !strings.HasSuffix(e.Get("message").Str(), "but no `bash_code_execution` tool was provided.") {
		t.Errorf("without the tool: %d %s", code, e.Text())
	}
}

func TestCase22PingsWhileACallRunsAndNoBuffering(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "sleep 90")), says("end_turn", evText(0, "ok")))
	b.PingEvery = time.Millisecond
	seen := make(chan struct{})
	b.boxes.during = func(ctx context.Context) error {
		select {
		case <-seen:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	srv := httptest.NewServer(b.handler())
	defer srv.Close()
	// Without pings the call would run for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/messages", strings.NewReader(body(`,"stream":true`, "")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if h := resp.Header; h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-cache" || h.Get("Content-Encoding") != "" || !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		t.Errorf("headers %v", h)
	}
	fr := claude.NewFrameReader(resp.Body)
	pings := 0
	for {
		f, err := fr.Next()
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		if f.Event == "ping" {
			if pings++; pings == 3 {
				close(seen)
			}
		}
		if f.Event == "message_stop" {
			break
		}
	}
	if pings < 3 {
		t.Errorf("%d pings", pings)
	}
}

func TestClientGoneEndsTheCommandAndTheUpstream(t *testing.T) {
	t.Parallel()
	running, ended := make(chan struct{}), make(chan error, 1)
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "sleep 999")))
	b.boxes.during = func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return context.Cause(ctx)
	}
	hang, gone := make(chan struct{}), make(chan struct{})
	silent := newBench(t, answer{sse: frames(evStart), hang: hang, gone: gone})
	for name, h := range map[string]http.Handler{"command": b.handler(), "upstream": silent.handler()} {
		srv := httptest.NewServer(h)
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/messages", strings.NewReader(body(`,"stream":true`, "")))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if name == "command" {
			<-running
		}
		cancel()
		if name == "command" {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the command ended with %v", err)
			}
		} else {
			<-gone
		}
		resp.Body.Close()
		srv.Close()
	}
	if b.boxes.released == 0 || silent.boxes.released == 0 {
		t.Error("a container was not released")
	}
}

func TestFirstEventTooLateIsATimeout(t *testing.T) {
	t.Parallel()
	hang, gone := make(chan struct{}), make(chan struct{})
	b := newBench(t, answer{sse: ": nothing yet\n\n", hang: hang, gone: gone})
	b.FirstEvent = 20 * time.Millisecond
	if code, e := fault(t, b.post(t, body(`,"stream":true`, ""))); code != 504 || e.Type() != "timeout_error" {
		t.Errorf("answered %d %s", code, e.Text())
	}
	<-gone
}

func TestCase29UploadNeedsTheToolAndMakesAContainer(t *testing.T) {
	t.Parallel()
	upload := `[{"role":"user","content":[{"type":"text","text":"go"},{"type":"container_upload","file_id":"file_01a"}]}]`
	b := newBench(t, says("end_turn", evText(0, "ok")))
	b.store = shelf{"file_01a": {ID: "file_01a", Filename: "report.docx", Size: 3}}
	m := parse(t, b.post(t, body("", upload)).Body.String())
	if m.At("container", "id").Str() == "" || len(b.boxes.added) != 1 {
		t.Errorf("container %s, %d files added", m.Get("container").Text(), len(b.boxes.added))
	}
	if sent := b.model.bodies()[0].Get("messages").Text(); !strings.Contains(sent, `"text":"[airlock] The user gave you the file \"report.docx\". In the sandbox its path is /files/input/report.docx"`) {
		t.Errorf("the model was told %s", sent)
	}
	b = newBench(t)
	code, e := fault(t, b.post(t, `{"model":"m","max_tokens":1,"messages":`+upload+`}`))
	if msg := e.Get("message").Str(); code != 400 || !strings.HasPrefix(msg, "messages.0.content.1: ") || !strings.Contains(msg, "code_execution_20260521") {
		t.Errorf("without the tool: %d %s", code, e.Text())
	}
}

func TestCase30DeadIDsInHistoryDoNotMatter(t *testing.T) {
	t.Parallel()
	// The history names an output file and calls of a container that is gone;
	// only the container field counts.
	b := newBench(t, says("end_turn", evText(0, "ok")))
	w := b.post(t, body("", `[{"role":"user","content":"go"},{"role":"assistant","content":[
		{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"x"},"caller":{"type":"direct"}},
		{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"file_01deleted"}]}}]},
		{"role":"user","content":"more"}]`))
	if w.Code != http.StatusOK {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

func TestCase31ResultBlockCarriesFileIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", bashCall(0, "toolu_01a", "x")), says("end_turn", evText(0, "ok")))
	b.boxes.results = []*claude.Node{parse(t, `{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"file_01made"}]}`)}
	m := parse(t, b.post(t, body("", "")).Body.String())
	out := m.Get("content").Items[1].At("content", "content").Items[0]
	if out.Type() != "bash_code_execution_output" || out.Get("file_id").Str() != "file_01made" {
		t.Errorf("output = %s", out.Text())
	}
	if strings.Contains(b.model.bodies()[1].Text(), "file_01made") {
		t.Error("the model was told the file id")
	}
}

func TestCase34BothFilesOfOneNameAreTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("end_turn", evText(0, "ok")))
	b.store = shelf{"file_01a": {ID: "file_01a", Filename: "a.png"}, "file_01b": {ID: "file_01b", Filename: "a (2).png"}}
	w := b.post(t, body("", `[{"role":"user","content":[{"type":"container_upload","file_id":"file_01a"}]},{"role":"assistant","content":"ok"},{"role":"user","content":[{"type":"container_upload","file_id":"file_01b"},{"type":"container_upload","file_id":"file_01a"}]}]`))
	if d := cmp.Diff(b.boxes.added, []string{"file_01a", "file_01b"}); d != "" || w.Code != 200 {
		t.Errorf("%d, added (-got +want):\n%s", w.Code, d)
	}
	sent := b.model.bodies()[0].Get("messages").Text()
	if !strings.Contains(sent, "/files/input/a.png") || !strings.Contains(sent, "/files/input/a (2).png") {
		t.Errorf("the model was told %s", sent)
	}
}

func TestCase49BodyLimitIsToldBeforeTheUpstreamIsAsked(t *testing.T) {
	t.Parallel()
	const limit = 32 << 20
	frame := body(`,"metadata":{"pad":"`, "")
	for _, size := range []int{limit - 1, limit, limit + 1} {
		b := newBench(t, says("end_turn", evText(0, "ok")))
		text := strings.TrimSuffix(frame, "}") + strings.Repeat("x", size-len(frame)-2) + `"}}`
		if len(text) != size {
			t.Fatalf("built %d bytes, want %d", len(text), size)
		}
		w := b.post(t, text)
		if size <= limit {
			if w.Code != 200 {
				t.Errorf("%d bytes answered %d %.200s", size, w.Code, w.Body)
			}
			continue
		}
		code, e := fault(t, w)
		if code != 413 || e.Type() != "request_too_large" || !strings.Contains(e.Get("message").Str(), strconv.Itoa(limit)) || len(b.model.bodies()) != 0 {
			t.Errorf("%d bytes answered %d %s", size, code, e.Text())
		}
	}
}
