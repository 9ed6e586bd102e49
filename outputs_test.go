package airlock_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock"
)

func message(t *testing.T, container string, blocks ...string) *anthropic.Message {
	t.Helper()
	g := newGateway(t, says("end_turn", container, blocks...))
	c := g.client(t)
	m, err := c.Messages.New(t.Context(), ask())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOutputsAreCollectedInOrderAndOnce(t *testing.T) {
	t.Parallel()
	blocks := []string{
		text(`{"file_id":"file_said"}`),
		`{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"cat","file_id":"file_input"},"caller":{"type":"direct"}}`,
		made("srvtoolu_1", "file_b", "file_a", "", "file_b"),
		calls("toolu_1", "lookup", `{"file_id":"file_input"}`),
		`{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"encrypted_code_execution_result","encrypted_stdout":"x","stderr":"","return_code":0,"content":[{"file_id":"file_c","type":"code_execution_output"},{"file_id":null,"type":"code_execution_output"}]}}`,
	}
	want := airlock.Outputs{
		ContainerID: "container_2", ExpiresAt: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		FileIDs: []string{"file_b", "file_a", "file_c", "file_d"},
	}
	steps := []*anthropic.Message{
		message(t, "container_1", blocks...), nil,
		message(t, "container_2", made("srvtoolu_3", "file_a", "file_d")),
		message(t, "", text("done")),
	}
	if diff := cmp.Diff(want, airlock.CollectOutputs(steps...)); diff != "" {
		t.Errorf("plain (-want +got):\n%s", diff)
	}
	g := newGateway(t, says("end_turn", "container_2", append(blocks, made("srvtoolu_3", "file_a", "file_d"))...))
	streamed, err := airlock.Run(t.Context(), g.client(t), ask(), nil, airlock.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, airlock.CollectOutputs(streamed...)); diff != "" {
		t.Errorf("streamed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(airlock.Outputs{}, airlock.CollectOutputs(message(t, "", text("hi")))); diff != "" {
		t.Errorf("without a sandbox (-want +got):\n%s", diff)
	}
}

func TestContainerGoesOnToTheNextRequest(t *testing.T) {
	t.Parallel()
	container := func(p anthropic.MessageNewParams) string {
		var body struct{ Container json.RawMessage }
		if err := json.Unmarshal([]byte(compact(t, p)), &body); err != nil {
			t.Fatal(err)
		}
		return string(body.Container)
	}
	p := ask()
	airlock.ReuseContainer(&p, "")
	airlock.ForwardContainer(&p, message(t, "", text("hi")), nil)
	if got := container(p); got != "" {
		t.Errorf("no container became %s", got)
	}
	airlock.ReuseContainer(&p, "container_1")
	if got := container(p); got != `"container_1"` {
		t.Errorf("reuse sends %s, want a string", got)
	}
	airlock.ForwardContainer(&p, message(t, "container_2"), message(t, "container_3"), message(t, ""))
	if got := container(p); got != `"container_3"` {
		t.Errorf("forward sends %s, want the newest", got)
	}
	shared := &anthropic.ContainerParams{Skills: []anthropic.SkillParams{{SkillID: "xlsx", Type: "anthropic"}}}
	p.Container = anthropic.MessageCreateParamsContainerUnion{OfContainers: shared}
	airlock.ReuseContainer(&p, "container_4")
	if got := container(p); got != `{"id":"container_4","skills":[{"skill_id":"xlsx","type":"anthropic"}]}` {
		t.Errorf("with skills it sends %s", got)
	}
	if shared.ID.Valid() {
		t.Error("what the pointer of the caller leads to was changed")
	}
}

func TestBlocksAndToolsOnTheWire(t *testing.T) {
	t.Parallel()
	tool := anthropic.ToolParam{Name: "lookup", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}, AllowedCallers: []string{"direct"}}
	for want, v := range map[string]any{
		`{"file_id":"file_1","type":"container_upload"}`:                                                                            airlock.Upload("file_1"),
		`{"name":"code_execution","type":"code_execution_20260120"}`:                                                                airlock.CodeExecutionTool(),
		`{"input_schema":{"properties":{},"type":"object"},"name":"lookup","allowed_callers":["direct","code_execution_20260120"]}`: airlock.CallableFromSandbox(tool),
	} {
		if got := compact(t, v); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if len(tool.AllowedCallers) != 1 {
		t.Error("the tool of the caller was changed")
	}
}
