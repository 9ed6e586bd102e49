package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func feed(t *testing.T, lines ...string) (answer, string) {
	t.Helper()
	var a answer
	var out bytes.Buffer
	view := &askView{notes: notes{w: &out}, out: &out}
	acc := accumulator{answer: &a, watch: view}
	for _, l := range lines {
		if _, err := acc.add([]byte(l)); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
	return a, out.String()
}

func TestStreamIsAccumulatedLosslessly(t *testing.T) {
	a, shown := feed(t,
		`{"type":"message_start","message":{"container":null}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me "}}`,
		`{"type":"ping"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look."}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{},"caller":{"type":"direct"}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"echo hi\\nls\"}"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"","stderr":"no\nsuch file","return_code":2,"content":[{"type":"bash_code_execution_output","file_id":"file_1"}]}}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","container":{"id":"container_1"}}}`,
	)
	got, err := json.Marshal(a.Content[1])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"caller":{"type":"direct"},"id":"srvtoolu_1","input":{"command":"echo hi\nls"},"name":"bash_code_execution","type":"server_tool_use"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if a.StopReason != "end_turn" || a.Container != "container_1" || strings.Join(a.outputFiles(), ",") != "file_1" {
		t.Errorf("got %s %s %v", a.StopReason, a.Container, a.outputFiles())
	}
	if shown != "Let me look.\n$ echo hi …\n  exit 2 such file\n" {
		t.Errorf("shown %q", shown)
	}
}

func TestStreamWithAGapIsAnError(t *testing.T) {
	acc := accumulator{answer: &answer{}, watch: &askView{}}
	if _, err := acc.add([]byte(`{"type":"content_block_start","index":1,"content_block":{"type":"text"}}`)); err == nil {
		t.Error("a gap in the block numbers passed")
	}
}

func TestTranscriptIsForTheUserAlone(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	a, err := transcriptFor("http://127.0.0.1:1", "default")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.load(); err == nil {
		t.Error("a conversation that never was is continued")
	}
	a.Container, a.Messages = "container_1", []message{{Role: "user", Content: json.RawMessage(`"x"`)}}
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	b, err := transcriptFor("http://127.0.0.1:1", "default")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.load(); err != nil || b.Container != "container_1" || string(b.Messages[0].Content) != `"x"` {
		t.Errorf("got %+v, %v", b, err)
	}
	if other, err := transcriptFor("http://127.0.0.1:1", "other"); err != nil || other.load() == nil {
		t.Errorf("another app continues this conversation (%v)", err)
	}
}
