package script

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const allTools = `[{"name":"bash_code_execution"},{"name":"text_editor_code_execution"},{"name":"code_execution"}]`

// ask sends a request to a scripted model and returns the status and the body.
func ask(t *testing.T, rt http.RoundTripper, body string) (int, *claude.Node) {
	t.Helper()
	status, b := raw(t, rt, "/v1/messages", body)
	n, err := claude.Parse(b)
	if err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return status, n
}

func raw(t *testing.T, rt http.RoundTripper, path, body string) (int, []byte) {
	t.Helper()
	method, in := http.MethodPost, io.Reader(strings.NewReader(body))
	if body == "" {
		method, in = http.MethodGet, nil
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://script.invalid"+path, in)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

func request(tools, script, later string) string {
	return `{"model":"any","max_tokens":10,"tools":` + tools + `,"messages":[{"role":"user","content":` + claude.Quote(script) + `}` + later + `]}`
}

// run plays a script to its end, answering each call with the next result, and
// writes the messages as lines.
func run(t *testing.T, tools, script string, results ...string) string {
	t.Helper()
	rt := New()
	var out []string
	later := ""
	for range 20 {
		status, m := ask(t, rt, request(tools, script, later))
		if status != 200 {
			return strings.Join(append(out, strconv.Itoa(status)+" "+m.At("error", "message").Str()), "\n")
		}
		line, answers := "", ""
		for _, b := range m.Get("content").Elems() {
			if b.Type() == "text" {
				line += "say(" + b.Get("text").Str() + ") "
				continue
			}
			line += b.Get("name").Str() + b.Get("input").Text() + " "
			r := `"ok"`
			if len(results) > 0 {
				r, results = results[0], results[1:]
			}
			if answers != "" {
				answers += ","
			}
			answers += `{"type":"tool_result","tool_use_id":"` + b.Get("id").Str() + `","content":` + r + `}`
		}
		out = append(out, line+m.Get("stop_reason").Str())
		if answers == "" {
			break
		}
		later += `,{"role":"assistant","content":` + m.Get("content").Text() + `},{"role":"user","content":[` + answers + `,{"type":"text","text":"[airlock] note"}]}`
	}
	return strings.Join(out, "\n")
}

func TestScripts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, tools, script string
		results             []string
		want                string
	}{
		{"no fence", allTools, "Please edit my file.", nil, "say(" + sayNoScript + ") end_turn"},
		{
			"texts and actions in order", allTools, "one\n```bash\nls\nid\n```\ntwo\n```cell\n1+1\n```\nthree", nil,
			"say(one) bash_code_execution{\"command\":\"ls\\nid\"} tool_use\nsay(two) code_execution{\"code\":\"1+1\"} tool_use\nsay(three) end_turn",
		},
		{"done", allTools, "```bash\nls\n```", nil, "bash_code_execution{\"command\":\"ls\"} tool_use\nsay(Done.) end_turn"},
		{"python is a cell", allTools, "```python\nx\n```", nil, "code_execution{\"code\":\"x\"} tool_use\nsay(Done.) end_turn"},
		{
			"python is a here-document", `[{"name":"bash_code_execution"}]`, "```python\nPYTHON\n```", nil,
			"bash_code_execution{\"command\":\"python3 - <<'PYTHON_'\\nPYTHON\\nPYTHON_\"} tool_use\nsay(Done.) end_turn",
		},
		{
			"cell needs cells", `[{"name":"bash_code_execution"}]`, "```bash\nx\n```\n```cell\nx\n```", nil,
			"400 scripted model: the script has the action cell, but the request offers no tool for it.",
		},
		{"a client's bash", `[{"name":"bash"}]`, "```bash\nls\n```", nil, "bash{\"command\":\"ls\"} tool_use\nsay(Done.) end_turn"},
		{
			"editor", allTools, "```view a b.txt\n```\n```create /x\n1\n\n```\n```create /e\n```\n```replace /x\na\n=======\nb\nc\n```", nil,
			"text_editor_code_execution{\"command\":\"view\",\"path\":\"a b.txt\"} tool_use\n" +
				"text_editor_code_execution{\"command\":\"create\",\"path\":\"/x\",\"file_text\":\"1\\n\\n\"} tool_use\n" +
				"text_editor_code_execution{\"command\":\"create\",\"path\":\"/e\",\"file_text\":\"\"} tool_use\n" +
				"text_editor_code_execution{\"command\":\"str_replace\",\"path\":\"/x\",\"old_str\":\"a\",\"new_str\":\"b\\nc\"} tool_use\nsay(Done.) end_turn",
		},
		{
			"any tool", `[]`, "```tool get_weather\n{\"city\": \"X\"}\n```\n~~~tool empty\n~~~", nil,
			"get_weather{\"city\":\"X\"} tool_use\nempty{} tool_use\nsay(Done.) end_turn",
		},
		{
			"parallel", allTools, "```parallel\n```\na\n```bash\n1\n```\nb\n```bash\n2\n```\n```end\n```\nc", nil,
			"say(a) bash_code_execution{\"command\":\"1\"} say(b) bash_code_execution{\"command\":\"2\"} tool_use\nsay(c) end_turn",
		},
		{"say", `[]`, "```say 3\n```", nil, "say(w1 w2 w3) end_turn"},
		{"stop", `[]`, "text\n```stop max_tokens\n```", nil, "say(text) max_tokens"},
		{"stop in a group", allTools, "```parallel\n```\n```bash\nx\n```\n```stop max_tokens\n```\n```end\n```", nil, "bash_code_execution{\"command\":\"x\"} max_tokens\nsay(Done.) end_turn"},
		{
			"longer fences nest", allTools, "````create /s.md\n```bash\nls\n```\n````", nil,
			"text_editor_code_execution{\"command\":\"create\",\"path\":\"/s.md\",\"file_text\":\"```bash\\nls\\n```\\n\"} tool_use\nsay(Done.) end_turn",
		},
		{"unknown info is text", allTools, "```json\n{}\n```", nil, "say(```json\n{}\n```) end_turn"},
		{"must ends a failed script", allTools, "```bash must\nx\n```\n```bash\ny\n```", []string{`"{\"return_code\":1}"`}, "bash_code_execution{\"command\":\"x\"} tool_use\nsay(" + sayFailed + ") end_turn"},
		{"must goes on after success", allTools, "```bash must\nx\n```\nfine", []string{`"{\"return_code\":0}"`}, "bash_code_execution{\"command\":\"x\"} tool_use\nsay(fine) end_turn"},
		{"failure without must goes on", allTools, "```bash\nx\n```\nfine", []string{`[{"type":"text","text":"{\"error_code\":\"unavailable\"}"}]`}, "bash_code_execution{\"command\":\"x\"} tool_use\nsay(fine) end_turn"},
		{"must on a path", allTools, "```view /a b must\n```\nfine", []string{`"{\"error_code\":\"file_not_found\"}"`}, "text_editor_code_execution{\"command\":\"view\",\"path\":\"/a b\"} tool_use\nsay(" + sayFailed + ") end_turn"},
		{"unclosed", allTools, "```bash\nls", nil, "bash_code_execution{\"command\":\"ls\"} tool_use\nsay(Done.) end_turn"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(run(t, tt.tools, tt.script, tt.results...), tt.want); d != "" {
				t.Errorf("(-got +want):\n%s", d)
			}
		})
	}
}

func TestBadScriptsAreRefused(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"```Bash\nls\n```":                       `did you mean "bash"`,
		"```pyton\nls\n```":                      `did you mean "python"`,
		"```bahs\nls\n```":                       `did you mean "bash"`,
		"```tol x\n```":                          `did you mean "tool"`,
		"```bash now\nls\n```":                   "takes nothing after it",
		"```view\n```":                           "needs a path",
		"```replace /x\na\n```":                  "=======",
		"```tool\n```":                           "needs one tool name",
		"```tool x\n[1]\n```":                    "JSON object",
		"```say many\n```":                       "needs a number",
		"```stop now\n```":                       "stop reasons",
		"```sleep 3\n```":                        "duration",
		"```sleep 11m\n```":                      "duration",
		"```usage {\n```":                        "JSON object",
		"```error\n```":                          "needs a status",
		"```error 200\n```":                      "from 400 to 599",
		"```error 500 often\n```":                "times=N and mid",
		"```parallel\n```\n```bash\nx\n```":      "parallel without end",
		"```end\n```":                            "end without parallel",
		"```parallel\n```\n```end\n```":          "without a tool call",
		"```parallel\n```\n```parallel\n```":     "inside parallel",
		"```stop end_turn\n```\n```bash\nx\n```": "nothing can follow stop",
		"```bash\nfirst\n```\n```error 200\n```": "from 400 to 599",
	} {
		if got := run(t, allTools, script); !strings.HasPrefix(got, "400 scripted model: ") || !strings.Contains(got, want) {
			t.Errorf("%q gave %q, want 400 with %q", script, got, want)
		}
	}
}

func TestErrorsAreCountedPerScript(t *testing.T) {
	t.Parallel()
	rt := New()
	script := "```error 529 times=2\nbusy\n```\nfine"
	var got []int
	for range 4 {
		status, m := ask(t, rt, request(allTools, script, ""))
		got = append(got, status)
		if status == 529 && (m.At("error", "type").Str() != "overloaded_error" || m.At("error", "message").Str() != "busy") {
			t.Errorf("error body %s", m.Text())
		}
	}
	if d := cmp.Diff(got, []int{529, 529, 200, 200}); d != "" {
		t.Errorf("statuses (-got +want):\n%s", d)
	}
	if status, _ := ask(t, rt, request(allTools, script+"!", "")); status != 529 {
		t.Errorf("another script got %d", status)
	}
	if status, _ := ask(t, rt, request(allTools, "```error 503\n```", "")); status != 503 {
		t.Errorf("an error without times got %d", status)
	}
}

func TestErrorsAreCountedForABoundedNumberOfScripts(t *testing.T) {
	t.Parallel()
	var s Server
	for i := range maxCounted + 10 {
		s.due(strconv.Itoa(i), fault{times: 1})
	}
	if len(s.counts) > maxCounted || len(s.counted) > maxCounted {
		t.Errorf("%d counts, %d keys", len(s.counts), len(s.counted))
	}
}

// streamed reads an answer as a stream.
func streamed(t *testing.T, body string) (types []string, sum *claude.Node) {
	t.Helper()
	_, b := raw(t, New(), "/v1/messages", strings.Replace(body, `{"model"`, `{"stream":true,"model"`, 1))
	fr := claude.NewFrameReader(bytes.NewReader(b))
	var a claude.Accumulator
	for {
		f, err := fr.Next()
		if errors.Is(err, io.EOF) {
			return types, a.Message()
		}
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, f.Event)
		e, err := claude.Parse(f.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Add(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStreamAddsUpToThePlainMessage(t *testing.T) {
	t.Parallel()
	body := request(allTools, strings.Repeat("many words of text ", 20)+"\n```bash\necho "+strings.Repeat("héllo ", 40)+"\n```", "")
	types, sum := streamed(t, body)
	_, plain := ask(t, New(), body)
	if d := cmp.Diff(sum.Text(), plain.Text()); d != "" {
		t.Errorf("(-stream +plain):\n%s", d)
	}
	if len(types) < 20 || types[0] != "message_start" || types[len(types)-1] != "message_stop" {
		t.Errorf("events %q", types)
	}
}

func TestMidErrorComesAfterTheText(t *testing.T) {
	t.Parallel()
	types, _ := streamed(t, request(`[]`, "some text\n```error 529 mid\n```", ""))
	if types[len(types)-1] != "error" || types[0] != "message_start" {
		t.Errorf("events %q", types)
	}
}

func TestTokensAreBytesByFourRoundedUp(t *testing.T) {
	t.Parallel()
	// messages = 34 bytes, output "hello" = 5 bytes.
	body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"~~~x\nhi"}]}`
	_, m := ask(t, New(), body)
	in := len(`[{"role":"user","content":"~~~x\nhi"}]`)
	if got, _ := m.At("usage", "input_tokens").Int(); got != int64((in+3)/4) {
		t.Errorf("input_tokens = %d for %d bytes", got, in)
	}
	if got, _ := m.At("usage", "output_tokens").Int(); got != 2 { // "~~~x\nhi" is 7 bytes
		t.Errorf("output_tokens = %d", got)
	}
	status, counted := raw(t, New(), "/v1/messages/count_tokens", body)
	if want := `{"input_tokens":` + strconv.Itoa((in+3)/4) + `}`; status != 200 || string(counted) != want {
		t.Errorf("count_tokens gave %d %s, want %s", status, counted, want)
	}
	_, m = ask(t, New(), request(`[]`, "```usage {\"input_tokens\": 1000, \"cache_read_input_tokens\": 7}\n```", ""))
	if u := m.Get("usage"); u.Get("input_tokens").Text() != "1000" || u.Get("cache_read_input_tokens").Text() != "7" {
		t.Errorf("usage = %s", u.Text())
	}
}

func TestIDsDifferBetweenTurnsAndRepeatWithTheRequest(t *testing.T) {
	t.Parallel()
	script := "```bash\nx\n```"
	_, first := ask(t, New(), request(allTools, script, ""))
	_, again := ask(t, New(), request(allTools, script, ""))
	_, second := ask(t, New(), request(allTools, script, `,{"role":"assistant","content":"ok"},{"role":"user","content":`+claude.Quote(script)+`}`))
	id := func(m *claude.Node) string { return m.Get("content").Items[0].Get("id").Str() }
	if id(first) != id(again) || id(first) == id(second) || first.Get("id").Str() == second.Get("id").Str() {
		t.Errorf("ids %s %s %s", id(first), id(again), id(second))
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	if status, b := raw(t, New(), "/v1/models", ""); status != 200 || !bytes.Contains(b, []byte(`"id":"script"`)) {
		t.Errorf("models: %d %s", status, b)
	}
	if status, b := raw(t, New(), "/v1/models/any", ""); status != 200 || !bytes.Contains(b, []byte(`"id":"any"`)) {
		t.Errorf("model: %d %s", status, b)
	}
}

func TestCancelledRequestEndsTheHandler(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	body := strings.Replace(request(`[]`, "text\n```sleep 10m\n```\nmore", ""), `{"model"`, `{"stream":true,"model"`, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://script.invalid/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := New().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if f, err := claude.NewFrameReader(resp.Body).Next(); err != nil || f.Event != "message_start" {
		t.Fatalf("first frame %q, %v", f.Event, err)
	}
	cancel()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the body of a cancelled request ended without an error")
	}
}

func FuzzScript(f *testing.F) {
	for _, s := range []string{"```bash\nls\n```", "````a\n```\n````", "~~~say 3\n~~~", "```parallel\n```\n```tool x\n{}\n```\n```end\n```", "   ```error 529 times=2\n", "```usage {}\n```"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Every byte of the message is in one part, and fences do not overlap.
		for _, p := range split(s) {
			if p.fenced && !strings.Contains(strings.ReplaceAll(s, "\r\n", "\n"), p.raw) {
				t.Fatalf("part %q is not in %q", p.raw, s)
			}
		}
		p, err := parse(s)
		if err != nil {
			return
		}
		if len(p.turns) == 0 {
			t.Fatal("a script without a turn")
		}
		results := []bool{}
		for i, want := range p.turns {
			got, err := p.next(results)
			if err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			if len(got.steps) != len(want.steps) || got.calls != want.calls {
				t.Fatalf("turn %d was not found by its results", i)
			}
			for range got.calls {
				results = append(results, false)
			}
		}
	})
}
