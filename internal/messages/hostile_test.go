package messages

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// One file that stands in a request many times is written out as often.
func TestInlineFilesCountAsOftenAsTheyStand(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("end_turn", evText(0, "ok")))
	b.store = shelf{"file_01big": {ID: "file_01big", MIME: "image/png", Size: maxInline / 2}}
	image := `{"type":"image","source":{"type":"file","file_id":"file_01big"}}`
	w := b.post(t, body("", `[{"role":"user","content":[`+image+`,`+image+`,`+image+`]}]`))
	code, e := fault(t, w)
	if code != http.StatusBadRequest || !strings.Contains(e.Get("message").Str(), "messages.0.content.0.source.file_id") {
		t.Errorf("%d %s", code, e.Text())
	}
}

// Fails, after minutes, if the code that made each of many calls is looked for by itself.
func TestManyCallsOfCodeAreReadInLinearTime(t *testing.T) {
	t.Parallel()
	var calls strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&calls, `{"type":"tool_use","id":"%d","name":"x","input":{},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_a"}},`, i)
	}
	source := `{"type":"server_tool_use","id":"srvtoolu_a","name":"code_execution","input":{"code":"x"}}`
	w := newBench(t).post(t, body("", `[{"role":"user","content":"go"},{"role":"assistant","content":[`+calls.String()+source+`]},{"role":"user","content":"on"}]`))
	code, e := fault(t, w)
	if code != http.StatusBadRequest || !strings.Contains(e.Get("message").Str(), "without `tool_result` blocks") {
		t.Errorf("%d %.200s", code, e.Text())
	}
}

// One result of many calls would be shown to the model as often.
func TestCallsOfOneIDAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	use := `{"type":"server_tool_use","id":"srvtoolu_a","name":"bash_code_execution","input":{"command":"x"}}`
	w := b.post(t, body("", `[{"role":"user","content":"go"},{"role":"assistant","content":[`+use+`,`+use+`]},{"role":"user","content":"on"}]`))
	code, e := fault(t, w)
	if code != http.StatusBadRequest || !strings.Contains(e.Get("message").Str(), "messages.1.content.1.id") {
		t.Errorf("%d %s", code, e.Text())
	}
}

func TestUploadWithoutAFileIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, block := range []string{`{"type":"container_upload"}`, `{"type":"container_upload","file_id":null}`} {
		code, e := fault(t, b.post(t, body("", `[{"role":"user","content":[`+block+`]}]`)))
		if code != http.StatusBadRequest || !strings.Contains(e.Get("message").Str(), "messages.0.content.0.file_id") {
			t.Errorf("%s: %d %s", block, code, e.Text())
		}
	}
}

func TestNegativeCountsOfAnUpstreamTakeNothingAway(t *testing.T) {
	t.Parallel()
	var u usage
	u.add(parse(t, `{"input_tokens":3,"output_tokens":4}`))
	u.add(parse(t, `{"input_tokens":-3,"output_tokens":-1e18}`))
	u.add(parse(t, `{"input_tokens":9223372036854775807}`))
	u.add(parse(t, `{"input_tokens":9223372036854775807}`))
	if u.output != 4 || u.input != 3+2*mostTokens {
		t.Errorf("input %d, output %d", u.input, u.output)
	}
}

func TestEventTypeWithALineBreakIsTheUpstreamsFault(t *testing.T) {
	t.Parallel()
	b := newBench(t, answer{sse: "data: " + evStart + "\n\n" + `data: {"type":"a\nb"}` + "\n\n"})
	w := b.post(t, body(`,"stream":true`, ""))
	if got := w.Body.String(); !strings.Contains(got, "The upstream's answer could not be read.") {
		t.Error(got)
	}
}

func TestBlocksOfAnUpstreamAreBounded(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	all.WriteString("data: " + evStart + "\n\n")
	for i := range maxBlocks + 1 {
		fmt.Fprintf(&all, `data: {"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}`+"\n\n", i)
	}
	all.WriteString("data: " + evEnd("end_turn") + "\n\ndata: " + evStop + "\n\n")
	b := newBench(t, answer{sse: all.String()})
	if code, _ := fault(t, b.post(t, body("", ""))); code != badGateway {
		t.Errorf("answered %d", code)
	}
}

// Work on a hostile history grows with its length and not with the square of it.
func TestHistoryIsRewrittenInLinearSpace(t *testing.T) { //nolint:paralleltest // it reads the counters of the process
	const n = 2000
	done := `{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_0","content":{"type":"bash_code_execution_tool_result_error","error_code":"unavailable"}}`
	joined := []*claude.Node{parse(t, `{"role":"user","content":"go"}`)}
	for range n {
		joined = append(joined, parse(t, `{"role":"assistant","content":[`+done+`]}`), parse(t, `{"role":"user","content":"x"}`))
	}
	var blocks []string
	for i := range n {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":"toolu_c%d","name":"n","input":{}}`, i))
	}
	for i := range n {
		id := fmt.Sprint("srvtoolu_", i)
		blocks = append(blocks, `{"type":"server_tool_use","id":"`+id+`","name":"bash_code_execution","input":{}}`, strings.Replace(done, "srvtoolu_0", id, 1))
	}
	split := []*claude.Node{parse(t, `{"role":"assistant","content":[`+strings.Join(blocks, ",")+`]}`)}
	for want, history := range map[int][]*claude.Node{1: joined, 2 * n: split} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := upstreamMessages(history, nil, loaded{})
		runtime.ReadMemStats(&after)
		if len(got.Items) != want {
			t.Errorf("%d messages, want %d", len(got.Items), want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 10_000*n {
			t.Errorf("%d bytes for %d calls", used, n)
		}
	}
}
