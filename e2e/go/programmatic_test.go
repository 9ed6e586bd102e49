package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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

// programmatic runs code that calls lookup, to the end.
func programmatic(t *testing.T, c anthropic.Client, code string, calls *atomic.Int64) *anthropic.BetaMessage {
	t.Helper()
	runner := c.Beta.Messages.NewToolRunner([]anthropic.BetaTool{lookup(t, calls)}, anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model: "script", MaxTokens: 4096,
			Tools:    []anthropic.BetaToolUnionParam{{OfCodeExecutionTool20260120: &anthropic.BetaCodeExecutionTool20260120Param{}}, lookupDefinition},
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(fence("cell", code)))},
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
		got := printed(t, programmatic(t, c, tt.code, &calls))
		if !strings.Contains(got, tt.want) || calls.Load() != tt.calls {
			t.Errorf("%s: printed %q after %d calls, want %q after %d", tt.name, got, calls.Load(), tt.want, tt.calls)
		}
	}
}

// lossy loses connections: of every second continuation the answer, when it is complete, or in the middle of the request.
type lossy struct {
	early bool
	seen  atomic.Int64
	lost  atomic.Int64
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if !strings.Contains(string(body), "tool_result") || l.seen.Add(1)%2 == 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	l.lost.Add(1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if l.early {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
	}
	resp, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		err = errors.Join(err, resp.Body.Close())
	}
	return nil, errors.Join(io.ErrUnexpectedEOF, err)
}

// The SDK repeats a request whose connection was lost: the code gets each answer once and loses none.
func TestConnectionLostWhileCodeCallsTools(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before the answer": true, "with the answer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &lossy{early: early}
			c := anthropic.NewClient(option.WithBaseURL(server.url), option.WithAPIKey(server.key),
				option.WithHTTPClient(&http.Client{Transport: l}), option.WithMaxRetries(4))
			var calls atomic.Int64
			code := "import time\nseen = []\nfor n in range(4):\n    seen.append(await lookup({'n': n}))\n    time.sleep(0.05)\nprint(seen)"
			got := printed(t, programmatic(t, c, code, &calls))
			if got != "['value 0', 'value 1', 'value 2', 'value 3']\n" || calls.Load() != 4 || l.lost.Load() == 0 {
				t.Errorf("printed %q after %d calls, %d connections lost", got, calls.Load(), l.lost.Load())
			}
		})
	}
}

// another is a server of a test's own.
type another struct {
	data, url, key string
	cmd            *exec.Cmd
	log            string
}

// serve starts a server on a data folder, with settings as NAME=value.
func serve(t *testing.T, data string, settings ...string) *another {
	t.Helper()
	a := &another{data: data, log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a.cmd = exec.Command(server.bin, "serve", "--listen", "127.0.0.1:0", "--upstream", "script", "--data", data)
	a.cmd.Env = append(append(append(os.Environ(), anyDisk...), "AIRLOCK_SANDBOX_POOL=0"), settings...)
	a.cmd.Stderr = log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.end(t, syscall.SIGTERM) })
	ready := bufio.NewScanner(out)
	ready.Scan()
	url, ok := strings.CutPrefix(ready.Text(), "airlock ready url=")
	if !ok {
		t.Fatalf("the server does not start: %s", tail(a.log))
	}
	a.url = url
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

func (a *another) client() anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(a.url), option.WithAPIKey(a.key))
}

// waiting sends a request whose code waits for lookup, and returns the request that answers it.
func (a *another) waiting(t *testing.T, prompt string) anthropic.BetaMessageNewParams {
	t.Helper()
	p := anthropic.BetaMessageNewParams{
		Model: "script", MaxTokens: 4096,
		Tools:    []anthropic.BetaToolUnionParam{{OfCodeExecutionTool20260120: &anthropic.BetaCodeExecutionTool20260120Param{}}, lookupDefinition},
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(prompt))},
	}
	c := a.client()
	m, err := c.Beta.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	p.Messages = append(p.Messages, m.ToParam())
	for _, b := range m.Content {
		if u, ok := b.AsAny().(anthropic.BetaToolUseBlock); ok {
			p.Messages = append(p.Messages, anthropic.NewBetaUserMessage(anthropic.NewBetaToolResultBlock(u.ID, "value 1", false)))
		}
	}
	p.Container = anthropic.BetaMessageNewParamsContainerUnion{OfString: anthropic.String(m.Container.ID)}
	return p
}

func TestServerKilledWhileCodeWaits(t *testing.T) {
	t.Parallel()
	a := serve(t, t.TempDir())
	p := a.waiting(t, script(fence("cell", "print(await lookup({'n': 1}))"), fence("bash", "echo goes on")))
	a.end(t, syscall.SIGKILL)
	c := serve(t, a.data).client()
	m, err := c.Beta.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := printed(t, m); got != "unavailable" || m.StopReason != "end_turn" || !strings.Contains(m.RawJSON(), `goes on\n`) {
		t.Errorf("the turn went on with %s", m.RawJSON())
	}
}

func TestResultAfterTheDeadline(t *testing.T) {
	t.Parallel()
	a := serve(t, t.TempDir(), "AIRLOCK_MESSAGES_TOOL_WAIT=10s")
	p := a.waiting(t, fence("cell", "try:\n    await lookup({'n': 1})\nexcept TimeoutError as e:\n    print(e)"))
	a.logs(t, "parked cell went on by itself")
	c := a.client()
	m, err := c.Beta.Messages.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := printed(t, m); got != "Calling tools ['lookup'] timed out after 10 seconds.\n" {
		t.Errorf("printed %q", got)
	}
}

// logs waits until the server has logged something.
func (a *another) logs(t *testing.T, what string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(a.log); err != nil || strings.Contains(string(b), what) {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("the server never logged %q", what)
		}
	}
}
