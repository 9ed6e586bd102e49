package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func feed(t *testing.T, lines ...string) (*answer, string) {
	t.Helper()
	a := &answer{}
	var out bytes.Buffer
	view := &askView{notes: notes{w: &out}, out: &out}
	for _, l := range lines {
		if err := a.add([]byte(l), view); err != nil {
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
	got := a.Blocks()[1].Text()
	want := `{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"echo hi\nls"},"caller":{"type":"direct"}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if a.stopReason() != "end_turn" || a.container() != "container_1" || strings.Join(a.outputFiles(), ",") != "file_1" {
		t.Errorf("got %s %s %v", a.stopReason(), a.container(), a.outputFiles())
	}
	if shown != "Let me look.\n$ echo hi …\n  exit 2 such file\n" {
		t.Errorf("shown %q", shown)
	}
}

func TestStreamWithAGapIsAnError(t *testing.T) {
	a, _ := feed(t, `{"type":"message_start","message":{"content":[]}}`)
	if err := a.add([]byte(`{"type":"content_block_start","index":1,"content_block":{"type":"text"}}`), &askView{}); err == nil {
		t.Error("a gap in the block numbers passed")
	}
}

func TestTranscriptIsForTheUserAlone(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	a, err := transcriptFor("http://127.0.0.1:1", "default", "")
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
	b, err := transcriptFor("http://127.0.0.1:1", "default", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.load(); err != nil || b.Container != "container_1" || string(b.Messages[0].Content) != `"x"` {
		t.Errorf("got %+v, %v", b, err)
	}
	if user, err := transcriptFor("http://127.0.0.1:1", "default", "u"); err != nil || user.load() == nil {
		t.Errorf("a user goes on with the app's conversation: %v", err)
	}
	if other, err := transcriptFor("http://127.0.0.1:1", "other", ""); err != nil || other.load() == nil {
		t.Errorf("another app continues this conversation (%v)", err)
	}
}
