package messages

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// shape writes messages as "role: block block" lines.
func shape(messages *claude.Node) string {
	var out []string
	for _, m := range messages.Items {
		line := m.Get("role").Str() + ":"
		for _, b := range claude.Blocks(m) {
			switch b.Type() {
			case "tool_use":
				line += " use=" + b.Get("id").Str()
			case "tool_result":
				line += " result=" + b.Get("tool_use_id").Str()
			case "text":
				line += " " + b.Get("text").Str()
			default:
				line += " <" + b.Type() + ">"
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// The blocks of the histories below, by short names.
func talk(t *testing.T, lines ...string) []*claude.Node {
	t.Helper()
	var out []*claude.Node
	for _, l := range lines {
		role, rest, _ := strings.Cut(l, ":")
		content := claude.NewArray()
		for w := range strings.FieldsSeq(rest) {
			name, id, _ := strings.Cut(w, "=")
			var b string
			switch name {
			case "call":
				b = `{"type":"server_tool_use","id":"srvtoolu_` + id + `","name":"bash_code_execution","input":{"command":"x"}}`
			case "done":
				b = `{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_` + id + `","content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[]}}`
			case "use":
				b = `{"type":"tool_use","id":"toolu_` + id + `","name":"n","input":{},"caller":{"type":"direct"}}`
			case "prog":
				b = `{"type":"tool_use","id":"toolu_` + id + `","name":"n","input":{},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_a"}}`
			case "result":
				b = `{"type":"tool_result","tool_use_id":"toolu_` + id + `","content":"r"}`
			case "think":
				b = `{"type":"thinking","thinking":"","signature":"\u0041\/"}`
			default:
				b = `{"type":"text","text":"` + w + `"}`
			}
			content.Items = append(content.Items, parse(t, b))
		}
		out = append(out, claude.NewObject("role", role, "content", content))
	}
	return out
}

func TestHistoryIsSplitAtResults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   []string
		want string
	}{
		{"nothing of ours", []string{"user: a", "assistant: b use=c", "user: result=c"}, "user: a\nassistant: b use=toolu_c\nuser: result=toolu_c"},
		{"one call", []string{"user: a", "assistant: b call=c done=c d", "user: e"}, "user: a\nassistant: b use=toolu_c\nuser: result=toolu_c\nassistant: d\nuser: e"},
		{"calls then results, reordered", []string{"user: a", "assistant: call=c call=d done=d done=c e"}, "user: a\nassistant: use=toolu_c use=toolu_d\nuser: result=toolu_c result=toolu_d\nassistant: e"},
		{"ends with a result", []string{"user: a", "assistant: call=c done=c", "user: e"}, "user: a\nassistant: use=toolu_c\nuser: result=toolu_c e"},
		{"result in a later message", []string{"user: a", "assistant: call=c", "assistant: done=c d"}, "user: a\nassistant: use=toolu_c\nuser: result=toolu_c\nassistant: d"},
		{"mixed group answered later", []string{"user: a", "assistant: call=c use=u", "user: result=u", "assistant: done=c d", "user: e"}, "user: a\nassistant: use=toolu_c use=toolu_u\nuser: result=toolu_c result=toolu_u\nassistant: d\nuser: e"},
		{"mixed group whose answer was only the result", []string{"user: a", "assistant: call=c use=u", "user: result=u", "assistant: done=c", "user: e"}, "user: a\nassistant: use=toolu_c use=toolu_u\nuser: result=toolu_c result=toolu_u e"},
		{"client call moved before ours", []string{"user: a", "assistant: call=c use=u done=c d", "user: result=u"}, "user: a\nassistant: use=toolu_c\nuser: result=toolu_c\nassistant: use=toolu_u d\nuser: result=toolu_u"},
		{"blocks dropped by the client", []string{"user: a", "assistant: d", "user: e"}, "user: a\nassistant: d\nuser: e"},
		{"programmatic calls are not shown", []string{"user: a", "assistant: call=a prog=p", "user: result=p", "assistant: done=a d"}, "user: a\nassistant: use=toolu_a\nuser: result=toolu_a\nassistant: d"},
		{"dangling", []string{"user: a", "assistant: call=c", "user: e"}, "user: a\nassistant: use=toolu_c\nuser: result=toolu_c e"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := shape(upstreamMessages(talk(t, tt.in...), nil, loaded{}))
			if d := cmp.Diff(got, tt.want); d != "" {
				t.Errorf("(-got +want):\n%s", d)
			}
		})
	}
}

func TestThinkingBlocksStayBitExactAroundSplits(t *testing.T) {
	t.Parallel()
	in := talk(t, "user: a", "assistant: think call=c done=c think d")
	got := upstreamMessages(in, nil, loaded{})
	if n := strings.Count(got.Text(), `{"type":"thinking","thinking":"","signature":"\u0041\/"}`); n != 2 {
		t.Errorf("%d exact thinking blocks in %s", n, got.Text())
	}
}

func TestMadeBlocksContinueATrailingAssistant(t *testing.T) {
	t.Parallel()
	in := talk(t, "user: a", "assistant: b call=c")
	made := talk(t, "assistant: done=c d call=e done=e")[0].Get("content").Items
	want := "user: a\nassistant: b use=toolu_c\nuser: result=toolu_c\nassistant: d use=toolu_e\nuser: result=toolu_e"
	if d := cmp.Diff(shape(upstreamMessages(in, made, loaded{})), want); d != "" {
		t.Errorf("(-got +want):\n%s", d)
	}
	if got := len(in[1].Get("content").Items); got != 2 {
		t.Errorf("the request itself was changed: %d blocks", got)
	}
}

// FuzzHistory checks that every call that goes to the upstream is answered in
// the message right behind it, whatever the history was.
func FuzzHistory(f *testing.F) {
	f.Add([]byte("ucdcrtuxd"))
	f.Add([]byte("u a cxd u r"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var lines []string
		line, n := "user: s", 0
		id := func() string { return string(rune('a' + n%26)) }
		for _, c := range in {
			switch c % 7 {
			case 0:
				n++
				line += " call=" + id()
			case 1:
				line += " done=" + id()
			case 2:
				line += " t"
			case 3:
				lines = append(lines, line)
				line = "assistant: t"
			case 4:
				lines = append(lines, line)
				line = "user: t"
			case 5:
				n--
				n = max(n, 0)
			case 6:
				line += " think"
			}
		}
		for i, l := range lines {
			if strings.HasPrefix(l, "user") {
				lines[i] = strings.NewReplacer("call=", "x", "done=", "y").Replace(l)
			}
		}
		out := upstreamMessages(talk(t, append(lines, "user: end")...), nil, loaded{})
		if !json.Valid(out.Bytes()) {
			t.Fatalf("not JSON: %s", out.Text())
		}
		checkAnswered(t, out)
	})
}

func checkAnswered(t *testing.T, out *claude.Node) {
	t.Helper()
	for i, m := range out.Items {
		want := map[string]bool{}
		for _, b := range claude.Blocks(m) {
			if b.Type() == "server_tool_use" || strings.HasSuffix(b.Type(), "_tool_result") {
				t.Fatalf("the upstream would be shown %s", b.Text())
			}
			if b.Type() == "tool_use" {
				want[b.Get("id").Str()] = true
			}
		}
		if len(want) == 0 {
			continue
		}
		if i+1 == len(out.Items) {
			t.Fatalf("a call at the end: %s", shape(out))
		}
		for _, b := range claude.Blocks(out.Items[i+1]) {
			delete(want, b.Get("tool_use_id").Str())
		}
		if len(want) > 0 {
			t.Fatalf("calls without an answer right behind them:\n%s", shape(out))
		}
	}
}
