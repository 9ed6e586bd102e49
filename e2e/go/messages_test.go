package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"
)

var codeExecution = []anthropic.ToolUnionParam{{OfCodeExecutionTool20260120: &anthropic.CodeExecutionTool20260120Param{}}}

// request is a turn of one user message with code execution.
func request(blocks ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "script", MaxTokens: 4096, Tools: codeExecution,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(blocks...)},
	}
}

// run sends a turn plainly.
func run(t *testing.T, c anthropic.Client, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	m, err := c.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// stream sends a turn as a stream and accumulates it as the SDK does.
func stream(t *testing.T, c anthropic.Client, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	s := c.Messages.NewStreaming(t.Context(), p)
	var m anthropic.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return &m
}

// kinds lists the block types of a message.
func kinds(m *anthropic.Message) []string {
	var out []string
	for _, b := range m.Content {
		kind := b.Type
		if b.Name != "" {
			kind += ":" + b.Name
		}
		out = append(out, kind)
	}
	return out
}

func bashResult(t *testing.T, m *anthropic.Message, n int) anthropic.BashCodeExecutionToolResultBlockContentUnion {
	t.Helper()
	for _, b := range m.Content {
		if r, ok := b.AsAny().(anthropic.BashCodeExecutionToolResultBlock); ok {
			if n == 0 {
				return r.Content
			}
			n--
		}
	}
	t.Fatalf("no such bash result in %v", kinds(m))
	return anthropic.BashCodeExecutionToolResultBlockContentUnion{}
}

const allSubTools = `Let me work.

` + "```bash\nprintf 'one\\ntwo\\n' > notes.txt && wc -l < notes.txt\n```" + `

` + "```view notes.txt\n```" + `

` + "```replace notes.txt\ntwo\n=======\n二\n```" + `

` + "```create made/new.txt\nhello\n```" + `

` + "```cell\nimport pathlib\nx = 40\npathlib.Path('notes.txt').read_text()\n```" + `

` + "```cell\nx + 2\n```" + `

All done.`

var allKinds = []string{
	"text",
	"server_tool_use:bash_code_execution", "bash_code_execution_tool_result",
	"server_tool_use:text_editor_code_execution", "text_editor_code_execution_tool_result",
	"server_tool_use:text_editor_code_execution", "text_editor_code_execution_tool_result",
	"server_tool_use:text_editor_code_execution", "text_editor_code_execution_tool_result",
	"server_tool_use:code_execution", "code_execution_tool_result",
	"server_tool_use:code_execution", "code_execution_tool_result",
	"text",
}

func TestAllSubToolsPlainAndStreamed(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	for name, send := range map[string]func(*testing.T, anthropic.Client, anthropic.MessageNewParams) *anthropic.Message{"plain": run, "streamed": stream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := send(t, c, request(anthropic.NewTextBlock(allSubTools)))
			if diff := cmp.Diff(allKinds, kinds(m)); diff != "" {
				t.Fatalf("blocks (-want +got):\n%s", diff)
			}
			if m.StopReason != "end_turn" || m.Container.ID == "" || m.Container.ExpiresAt.IsZero() {
				t.Errorf("stop %q, container %q until %s", m.StopReason, m.Container.ID, m.Container.ExpiresAt)
			}
			if got := strings.TrimSpace(bashResult(t, m, 0).Stdout); got != "2" {
				t.Errorf("bash said %q", got)
			}
			cell, ok := m.Content[12].AsAny().(anthropic.CodeExecutionToolResultBlock)
			if !ok || strings.TrimSpace(cell.Content.Stdout) != "42" {
				t.Errorf("the cell that uses a variable of the one before answered %s", m.Content[12].RawJSON())
			}
			if m.Usage.OutputTokens == 0 || m.Usage.InputTokens == 0 {
				t.Errorf("usage %s", m.Usage.RawJSON())
			}
		})
	}
}

func TestEveryToolVersionIsTaken(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	tools := map[string]anthropic.ToolUnionParam{
		"20250522": {OfCodeExecutionTool20250522: &anthropic.CodeExecutionTool20250522Param{}},
		"20250825": {OfCodeExecutionTool20250825: &anthropic.CodeExecutionTool20250825Param{}},
		"20260120": {OfCodeExecutionTool20260120: &anthropic.CodeExecutionTool20260120Param{}},
		"20260521": {OfCodeExecutionTool20260521: &anthropic.CodeExecutionTool20260521Param{}},
	}
	for version, tool := range tools {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := request(anthropic.NewTextBlock(fence("python", "print(6*7)")))
			p.Tools = []anthropic.ToolUnionParam{tool}
			if raw := run(t, c, p).RawJSON(); !strings.Contains(raw, `42\n`) {
				t.Errorf("no 42 in %s", raw)
			}
		})
	}
}

// The assistant's blocks go back exactly as they came, and the container keeps files and variables.
func TestConversationGoesOnInTheSameContainer(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	p := request(anthropic.NewTextBlock(script(fence("bash", "echo kept > file.txt"), fence("cell", "x = 7"))))
	first := stream(t, c, p)
	p.Messages = append(p.Messages, first.ToParam(),
		anthropic.NewUserMessage(anthropic.NewTextBlock(script(fence("bash", "cat file.txt"), fence("cell", "x * 6")))))
	p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(first.Container.ID)}
	second := run(t, c, p)
	if second.Container.ID != first.Container.ID {
		t.Errorf("second turn ran in %s, the first in %s", second.Container.ID, first.Container.ID)
	}
	if got := bashResult(t, second, 0).Stdout; got != "kept\n" {
		t.Errorf("the file says %q", got)
	}
	if !strings.Contains(second.RawJSON(), `42\n`) {
		t.Errorf("the variable is gone: %s", second.RawJSON())
	}
}

func TestOutputsAreByteIdentical(t *testing.T) {
	t.Parallel()
	c := newClient(newApp(t))
	want := bytes.Repeat([]byte("0123456789abcdef\x00\xff\r\n"), 1<<14)
	up, err := c.Files.Upload(t.Context(), anthropic.FileUploadParams{File: anthropic.File(bytes.NewReader(want), "data.bin", "application/octet-stream")})
	if err != nil {
		t.Fatal(err)
	}
	m := run(t, c, request(
		anthropic.NewTextBlock(fence("bash", `cp "$INPUT_DIR/data.bin" "$OUTPUT_DIR/same.bin" && printf '' > "$OUTPUT_DIR/空.txt"`)),
		anthropic.NewContainerUploadBlock(up.ID)))
	r := bashResult(t, m, 0)
	if len(r.Content) != 2 {
		t.Fatalf("bash result: %s", m.RawJSON())
	}
	names := map[string]string{}
	for _, o := range r.Content {
		meta, err := c.Files.GetMetadata(t.Context(), o.FileID, anthropic.FileGetMetadataParams{})
		if err != nil {
			t.Fatal(err)
		}
		if !meta.Downloadable {
			t.Errorf("%s is not downloadable", meta.Filename)
		}
		names[meta.Filename] = o.FileID
	}
	if got := download(t, c, names["same.bin"]); !bytes.Equal(got, want) {
		t.Errorf("downloaded %d bytes that differ from the %d uploaded", len(got), len(want))
	}
	if got := download(t, c, names["空.txt"]); len(got) != 0 {
		t.Errorf("the empty file has %d bytes", len(got))
	}
	var apiErr *anthropic.Error
	if _, err := c.Files.Download(t.Context(), up.ID, anthropic.FileDownloadParams{}); !errors.As(err, &apiErr) || apiErr.StatusCode != 400 {
		t.Errorf("download of an upload: %v, want 400", err)
	}
}

func download(t *testing.T, c anthropic.Client, id string) []byte {
	t.Helper()
	resp, err := c.Files.Download(t.Context(), id, anthropic.FileDownloadParams{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// 45 sampling rounds are one response: a client that allows itself 20 steps never sees them.
func TestLongEditIsOneResponse(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	m := stream(t, c, request(anthropic.NewTextBlock(longEdit(45))))
	if m.StopReason != "end_turn" {
		t.Fatalf("stopped with %q after %d blocks", m.StopReason, len(m.Content))
	}
	if got := bashResult(t, m, 44).Stdout; got != "45\n" {
		t.Errorf("the last of 45 edits says %q", got)
	}
}

func longEdit(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(fence("bash", "echo line >> file && wc -l < file") + "\n")
	}
	return b.String()
}

func TestForeignThingsAnswerLikeMissingOnes(t *testing.T) {
	t.Parallel()
	mine, other := newClient(server.key), newClient(newApp(t))
	m := run(t, mine, request(anthropic.NewTextBlock(fence("bash", `echo secret > "$OUTPUT_DIR/a.txt"`))))
	file, container := bashResult(t, m, 0).Content[0].FileID, m.Container.ID
	missing := func(id string) string { return id[:len(id)-4] + "zzzz" }
	for _, tt := range []struct {
		name string
		get  func(id string) error
		id   string
	}{
		{"metadata", func(id string) error {
			_, err := other.Files.GetMetadata(t.Context(), id, anthropic.FileGetMetadataParams{})
			return err
		}, file},
		{"content", func(id string) error {
			_, err := other.Files.Download(t.Context(), id, anthropic.FileDownloadParams{})
			return err
		}, file},
		{"delete", func(id string) error {
			_, err := other.Files.Delete(t.Context(), id, anthropic.FileDeleteParams{})
			return err
		}, file},
		{"container", func(id string) error {
			p := request(anthropic.NewTextBlock("hello"))
			p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(id)}
			_, err := other.Messages.New(t.Context(), p)
			return err
		}, container},
		{"upload block", func(id string) error {
			_, err := other.Messages.New(t.Context(), request(anthropic.NewTextBlock("hello"), anthropic.NewContainerUploadBlock(id)))
			return err
		}, file},
	} {
		foreign, unknown := tt.get(tt.id), tt.get(missing(tt.id))
		if a, b := errorBody(t, foreign), errorBody(t, unknown); a != b || !strings.HasPrefix(a, "404 ") {
			t.Errorf("%s: foreign %s\nunknown %s", tt.name, a, b)
		}
	}
}

// errorBody is status and body of an API error without the request's own id.
func errorBody(t *testing.T, err error) string {
	t.Helper()
	var e *anthropic.Error
	if !errors.As(err, &e) {
		t.Fatalf("not an API error: %v", err)
	}
	return fmt.Sprintf("%d %s", e.StatusCode, strings.ReplaceAll(e.RawJSON(), e.RequestID, "req"))
}

func TestClientThatLeavesDoesNotSpoilTheContainer(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	first := run(t, c, request(anthropic.NewTextBlock(fence("bash", "echo here"))))
	ctx, cancel := context.WithCancel(t.Context())
	p := request(anthropic.NewTextBlock(fence("bash", "touch started; sleep 300")))
	p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(first.Container.ID)}
	s := c.Messages.NewStreaming(ctx, p)
	for s.Next() {
		if s.Current().Type == "content_block_stop" {
			break // the command is on its way
		}
	}
	cancel()
	_ = s.Close()
	p.Messages = []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(fence("bash", "cat /proc/[0-9]*/comm | grep -c sleep || true")))}
	if got := bashResult(t, run(t, c, p), 0).Stdout; strings.TrimSpace(got) != "0" {
		t.Errorf("processes left over: %q", got)
	}
}
