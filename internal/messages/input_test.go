package messages

import (
	"testing"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// What is no JSON object does not become the empty one: the call fails with invalid_tool_input, and the model goes on.
func TestInputThatIsNoObjectIsNotRunAsTheEmptyOne(t *testing.T) {
	t.Parallel()
	for sent, object := range map[string]bool{
		`{"command": "ls`: false, `{"command" "ls"}`: false, `"ls"`: false, `[1]`: false, `null`: false, "ls": false,
		`{}`: true, `{"command": "ls"}`: true, "": true,
	} {
		b := newBench(t, says("tool_use", evTool(0, "toolu_1", "bash_code_execution", sent)), says("end_turn", evText(0, "on")))
		w := b.post(t, body("", ""))
		blocks := claude.Blocks(parse(t, w.Body.String()))
		if w.Code != 200 || len(blocks) != 3 || !blocks[0].Get("input").Is(claude.Object) || len(b.boxes.ran) != 1 {
			t.Fatalf("%s: %d %s", sent, w.Code, w.Body)
		}
		if got := b.boxes.ran[0].Input.Is(claude.Object); got != object {
			t.Errorf("%s runs with %s", sent, b.boxes.ran[0].Input.Text())
		}
	}
}
