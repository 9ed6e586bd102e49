package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
)

type lookupInput struct {
	N int `json:"n" jsonschema:"required"`
}

// lookupDefinition lets code call the tool, and nobody else.
var lookupDefinition = anthropic.BetaToolUnionParam{OfTool: &anthropic.BetaToolParam{
	Name: "lookup", Description: anthropic.String("Looks a number up."), AllowedCallers: []string{"code_execution_20260120"},
	InputSchema: anthropic.BetaToolInputSchemaParam{Properties: map[string]any{"n": map[string]any{"type": "integer"}}, Required: []string{"n"}},
}}

// lookup is the tool of a runner; of a number below 0 it knows nothing.
func lookup(t *testing.T, calls *atomic.Int64) anthropic.BetaTool {
	t.Helper()
	tool, err := toolrunner.NewBetaToolFromJSONSchema("lookup", "Looks a number up.",
		func(_ context.Context, in lookupInput) (anthropic.BetaToolResultBlockParamContentUnion, error) {
			calls.Add(1)
			if in.N < 0 {
				return anthropic.BetaToolResultBlockParamContentUnion{}, errors.New("below zero")
			}
			return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "value " + strconv.Itoa(in.N)}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// programmatic runs a script whose code calls lookup, to the end.
func programmatic(t *testing.T, c anthropic.Client, prompt string, lookup anthropic.BetaTool) *anthropic.BetaMessage {
	t.Helper()
	runner := c.Beta.Messages.NewToolRunner([]anthropic.BetaTool{lookup}, anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model: "script", MaxTokens: 4096,
			Tools:    []anthropic.BetaToolUnionParam{{OfCodeExecutionTool20260120: &anthropic.BetaCodeExecutionTool20260120Param{}}, lookupDefinition},
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(prompt))},
		},
	})
	last, err := runner.RunToCompletion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last.StopReason != "end_turn" {
		t.Errorf("stopped with %q", last.StopReason)
	}
	return last
}

// printed is the output of the cell in a message.
func printed(t *testing.T, m *anthropic.BetaMessage) string {
	t.Helper()
	for _, b := range m.Content {
		if r, ok := b.AsAny().(anthropic.BetaCodeExecutionToolResultBlock); ok {
			if r.Content.ErrorCode != "" {
				return string(r.Content.ErrorCode)
			}
			return r.Content.Stdout
		}
	}
	t.Fatalf("no result of code in %s", m.RawJSON())
	return ""
}

const fifty = "s = 0\nfor n in range(50):\n    s += int((await lookup({'n': n})).split()[1])\nprint(s)"

func TestToolRunnerAnswersCodeThatCallsItsTools(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	for _, tt := range []struct {
		name, code, want string
		calls            int64
	}{
		{"one", "print(await lookup({'n': 1}))", "value 1\n", 1},
		{"three together", "import asyncio\nprint(await asyncio.gather(*[lookup({'n': n}) for n in range(3)]))", "['value 0', 'value 1', 'value 2']\n", 3},
		{"fifty one after another", fifty, "1225\n", 50},
		{"an error", "print(await lookup({'n': -1}))\nprint(await lookup({'n': 2}))", "below zero\nvalue 2\n", 2},
	} {
		var calls atomic.Int64
		got := printed(t, programmatic(t, c, fence("cell", tt.code), lookup(t, &calls)))
		if !strings.Contains(got, tt.want) || calls.Load() != tt.calls {
			t.Errorf("%s: printed %q after %d calls, want %q after %d", tt.name, got, calls.Load(), tt.want, tt.calls)
		}
	}
}

// clients are those that go through every door: the runner of the Go SDK, and in ../ts that of the TypeScript SDK and the AI SDK,
// plain and streaming.
const clients = 4

// Every client, while its tool is late, the connection is lost between request and answer, and the server is killed. The door
// waits for all of them before it does something, so those in ../ts run beside this test and not in a turn after it.
func TestClientsWhoseToolsAreLateLostOrCutOff(t *testing.T) {
	t.Parallel()
	node := findNode(t)
	late := newDoor(t, serve(t, t.TempDir(), "AIRLOCK_MESSAGES_TOOL_WAIT=10s"), clients)
	killed := newDoor(t, serve(t, t.TempDir()), clients)
	// The hosted form of a stream with nothing but further calls goes through the clients here, and is stored and repeated.
	lossy := newDoor(t, serve(t, t.TempDir(), "AIRLOCK_MESSAGES_COMPACT_RESUME=true"), clients)
	lossy.lossy = true
	scripts := make(chan error, 1)
	go func() {
		scripts <- nodeTest(t.Context(), node, "faults.mjs", "LATE_URL="+late.url, "LATE_KEY="+late.server.key, "KILLED_URL="+killed.url,
			"KILLED_KEY="+killed.server.key, "LOST_URL="+lossy.url, "LOST_KEY="+lossy.server.key)
	}()
	for _, tt := range []struct {
		name   string
		door   *door
		before func(context.Context) error
		code   string
		want   string
		calls  int64
	}{
		{"late", late, late.late, "try:\n    await lookup({'n': 1})\nexcept TimeoutError as e:\n    print(e)", "Calling tools ['lookup'] timed out after 10 seconds.\n", 1},
		{"killed", killed, killed.kill, "print(await lookup({'n': 1}))", "unavailable", 1},
		{
			"lost", lossy, func(context.Context) error { return nil },
			"import time\nseen = []\nfor n in range(2):\n    seen.append(await lookup({'n': n}))\n    time.sleep(0.05)\nprint(seen)", "['value 0', 'value 1']\n", 2,
		},
	} {
		c := anthropic.NewClient(option.WithBaseURL(tt.door.url+"/go"), option.WithAPIKey(tt.door.at().key))
		if got, calls := cutOff(t, c, tt.code, tt.before); got != tt.want || calls != tt.calls {
			t.Errorf("%s: printed %q after %d calls, want %q after %d", tt.name, got, calls, tt.want, tt.calls)
		}
	}
	if err := <-scripts; err != nil {
		t.Error(err)
	}
	for _, name := range []string{"go", "ts", "ai-generateText", "ai-streamText"} {
		if lossy.lost[name] != 2 {
			t.Errorf("%s lost %d connections", name, lossy.lost[name])
		}
	}
}

// cutOff runs code that calls lookup, whose answers come after before, and then a command. It gives what the code printed.
func cutOff(t *testing.T, c anthropic.Client, code string, before func(context.Context) error) (got string, calls int64) {
	t.Helper()
	var n atomic.Int64
	tool := lookup(t, &n)
	m := programmatic(t, c, script(fence("cell", code), fence("bash", "echo goes on")), delayed{tool, before})
	if !strings.Contains(m.RawJSON(), `goes on\n`) {
		t.Errorf("the turn did not go on: %s", m.RawJSON())
	}
	return printed(t, m), n.Load()
}

// delayed is a tool that does something before it answers.
type delayed struct {
	anthropic.BetaTool
	before func(context.Context) error
}

func (d delayed) Execute(ctx context.Context, in json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	return d.BetaTool.Execute(ctx, in)
}

// another is a server of a test's own.
type another struct {
	data, url, key string
	settings       []string
	cmd            *exec.Cmd
	log            string
}

// serve starts a server on a data folder, with settings as NAME=value.
func serve(t *testing.T, data string, settings ...string) *another {
	t.Helper()
	a, err := launch(data, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.end(t, syscall.SIGTERM) })
	key := exec.CommandContext(t.Context(), server.bin, "key", "create", "--json")
	key.Env = append(os.Environ(), "AIRLOCK_DATA="+data, "AIRLOCK_URL=", "AIRLOCK_KEY=")
	b, err := key.Output()
	var k struct {
		Key string `json:"key"`
	}
	if err != nil || json.Unmarshal(b, &k) != nil || k.Key == "" {
		t.Fatalf("key create: %v %s", err, b)
	}
	a.key = k.Key
	return a
}

// launch starts a server and waits until it serves.
func launch(data string, settings ...string) (*another, error) {
	log, err := os.CreateTemp(data, "log-")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a := &another{data: data, log: log.Name(), settings: settings}
	a.cmd = exec.Command(server.bin, "serve", "--listen", "127.0.0.1:0", "--upstream", "script", "--data", data)
	a.cmd.Env = append(append(append(os.Environ(), anyDisk...), "AIRLOCK_SANDBOX_POOL=0"), settings...)
	a.cmd.Stderr = log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	ready := bufio.NewScanner(out)
	ready.Scan()
	url, ok := strings.CutPrefix(ready.Text(), "airlock ready url=")
	if !ok {
		_ = a.cmd.Process.Kill()
		return nil, fmt.Errorf("the server does not start: %w\n%s", a.cmd.Wait(), tail(a.log))
	}
	a.url = url
	return a, nil
}

// end sends a signal and waits for the end; a second end does nothing.
func (a *another) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	if a.cmd.ProcessState != nil {
		return
	}
	_ = a.cmd.Process.Signal(s)
	if err := a.cmd.Wait(); err != nil && s == syscall.SIGTERM {
		t.Errorf("the server ended badly: %v\n%s", err, tail(a.log))
	}
}
