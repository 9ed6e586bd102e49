package messages

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// The client goes on after a group of code and of its own tool: with the id it was given the code runs, in that container.
func TestCase01FollowUpOfAMixedGroupFindsItsContainer(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	k := w.dialog("```parallel\n```\n" + fencedCell("open('f', 'w').write('made')\nprint('ran')") + "\n```tool now\n{}\n```\n```end\n```\n```bash\ncat f\n```")
	k.stream = true
	m := k.send(t)
	if m.Get("stop_reason").Str() != "tool_use" || len(outputs(m)) != 0 || k.container == "" {
		t.Fatalf("the pause: %s", m.Text())
	}
	first := k.container
	k.answer(t, m)
	m = k.send(t)
	if got := stdout(t, m); got != "ran\nmade" || k.container != first {
		t.Errorf("printed %q in %s, the pause named %s", got, k.container, first)
	}
}

// Web results of code carry their caller too, from the upstream to the client; what the client sends back may lack it anywhere.
func TestCase06CallerOfWebResultsIsKeptAndMayBeMissing(t *testing.T) {
	t.Parallel()
	const caller = `,"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_cell"}`
	search := `{"type":"server_tool_use","id":"srvtoolu_web","name":"web_search","input":{}` + caller + `}`
	found := `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_web","content":[]` + caller + `}`
	block := func(i int, b string) []string {
		return []string{fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, b), fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i)}
	}
	b := newBench(t, says("end_turn", block(0, search), block(1, found), evText(2, "ok")))
	m := answer200(t, b.post(t, body("", "")))
	for _, got := range m.Get("content").Items[:2] {
		if got.At("caller", "tool_id").Str() != "srvtoolu_cell" {
			t.Errorf("the client gets %s", got.Text())
		}
	}
	done := `{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_cell","content":{"type":"code_execution_result","stdout":"x","stderr":"","return_code":0,"content":[]}}`
	history := `[{"role":"user","content":"go"},{"role":"assistant","content":[` + cellBlock + `,` + search + `,` + found + `,` + callOne + `]},` +
		`{"role":"user","content":[` + toolResult("toolu_one", `,"content":"1"`) + `]},{"role":"assistant","content":[` + done + `,{"type":"text","text":"ok"}]},{"role":"user","content":"more"}]`
	up := upstreamOf(t, ptcBody("code_execution_20260120", "", history)).Get("messages").Text()
	if !strings.Contains(up, search) || !strings.Contains(up, found) || strings.Contains(up, "toolu_one") {
		t.Errorf("the model was asked %s", up)
	}
	bare := strings.NewReplacer(caller, "", `,"caller":{"type":"direct"}`, "").Replace(history)
	if strings.Contains(bare, "caller") {
		t.Fatal("a caller is left")
	}
	upstreamOf(t, ptcBody("code_execution_20260120", "", bare))
}

// Not parallel: it looks at the memory of the process. Fails if anything on the way keeps the names.
func TestCase25NamesOfModelsLeaveNothing(t *testing.T) {
	const requests, names = 300, 1_000_000
	many := make([]answer, requests)
	for i := range many {
		many[i] = says("end_turn", evText(0, "ok"))
	}
	b := newBench(t, many...)
	name := func() string { return rand.Text() + rand.Text() }
	for range requests {
		answer200(t, b.post(t, strings.Replace(body("", ""), `"m"`, `"`+name()+`"`, 1)))
	}
	before := inUse()
	for range names {
		if _, err := b.Upstreams.For(name()); err != nil {
			t.Fatal(err)
		}
	}
	if grown := inUse() - before; grown > names*8 { // a map of them would take 100 bytes for each
		t.Errorf("a million names took %d bytes", grown)
	}
	runtime.KeepAlive(b)
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A file attached for code is in the sandbox, and the model is shown where, not its content as a document.
func TestCase28UploadIsNoDocumentForTheModel(t *testing.T) {
	t.Parallel()
	b := newBench(t, says("end_turn", evText(0, "ok")))
	b.store = shelf{"file_1": {Filename: "data.csv"}}
	answer200(t, b.post(t, body("", `[{"role":"user","content":[{"type":"container_upload","file_id":"file_1"},{"type":"text","text":"go"}]}]`)))
	var types []string
	for _, p := range b.model.bodies()[0].Get("messages").Items[0].Get("content").Items {
		types = append(types, p.Type())
	}
	if got := strings.Join(types, " "); got != "text text" || len(b.boxes.added) != 1 {
		t.Errorf("the model got %s, the sandbox %v", got, b.boxes.added)
	}
}
