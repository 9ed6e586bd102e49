package messages

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// rateTool can be called by code only, timeTool by the model too.
	rateTool = `{"name":"get-rate","description":"Exchange rate.","input_schema":{"type":"object","properties":{"pair":{"type":"string"}},"required":["pair"]},"allowed_callers":["code_execution_20260120"]}`
	timeTool = `{"name":"now","input_schema":{"type":"object"},"allowed_callers":["direct","code_execution_20260521"]}`
)

// ptcBody is a request with the code execution tool of a version and both tools.
func ptcBody(version, extra, messages string) string {
	if messages == "" {
		messages = `[{"role":"user","content":"go"}]`
	}
	return `{"model":"m","max_tokens":100,"tools":[{"type":"` + version + `","name":"code_execution"},` + rateTool + `,` + timeTool + `],"messages":` + messages + extra + `}`
}

const inContainer = `,"container":"container_01Given"`

// Parts of histories in which the code of a cell waits.
const (
	cellBlock = `{"type":"server_tool_use","id":"srvtoolu_cell","name":"code_execution","input":{"code":"x"},"caller":{"type":"direct"}}`
	callOne   = `{"type":"tool_use","id":"toolu_one","name":"get-rate","input":{"pair":"a"},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_cell"}}`
	callTwo   = `{"type":"tool_use","id":"toolu_two","name":"now","input":{},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_cell"}}`
)

func past(assistant, user string) string {
	return `[{"role":"user","content":"go"},{"role":"assistant","content":[` + assistant + `]},{"role":"user","content":[` + user + `]}]`
}

func toolResult(id, rest string) string {
	return `{"type":"tool_result","tool_use_id":"` + id + `"` + rest + `}`
}

func cellResult(stdout string) *claude.Node {
	return claude.NewObject("type", "code_execution_result", "stdout", stdout, "stderr", "", "return_code", 0, "content", claude.NewArray())
}

// calls are what a cell waits for.
func calls(ids ...string) *claude.Node {
	out := claude.NewArray()
	for _, id := range ids {
		out.Items = append(out.Items, claude.NewObject("id", id, "name", "get-rate", "input", claude.NewObject("pair", id)))
	}
	return out
}

func TestToolsForCodeThatAreRefused(t *testing.T) {
	t.Parallel()
	with := func(tool string) string {
		return `{"model":"m","max_tokens":1,"tools":[` + codeTool + `,` + tool + `],"messages":[{"role":"user","content":"go"}]}`
	}
	code := `"allowed_callers":["code_execution_20260120"]`
	for name, tt := range map[string]struct{ body, want string }{
		"no list":              {with(`{"name":"a","allowed_callers":"direct"}`), "tools.1.allowed_callers: an array"},
		"empty list":           {with(`{"name":"a","allowed_callers":[]}`), "tools.1.allowed_callers: an array of at least one caller"},
		"unknown caller":       {with(`{"name":"a","allowed_callers":["direct","code_execution_20270101"]}`), "tools.1.allowed_callers.1: one of direct, code_execution_20250825, code_execution_20260120"},
		"no schema":            {with(`{"name":"a",` + code + `}`), "tools.1.input_schema: a JSON schema is required"},
		"circle":               {with(`{"name":"a","input_schema":{"$ref":"#"},` + code + `}`), "Circular $ref detected"},
		"broken schema":        {with(`{"name":"a","input_schema":{"type":"text"},` + code + `}`), "tools.1.input_schema: "},
		"strict":               {with(`{"name":"a","input_schema":{},"strict":true,` + code + `}`), "tools.1.strict:"},
		"mcp":                  {with(`{"type":"mcp_toolset","mcp_server_name":"x",` + code + `}`), "tools.1.allowed_callers: tools of an MCP server"},
		"computer":             {with(`{"type":"computer_20251124","name":"computer",` + code + `}`), "tools.1.allowed_callers: a tool of type computer_20251124"},
		"the code tool":        {`{"model":"m","max_tokens":1,"tools":[{"type":"code_execution_20260120","name":"code_execution",` + code + `}],"messages":[{"role":"user","content":"go"}]}`, "tools.0.allowed_callers: code cannot call"},
		"bad name":             {with(`{"name":"a b","input_schema":{},` + code + `}`), "tools.1.name:"},
		"collision":            {with(`{"name":"a-b","input_schema":{},` + code + `},{"name":"a_b","input_schema":{},` + code + `}`), "tools.2.name: code would call \"a_b\" and tools.1 both by the name a_b"},
		"name of a sub-tool":   {with(`{"name":"bash_code_execution","input_schema":{},` + code + `}`), "tools.1.name: \"bash_code_execution\" is the name of a code execution tool"},
		"no code tool":         {`{"model":"m","max_tokens":1,"tools":[{"name":"a","input_schema":{},` + code + `}],"messages":[{"role":"user","content":"go"}]}`, "tools.0.allowed_callers: calling a tool from code needs"},
		"old code tool":        {`{"model":"m","max_tokens":1,"tools":[{"type":"code_execution_20250825","name":"code_execution"},{"name":"a","input_schema":{},` + code + `}],"messages":[{"role":"user","content":"go"}]}`, "tools.1.allowed_callers: calling a tool from code needs"},
		"forced":               {ptcBody("code_execution_20260120", `,"tool_choice":{"type":"tool","name":"get-rate"}`, ""), "tool_choice.name: \"get-rate\" cannot be forced"},
		"no parallel tool use": {ptcBody("code_execution_20260120", `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`, ""), "tool_choice.disable_parallel_tool_use:"},
	} {
		code, e := fault(t, newBench(t).post(t, tt.body))
		if code != 400 || e.Type() != "invalid_request_error" || !strings.Contains(e.Get("message").Str(), tt.want) {
			t.Errorf("%s: %d %s, want %q", name, code, e.Text(), tt.want)
		}
	}
}

// upstreamOf posts a request to a model that says done, and returns what that was asked.
func upstreamOf(t *testing.T, body string) *claude.Node {
	t.Helper()
	b := newBench(t, says("end_turn", evText(0, "done")))
	if w := b.post(t, body); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return b.model.bodies()[0]
}

func TestCodeOnlyToolIsDescribedAndNotOffered(t *testing.T) {
	t.Parallel()
	up := upstreamOf(t, strings.Replace(ptcBody("code_execution_20260120", "", ""), `"allowed_callers":["code_execution_20260120"]`,
		`"cache_control":{"type":"ephemeral"},"allowed_callers":["code_execution_20260120"]`, 1))
	var names []string
	for _, n := range up.Get("tools").Items {
		names = append(names, n.Get("name").Str())
		if n.Get("allowed_callers") != nil {
			t.Errorf("allowed_callers went to the upstream: %s", n.Text())
		}
	}
	if d := cmp.Diff(names, []string{"bash_code_execution", "text_editor_code_execution", "code_execution", "now"}); d != "" {
		t.Errorf("tools (-got +want):\n%s", d)
	}
	cell := up.Get("tools").Items[2]
	for _, want := range []string{"get_rate\nName: get-rate\nDescription: Exchange rate.\nInput schema: {\"type\":\"object\",\"properties\":{\"pair\"", "\nnow\nInput schema:"} {
		if !strings.Contains(cell.Get("description").Str(), want) {
			t.Errorf("the description lacks %q: %s", want, cell.Get("description").Str())
		}
	}
	if cell.Get("cache_control") == nil {
		t.Error("the cache breakpoint of the tool that is not offered is lost")
	}
}

func TestCallerSaysTheVersionThatClientsKnow(t *testing.T) {
	t.Parallel()
	old := strings.NewReplacer("code_execution_20260120", "code_execution_20250825", "code_execution_20260521", "code_execution_20250825")
	for version, want := range map[string]string{
		"code_execution_20260120": "code_execution_20260120", "code_execution_20260521": "code_execution_20260120",
		"code_execution_20250825": "code_execution_20250825",
	} {
		body := ptcBody(version, "", "")
		if version == "code_execution_20250825" {
			body = old.Replace(body)
		}
		b := newBench(t, says("tool_use", evTool(0, "toolu_1", "code_execution", `{"code":"x"}`)))
		b.boxes.results = []*claude.Node{calls("toolu_p1", "toolu_p2")}
		m := answer200(t, b.post(t, body))
		blocks := m.Get("content").Items
		if len(blocks) != 3 || m.Get("stop_reason").Str() != "tool_use" || m.Get("container").IsNull() {
			t.Fatalf("%s: %s", version, m.Text())
		}
		for i, c := range blocks[1:] {
			got := c.Text()
			if want := `{"type":"tool_use","id":"toolu_p` + string(rune('1'+i)) + `","name":"get-rate","input":{"pair":"toolu_p` + string(rune('1'+i)) +
				`"},"caller":{"type":"` + want + `","tool_id":"` + blocks[0].Get("id").Str() + `"}}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}

func answer200(t *testing.T, w *httptest.ResponseRecorder) *claude.Node {
	t.Helper()
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return parse(t, w.Body.String())
}

// The key phrases are those that clients and gateways search for.
func TestContinuationsThatAreRefused(t *testing.T) {
	t.Parallel()
	waiting := cellBlock + "," + callOne + "," + callTwo
	both := toolResult("toolu_one", "") + "," + toolResult("toolu_two", "")
	const version = "code_execution_20260120"
	for name, tt := range map[string]struct{ body, want string }{
		"no container":     {ptcBody(version, "", past(waiting, both)), "container_id is required when there are pending tool uses generated by code execution"},
		"unknown source":   {ptcBody(version, inContainer, past(callOne, toolResult("toolu_one", ""))), "source tool `srvtoolu_cell` not found for tool use block `toolu_one`"},
		"one is missing":   {ptcBody(version, inContainer, past(waiting, toolResult("toolu_one", ""))), "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_two"},
		"user text":        {ptcBody(version, inContainer, past(waiting, `{"type":"text","text":"stop"}`)), "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_one, toolu_two"},
		"no user message":  {ptcBody(version, inContainer, strings.Replace(past(waiting, ""), `,{"role":"user","content":[]}`, "", 1)), "`tool_use` ids were found without `tool_result` blocks immediately after"},
		"unknown id":       {ptcBody(version, inContainer, past(waiting, both+","+toolResult("toolu_three", ""))), "unexpected `tool_use_id` found in `tool_result` blocks: toolu_three"},
		"id twice":         {ptcBody(version, inContainer, past(waiting, both+","+toolResult("toolu_one", ""))), "unexpected `tool_use_id` found in `tool_result` blocks: toolu_one stands there already"},
		"text beside":      {ptcBody(version, inContainer, past(waiting, both+`,{"type":"text","text":"and"}`)), "messages.2.content.2: only `tool_result` blocks are allowed"},
		"image":            {ptcBody(version, inContainer, past(waiting, toolResult("toolu_one", `,"content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aaaa"}}]`)+","+toolResult("toolu_two", ""))), "messages.2.content.0.content.1: only text"},
		"number":           {ptcBody(version, inContainer, past(waiting, toolResult("toolu_one", `,"content":5`)+","+toolResult("toolu_two", ""))), "messages.2.content.0.content: a string or an array of text blocks"},
		"too long":         {ptcBody(version, inContainer, past(waiting, toolResult("toolu_one", `,"content":"`+strings.Repeat("x", 4<<20+1)+`"`)+","+toolResult("toolu_two", ""))), "messages.2.content.0.content: the result of a call from code may have 4 MiB"},
		"no tool":          {`{"model":"m","max_tokens":1,"messages":` + past(waiting, both) + inContainer + `}`, "`code_execution` tool use with id `srvtoolu_cell` was found without a corresponding `code_execution_tool_result` block, but no `code_execution` tool was provided"},
		"two that wait":    {ptcBody(version, inContainer, past(waiting+`,{"type":"server_tool_use","id":"srvtoolu_b","name":"code_execution","input":{"code":"y"}},`+strings.NewReplacer("toolu_one", "toolu_b", "srvtoolu_cell", "srvtoolu_b").Replace(callOne), both+","+toolResult("toolu_b", ""))), "`srvtoolu_cell` and `srvtoolu_b` cannot wait at one time"},
		"text, open calls": {ptcBody(version, inContainer, past(cellBlock+`,{"type":"tool_use","id":"toolu_d","name":"now","input":{}}`, toolResult("toolu_d", "")+`,{"type":"text","text":"and"}`)), "was found without a corresponding `code_execution_tool_result` block"},
	} {
		b := newBench(t)
		code, e := fault(t, b.post(t, tt.body))
		if code != 400 || e.Type() != "invalid_request_error" || !strings.Contains(e.Get("message").Str(), tt.want) {
			t.Errorf("%s: %d %.300s, want %q", name, code, e.Text(), tt.want)
		}
		if len(b.boxes.answers) > 0 {
			t.Errorf("%s: the code was given an answer", name)
		}
	}
}

func TestRefusalOfTheContainerIsAPlainAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.boxes.continueErr = wire.Invalid("messages: no")
	w := b.post(t, ptcBody("code_execution_20260120", inContainer+`,"stream":true`, past(cellBlock+","+callOne, toolResult("toolu_one", ""))))
	if code, e := fault(t, w); code != 400 || e.Get("message").Str() != "messages: no" || b.boxes.released == 0 || b.boxes.opened != 0 {
		t.Errorf("%d %s, released %d, opened %d", code, e.Text(), b.boxes.released, b.boxes.opened)
	}
}

func TestResultsReachTheCodeAsText(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		``: "", `,"content":null`: "", `,"content":""`: "", `,"content":"a"`: "a", `,"content":[]`: "",
		`,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]`: "a\nb",
		`,"content":"e","is_error":true`:                                     "error e",
	} {
		b := newBench(t, says("end_turn", evText(0, "done")))
		b.boxes.results = []*claude.Node{cellResult("x")}
		answer200(t, b.post(t, ptcBody("code_execution_20260120", inContainer, past(cellBlock+","+callOne, toolResult("toolu_one", content)))))
		got := b.boxes.answers[0][0].Text
		if b.boxes.answers[0][0].IsError {
			got = "error " + got
		}
		if len(b.boxes.answers) != 1 || got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
}

// The container stands in every response that has a call pending, whoever is to answer it.
func TestCase01ContainerStandsInEveryPause(t *testing.T) {
	t.Parallel()
	cell := evTool(0, "toolu_1", "code_execution", `{"code":"x"}`)
	for _, tt := range []struct {
		name  string
		model answer
	}{
		{"code and a client tool in one group", says("tool_use", cell, evTool(1, "toolu_2", "now", `{"a":1}`))},
		{"code that waits", says("tool_use", cell)},
	} {
		b := newBench(t, tt.model)
		b.boxes.results = []*claude.Node{calls("toolu_p")}
		w := b.post(t, ptcBody("code_execution_20260120", `,"stream":true`, ""))
		all := events(t, w.Body.Bytes())
		checkStream(t, all)
		delta := all[len(all)-2]
		if delta.At("delta", "stop_reason").Str() != "tool_use" || delta.At("delta", "container", "id").Str() == "" || delta.At("delta", "container", "expires_at").Str() == "" {
			t.Errorf("%s: %s", tt.name, delta.Text())
		}
		if sum(t, all).At("container", "id").Str() == "" {
			t.Errorf("%s: the message has no container", tt.name)
		}
	}
}

// After a mixed group the deferred code runs first, and may wait itself: then nothing is sampled, and nothing counts.
func TestDeferredCodeMayWaitAndGoOnOverManyResponses(t *testing.T) {
	t.Parallel()
	direct := `{"type":"tool_use","id":"toolu_d","name":"now","input":{},"caller":{"type":"direct"}}`
	messages := `{"role":"user","content":"go"},{"role":"assistant","content":[` + cellBlock + `,` + direct + `]},{"role":"user","content":[` + toolResult("toolu_d", "") + `]}`
	b := newBench(t, says("end_turn", evText(0, "done")))
	b.boxes.results = []*claude.Node{calls("toolu_one"), calls("toolu_two", "toolu_three"), cellResult("out")}
	m := answer200(t, b.post(t, ptcBody("code_execution_20260120", "", "["+messages+"]")))
	if m.At("usage", "server_tool_use", "code_execution_requests").Text() != "1" {
		t.Errorf("usage of the response that began the code: %s", m.Get("usage").Text())
	}
	for _, ids := range [][]string{{"toolu_one"}, {"toolu_two", "toolu_three"}} {
		blocks := m.Get("content").Items
		if len(blocks) != len(ids) || m.Get("stop_reason").Str() != "tool_use" || m.At("usage", "input_tokens").Text() != "0" || m.At("usage", "output_tokens").Text() != "0" {
			t.Fatalf("want %v alone: %s", ids, m.Text())
		}
		var results []string
		for i, id := range ids {
			if blocks[i].Get("id").Str() != id || blocks[i].At("caller", "tool_id").Str() != "srvtoolu_cell" {
				t.Errorf("block %s", blocks[i].Text())
			}
			results = append(results, toolResult(id, `,"content":"`+id+`"`))
		}
		messages += `,{"role":"assistant","content":` + m.Get("content").Text() + `},{"role":"user","content":[` + strings.Join(results, ",") + `]}`
		m = answer200(t, b.post(t, ptcBody("code_execution_20260120", inContainer, "["+messages+"]")))
	}
	blocks := m.Get("content").Items
	if len(blocks) != 2 || blocks[0].Type() != "code_execution_tool_result" || blocks[0].Get("tool_use_id").Str() != "srvtoolu_cell" ||
		m.Get("stop_reason").Str() != "end_turn" || m.At("usage", "server_tool_use", "code_execution_requests").Text() != "0" {
		t.Errorf("the end: %s", m.Text())
	}
	// The model sees its own call with its result and the call that it made itself, and nothing of what code called.
	up := b.model.bodies()[0].Get("messages").Text()
	want := `[{"role":"user","content":"go"},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"toolu_cell","name":"code_execution","input":{"code":"x"}},{"type":"tool_use","id":"toolu_d","name":"now","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_cell","content":"{\"stdout\":\"out\",\"stderr\":\"\",\"return_code\":0}"},{"type":"tool_result","tool_use_id":"toolu_d"}]}]`
	if up != want {
		t.Errorf("the model was asked\n%s\nwant\n%s", up, want)
	}
}

func TestCallsBehindCodeThatWaitsRunAfterIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("tool_use", evTool(0, "toolu_cell", "code_execution", `{"code":"x"}`), evTool(1, "toolu_bash", "bash_code_execution", `{"command":"y"}`)),
		says("end_turn", evText(0, "done")))
	b.boxes.results = []*claude.Node{calls("toolu_one"), cellResult("first"), bashResult("second")}
	m := answer200(t, b.post(t, ptcBody("code_execution_20260120", "", "")))
	if n := len(m.Get("content").Items); n != 3 || len(b.boxes.ran) != 1 {
		t.Fatalf("%d calls ran: %s", len(b.boxes.ran), m.Text())
	}
	messages := `[{"role":"user","content":"go"},{"role":"assistant","content":` + m.Get("content").Text() + `},{"role":"user","content":[` + toolResult("toolu_one", "") + `]}]`
	m = answer200(t, b.post(t, ptcBody("code_execution_20260120", inContainer, messages)))
	var got []string
	for _, r := range m.Get("content").Items[:2] {
		got = append(got, r.Type()+" "+r.At("content", "stdout").Str())
	}
	if d := cmp.Diff(got, []string{"code_execution_tool_result first", "bash_code_execution_tool_result second"}); d != "" {
		t.Errorf("results (-got +want):\n%s", d)
	}
}

func TestRepeatedContinuationGetsTheStoredResponse(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("end_turn", evText(0, "done")))
	b.boxes.results = []*claude.Node{cellResult("x")}
	body := ptcBody("code_execution_20260120", inContainer, past(cellBlock+","+callOne, toolResult("toolu_one", "")))
	first := answer200(t, b.post(t, body))
	again := answer200(t, b.post(t, body))
	if d := cmp.Diff(first.Text(), again.Text()); d != "" {
		t.Errorf("the repeat differs:\n%s", d)
	}
	w := b.post(t, strings.Replace(body, `"max_tokens"`, `"stream":true,"max_tokens"`, 1))
	streamed := events(t, w.Body.Bytes())
	checkStream(t, streamed)
	if sum(t, streamed).Get("id").Str() != first.Get("id").Str() || len(b.boxes.ran) != 1 || b.boxes.released < 3 {
		t.Errorf("streamed %s; %d runs, %d releases", sum(t, streamed).Text(), len(b.boxes.ran), b.boxes.released)
	}
}

func TestCase06CallerMayBeMissingInWhatIsReplayed(t *testing.T) {
	t.Parallel()
	done := `,{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_cell","content":{"type":"code_execution_result","stdout":"x","stderr":"","return_code":0,"content":[]}},{"type":"text","text":"ok"}`
	full := `[{"role":"user","content":"go"},{"role":"assistant","content":[` + cellBlock + `,` + callOne + `]},{"role":"user","content":[` + toolResult("toolu_one", `,"content":"1"`) + `]},` +
		`{"role":"assistant","content":[` + done[1:] + `]},{"role":"user","content":"more"}]`
	want := upstreamOf(t, ptcBody("code_execution_20260120", "", full)).Get("messages").Text()
	without := strings.Replace(full, `,"caller":{"type":"direct"}`, "", 1)
	if got := upstreamOf(t, ptcBody("code_execution_20260120", "", without)).Get("messages").Text(); got != want {
		t.Errorf("without caller the model was asked\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(want, "toolu_one") || !strings.Contains(want, `"ok"`) {
		t.Errorf("the model was asked %s", want)
	}
	// A finished call needs neither container nor source.
	pruned := strings.Replace(full, cellBlock+",", "", 1)
	pruned = strings.Replace(pruned, done[1:strings.Index(done, `,{"type":"text"`)]+",", "", 1)
	if got := upstreamOf(t, ptcBody("code_execution_20260120", "", pruned)).Get("messages").Text(); strings.Contains(got, "toolu_one") {
		t.Errorf("with a pruned call the model was asked %s", got)
	}
}

func TestCountingNeedsNoContainer(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{body: `{"input_tokens":7}`, header: map[string]string{"Content-Type": "application/json"}})
	w := b.postTo(t, "/v1/messages/count_tokens", ptcBody("code_execution_20260120", "", past(cellBlock+","+callOne, toolResult("toolu_one", ""))))
	if m := answer200(t, w); m.Get("input_tokens").Text() != "7" || strings.Contains(b.model.bodies()[0].Text(), "toolu_one") {
		t.Errorf("%s for %s", m.Text(), b.model.bodies()[0].Text())
	}
}
