package messages

import (
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/upstream"
)

func TestRequestsAreRefusedWithThePath(t *testing.T) {
	t.Parallel()
	user := `"messages":[{"role":"user","content":"go"}]`
	tests := []struct{ name, body, want string }{
		{"no model", `{"max_tokens":1,` + user + `}`, "model:"},
		{"no max_tokens", `{"model":"m",` + user + `}`, "max_tokens:"},
		{"zero max_tokens", `{"model":"m","max_tokens":0,` + user + `}`, "max_tokens:"},
		{"no messages", `{"model":"m","max_tokens":1}`, "messages:"},
		{"empty messages", `{"model":"m","max_tokens":1,"messages":[]}`, "messages:"},
		{"bad role", `{"model":"m","max_tokens":1,"messages":[{"role":"tool","content":"x"}]}`, "messages.0.role:"},
		{"bad content", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":5}]}`, "messages.0.content:"},
		{"untyped block", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"text":"x"}]}]}`, "messages.0.content.0:"},
		{"stream as text", `{"model":"m","max_tokens":1,"stream":"yes",` + user + `}`, "stream:"},
		{"duplicate member", `{"model":"m","model":"n","max_tokens":1,` + user + `}`, "model:"},
		{"unknown version", `{"model":"m","max_tokens":1,"tools":[{"type":"code_execution_20990101","name":"code_execution"}],` + user + `}`, "tools.0.type:"},
		{"wrong tool name", `{"model":"m","max_tokens":1,"tools":[{"type":"code_execution_20260120","name":"python"}],` + user + `}`, "tools.0.name:"},
		{"two code tools", `{"model":"m","max_tokens":1,"tools":[` + codeTool + `,{"type":"code_execution_20250825","name":"code_execution"}],` + user + `}`, "tools.1:"},
		{"two tools of one name", `{"model":"m","max_tokens":1,"tools":[{"name":"a"},{"name":"a"}],` + user + `}`, "tools.1.name:"},
		{"a sub-tool's name", `{"model":"m","max_tokens":1,"tools":[` + codeTool + `,{"name":"bash_code_execution"}],` + user + `}`, "tools.1.name:"},
		{"result without a call", `{"model":"m","max_tokens":1,"tools":[` + codeTool + `],"messages":[{"role":"assistant","content":[{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_9","content":{}}]},{"role":"user","content":"x"}]}`, "messages.0.content.0: unexpected `tool_use_id` found in `bash_code_execution_tool_result` blocks: srvtoolu_9"},
		{"file id of another type", `{"model":"m","max_tokens":1,"tools":[` + codeTool + `],"messages":[{"role":"user","content":[{"type":"container_upload","file_id":7}]}]}`, "messages.0.content.0.file_id:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			code, e := fault(t, b.post(t, tt.body))
			if code != 400 || e.Type() != "invalid_request_error" || !strings.Contains(e.Get("message").Str(), tt.want) {
				t.Errorf("answered %d %s, want %q", code, e.Text(), tt.want)
			}
			if n := len(b.model.bodies()); n != 0 {
				t.Errorf("the upstream was asked %d times", n)
			}
		})
	}
}

func TestThreadIsRefusedInTheFormThatToolRunnersFallBackOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	code, e := fault(t, b.post(t, body(`,"thread":{"type":"create"}`, ""), "anthropic-beta", "message-threads-2026-08-12"))
	d := e.Get("details")
	if code != 400 || d.Get("error_code").Str() != "thread_unsupported_request" || d.Get("unsupported") == nil || !d.Get("unsupported").IsNull() {
		t.Errorf("answered %d %s", code, e.Text())
	}
	b = newBench(t, says("end_turn", evText(0, "ok")))
	if w := b.post(t, body(`,"thread":null`, "")); w.Code != 200 {
		t.Errorf("thread null answered %d %s", w.Code, w.Body)
	}
}

func TestEveryToolVersionUnderEveryHeader(t *testing.T) {
	t.Parallel()
	for v, names := range map[string]string{
		"code_execution_20250522": "code_execution",
		"code_execution_20250825": "bash_code_execution text_editor_code_execution",
		"code_execution_20260120": "bash_code_execution text_editor_code_execution code_execution",
		"code_execution_20260521": "bash_code_execution text_editor_code_execution code_execution",
	} {
		for _, h := range [][]string{nil, {"anthropic-version", "2023-06-01"}, {"anthropic-version", "2026-10-21", "anthropic-beta", "code-execution-2025-05-22,files-api-2025-04-14", "anthropic-beta", "interleaved-thinking-2025-05-14"}} {
			b := newBench(t, says("end_turn", evText(0, "ok")))
			w := b.post(t, `{"model":"m","max_tokens":1,"temperature":0.5,"tools":[{"type":"`+v+`","name":"code_execution","cache_control":{"type":"ephemeral"},"allowed_callers":["direct"]},{"name":"x","allowed_callers":["direct"],"defer_loading":true}],"messages":[{"role":"user","content":"go"}]}`, h...)
			if w.Code != 200 {
				t.Fatalf("%s %v answered %d %s", v, h, w.Code, w.Body)
			}
			sent := b.model.bodies()[0]
			var got []string
			tools := sent.Get("tools").Items
			for _, tool := range tools[:len(tools)-1] {
				got = append(got, tool.Get("name").Str())
			}
			if strings.Join(got, " ") != names {
				t.Errorf("%s offers %q, want %q", v, got, names)
			}
			if last := tools[len(tools)-2]; last.At("cache_control", "type").Str() != "ephemeral" {
				t.Errorf("%s: the cache breakpoint is not on the last sub-tool", v)
			}
			if x := tools[len(tools)-1].Text(); x != `{"name":"x","defer_loading":true}` {
				t.Errorf("%s: the client's tool became %s", v, x)
			}
			if beta := b.model.headers[0].Get("Anthropic-Beta"); len(h) > 4 && beta != "interleaved-thinking-2025-05-14" {
				t.Errorf("betas sent on: %q", beta)
			}
			if sent.Get("temperature").Text() != "0.5" {
				t.Error("temperature was lost")
			}
		}
	}
	for _, h := range [][]string{{"anthropic-version", "2022-01-01"}, {"anthropic-version", "2023-06-01", "anthropic-version", "2026-10-21"}} {
		if code, e := fault(t, newBench(t).post(t, body("", ""), h...)); code != 400 || !strings.HasPrefix(e.Get("message").Str(), "anthropic-") {
			t.Errorf("%v answered %d %s", h, code, e.Text())
		}
	}
}

func TestStrictVersionRefusesSamplingParameters(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		b := newBench(t, says("end_turn", evText(0, "ok")))
		b.StrictVersion = strict
		w := b.post(t, body(`,"top_p":0.5`, ""), "anthropic-version", "2026-10-21")
		if want := map[bool]int{false: 200, true: 400}[strict]; w.Code != want {
			t.Errorf("strict %v answered %d, want %d", strict, w.Code, want)
		}
	}
}

func TestRequestWithoutTheToolPassesWithoutLoss(t *testing.T) {
	t.Parallel()
	reply := `{"id":"x","type":"message","content":[{"type":"from_the_future","n":1.50}],"usage":{"iterations":[1]},"stop_reason":"end_turn"}`
	b := newBench(t, answer{body: reply})
	in := `{"z":1.50,"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"thinking","signature":"\u00e9\/=","a":null}]},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"b":1,"a":[]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}],"tools":[{"type":"web_search_20260209","name":"web_search"}]}`
	w := b.post(t, in)
	if got := b.model.bodies()[0].Text(); got != in {
		t.Errorf("the upstream was sent\n%s\nwant\n%s", got, in)
	}
	if got := strings.TrimSpace(w.Body.String()); got != reply {
		t.Errorf("the client was sent\n%s\nwant\n%s", got, reply)
	}
}

func TestStreamWithoutTheToolPassesWithoutLoss(t *testing.T) {
	t.Parallel()
	sse := frames(
		`{"type":"message_start","message":{"id":"gen-7","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"x":2}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"from_the_future","a":1.50}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"future_delta","b":"\u00e9"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","y":1},"usage":{"output_tokens":3},"context_management":{}}`, evStop)
	b := newBench(t, answer{sse: sse})
	w := b.post(t, `{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"x"}]}`)
	if got := w.Body.String(); got != sse {
		t.Errorf("got\n%s\nwant\n%s", got, sse)
	}
}

func TestContainerWithoutTheToolIsCheckedAndTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{body: `{"id":"msg_1","type":"message","content":[]}`})
	w := b.post(t, `{"model":"m","max_tokens":5,"container":"container_01a","messages":[{"role":"user","content":"x"}]}`)
	if got := parse(t, w.Body.String()).At("container", "id").Str(); got == "" || b.boxes.acquired[0] != "container_01a" || b.boxes.opened != 0 {
		t.Errorf("told %q, acquired %q, opened %d", got, b.boxes.acquired, b.boxes.opened)
	}
}

func TestNoUpstreamNamesTheSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Upstreams = &upstream.Set{}
	code, e := fault(t, b.post(t, body("", "")))
	if msg := e.Get("message").Str(); code != 400 || !strings.Contains(msg, "ANTHROPIC_API_KEY") || !strings.Contains(msg, "AIRLOCK_UPSTREAM") {
		t.Errorf("answered %d %s", code, e.Text())
	}
}

func TestUpstreamSecretsStayHere(t *testing.T) {
	t.Parallel()
	for _, a := range []answer{
		{status: 401, body: `{"type":"error","error":{"type":"authentication_error","message":"bad key sk-upstream-secret"}}`},
		{status: 403, body: `{"type":"error","error":{"type":"permission_error","message":"account sk-upstream-secret"}}`},
		{status: 500, body: `<html>sk-upstream-secret</html>`},
		{status: 400, body: `{"error":"sk-upstream-secret"}`},
		{status: 302, body: `sk-upstream-secret`, header: map[string]string{"Location": "http://elsewhere.invalid/"}},
		{body: `sk-upstream-secret`},
	} {
		b := newBench(t, a)
		w := b.post(t, body("", ""))
		if strings.Contains(w.Body.String(), "secret") || w.Code < 400 {
			t.Errorf("%d %s answered %d %s", a.status, a.body, w.Code, w.Body)
		}
		if w.Code == 401 || w.Code == 403 {
			t.Errorf("the upstream's %d about our key was passed on", a.status)
		}
	}
}

func TestUpstreamRefusalKeepsItsStatusAndText(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{status: 429, header: map[string]string{"Retry-After": "7"}, body: `{"type":"error","error":{"type":"rate_limit_error","message":"Slow down."}}`})
	w := b.post(t, body("", ""))
	if code, e := fault(t, w); code != 429 || e.Get("message").Str() != "Slow down." || w.Header().Get("Retry-After") != "7" {
		t.Errorf("answered %d %s retry-after %q", code, e.Text(), w.Header().Get("Retry-After"))
	}
}

func TestFilesForTheModelAreInlined(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("end_turn", evText(0, "ok")))
	b.store = shelf{
		"file_01t": {ID: "file_01t", MIME: "text/plain", Size: 2}, "file_01p": {ID: "file_01p", MIME: "application/pdf", Size: 3},
		"file_01i":   {ID: "file_01i", MIME: "image/png", Size: 3},
		"file_01big": {ID: "file_01big", MIME: "application/pdf", Size: 33 << 20},
	}
	with := func(block string) string {
		return `{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":[` + block + `]}]}`
	}
	w := b.post(t, with(`{"type":"document","title":"T","source":{"type":"file","file_id":"file_01t"}},{"type":"tool_result","tool_use_id":"x","content":[{"type":"image","source":{"type":"file","file_id":"file_01i"}}]},{"type":"document","source":{"type":"file","file_id":"file_01p"}}`))
	want := `[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"xx"}},{"type":"tool_result","tool_use_id":"x","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"eHh4"}}]},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"eHh4"}}]`
	if got := b.model.bodies()[0].Get("messages").Items[0].Get("content").Text(); got != want || w.Code != 200 {
		t.Errorf("%d, sent\n%s\nwant\n%s", w.Code, got, want)
	}
	for block, wantCode := range map[string]int{
		`{"type":"image","source":{"type":"file","file_id":"file_01p"}}`:       400,
		`{"type":"document","source":{"type":"file","file_id":"file_01i"}}`:    400,
		`{"type":"document","source":{"type":"file","file_id":"file_01none"}}`: 404,
		`{"type":"document","source":{"type":"file","file_id":"file_01big"}}`:  400,
	} {
		code, e := fault(t, b.post(t, with(block)))
		if code != wantCode {
			t.Errorf("%s answered %d %s, want %d", block, code, e.Text(), wantCode)
		}
	}
	if n := len(b.model.bodies()); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

func TestCountTokensRewritesLikeARequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{body: `{"input_tokens":12}`})
	b.store = shelf{"file_01a": &file.File{ID: "file_01a", Filename: "a.csv"}}
	w := b.postTo(t, "/v1/messages/count_tokens", `{"model":"m","tools":[`+codeTool+`],"container":"container_01a","messages":[{"role":"user","content":[{"type":"container_upload","file_id":"file_01a"}]}]}`)
	sent := b.model.bodies()[0]
	if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"input_tokens":12}` || b.model.paths[0] != "/v1/messages/count_tokens" {
		t.Errorf("answered %d %s from %s", w.Code, w.Body, b.model.paths[0])
	}
	if len(sent.Get("tools").Items) != 3 || sent.Get("container") != nil || sent.Get("stream") != nil || !strings.Contains(sent.Text(), "/files/input/a.csv") || len(b.boxes.acquired) != 0 {
		t.Errorf("the upstream was sent %s", sent.Text())
	}
}

func TestMaxTokensInsideACallRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("max_tokens", evTool(0, "toolu_01a", "bash_code_execution", `{"command":"rm -r`)))
	m := parse(t, b.post(t, body("", "")).Body.String())
	if m.Get("stop_reason").Str() != "max_tokens" || len(b.boxes.ran) != 0 || m.Get("content").Items[0].Get("input").Text() != "{}" {
		t.Errorf("gave %s after %d calls", m.Text(), len(b.boxes.ran))
	}
}

func TestUsageIsSummedOverAllAnswers(t *testing.T) {
	t.Parallel()
	one := `{"type":"message_start","message":{"id":"msg_1","model":"m","content":[],"usage":{"input_tokens":5,"cache_creation_input_tokens":7,"cache_read_input_tokens":9,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4},"output_tokens":1,"service_tier":"priority"}}}`
	end := func(stop string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + stop + `"},"usage":{"output_tokens":11,"input_tokens":6,"output_tokens_details":{"thinking_tokens":2},"server_tool_use":{"web_search_requests":1}}}`
	}
	first := append(append([]string{one}, bashCall(0, "toolu_01a", "x")...), end("tool_use"), evStop)
	second := append(append([]string{one}, evText(0, "x")...), end("end_turn"), evStop)
	for _, extra := range []string{"", `,"stream":true`} {
		b := newBench(t, answer{sse: frames(first...)}, answer{sse: frames(second...)})
		w := b.post(t, body(extra, ""))
		var m *claude.Node
		if extra == "" {
			m = parse(t, w.Body.String())
		} else {
			m = sum(t, events(t, w.Body.Bytes()))
		}
		want := `{"cache_creation":{"ephemeral_1h_input_tokens":8,"ephemeral_5m_input_tokens":6},"cache_creation_input_tokens":14,"cache_read_input_tokens":18,"inference_geo":"not_available","input_tokens":12,"output_tokens":22,"output_tokens_details":{"thinking_tokens":4},"server_tool_use":{"code_execution_requests":1,"web_fetch_requests":0,"web_search_requests":2},"service_tier":"priority","speed":"standard"}`
		if got := sorted(t, m.Get("usage")); got != want {
			t.Errorf("usage%s\ngot  %s\nwant %s", extra, got, want)
		}
	}
}

// A stream's text begins with citations: null, as hosted. In a whole message AI SDK 6 takes a list or nothing.
func TestWholeMessagesHaveNoNullCitations(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]bool{"": false, `,"stream":true`: true} {
		b := newBench(t, answer{sse: frames(append(append([]string{evStart}, evText(0, "x")...), evEnd("end_turn"), evStop)...)})
		got := b.post(t, body(extra, "")).Body.String()
		if !strings.Contains(got, `"x"`) || strings.Contains(got, `"citations":null`) != want {
			t.Errorf("%s: %s", extra, got)
		}
	}
}
