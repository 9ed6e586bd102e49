package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
)

func toolRules() []rule {
	return []rule{
		{"CellCallsTools", cellTools},
		{"CellIsFrozenWhileItWaits", cellFrozenInCall},
		{"CellThatWaitsCanBeEnded", cellEndedInCall},
	}
}

// askTools runs a cell with the tools "echo" and "get-rows".
func askTools(ctx context.Context, b *Box, code string, limit time.Duration, call func(context.Context, []sandbox.ToolCall) []sandbox.ToolAnswer) (sandbox.CellResult, Output, error) {
	return b.Cell(ctx, sandbox.Cell{Code: code, Timeout: limit, Tools: []string{"echo", "get-rows"}, Call: call})
}

func cellTools(t *testing.T, e *Env) {
	b := start(t, e)
	var groups []string
	big := strings.Repeat("x", 3*attack.MiB)
	call := func(_ context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
		var answers []sandbox.ToolAnswer
		var seen []string
		for _, k := range calls {
			seen = append(seen, k.Name+string(k.Input))
			a := sandbox.ToolAnswer{ID: k.ID, Text: k.Name + string(k.Input)}
			switch string(k.Input) {
			case `{"n":"raise"}`:
				a.Text, a.Raise = "too late", "TimeoutError"
			case `{"n":"big"}`:
				a.Text = big
			}
			answers = append(answers, a)
		}
		groups = append(groups, strings.Join(seen, ""))
		return answers
	}
	const code = `
import asyncio
print(await asyncio.gather(echo(n=1), echo({'n': 2}), tools['get-rows']()))
async def main():
    try: await echo(n='raise')
    except TimeoutError as e: return str(e), len(await echo(n='big'))
print(asyncio.run(main()))
`
	_, out, err := askTools(t.Context(), b, code, attack.CommandTime, call)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, out, `['echo{"n":1}', 'echo{"n":2}', 'get-rows{}']`+"\n('too late', 3145728)\n")
	want := `[echo{"n":1}echo{"n":2}get-rows{} echo{"n":"raise"} echo{"n":"big"}]`
	if got := fmt.Sprint(groups); got != want {
		t.Errorf("the calls came as %s, want %s", got, want)
	}
	_, out = cell(t, b, "'echo' in globals()")
	wantOutput(t, out, "False\n")
}

// cellFrozenInCall: neither the time limit of the cell nor the patience with the guest runs while the host has the calls.
func cellFrozenInCall(t *testing.T, e *Env) {
	b := start(t, e)
	cell(t, b, "import asyncio, subprocess\nkept = subprocess.Popen(['sleep', '1000'])")
	const limit = 2 * time.Second
	call := func(ctx context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
		err := b.Freeze(ctx)
		short, stop := context.WithTimeout(ctx, limit+500*time.Millisecond)
		defer stop()
		if err == nil && b.Ping(short) == nil {
			err = errors.New("a frozen guest answered")
		}
		if err = errors.Join(err, b.Thaw(ctx)); err != nil {
			t.Error(err)
		}
		return []sandbox.ToolAnswer{{ID: calls[0].ID, Text: "thawed"}}
	}
	code := "child = subprocess.Popen(['sleep', '1000'])\nprint(await echo(), child.poll())\nchild.kill()"
	res, out, err := askTools(t.Context(), b, code, limit, call)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, out, "thawed None\n")
	if res.StateLost || res.Waited < limit || res.Wall < res.Waited {
		t.Errorf("got %+v", res)
	}
	if err := b.Alive(t.Context()); err != nil {
		t.Error(err)
	}
}

func cellEndedInCall(t *testing.T, e *Env) {
	cause := errors.New("the caller went away")
	for name, end := range map[string]func(*Box, context.CancelCauseFunc) error{
		"canceled":  func(_ *Box, cancel context.CancelCauseFunc) error { cancel(cause); return nil },
		"destroyed": func(b *Box, _ context.CancelCauseFunc) error { return b.Destroy(t.Context()) },
		"destroyed when frozen": func(b *Box, _ context.CancelCauseFunc) error {
			return errors.Join(b.Freeze(t.Context()), b.Destroy(t.Context()))
		},
		"written": func(b *Box, _ context.CancelCauseFunc) error {
			err := b.Checkpoint(t.Context(), snapshotFolder(t))
			switch {
			case !e.Capabilities.Snapshot && errors.Is(err, errors.ErrUnsupported):
				return b.Destroy(t.Context())
			case err == nil:
				return errors.New("a sandbox with a call under way was written")
			}
			return nil
		},
	} {
		b := start(t, e)
		cell(t, b, "x = 1")
		ctx, cancel := context.WithCancelCause(t.Context())
		entered := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			<-entered
			ended <- end(b, cancel)
		}()
		_, _, err := askTools(ctx, b, "await echo()", attack.CommandTime, func(ctx context.Context, _ []sandbox.ToolCall) []sandbox.ToolAnswer {
			close(entered)
			<-ctx.Done()
			return nil
		})
		cancel(nil)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "canceled" {
			if !errors.Is(err, cause) {
				t.Errorf("%s: the cell says %v", name, err)
			}
			_, out := cell(t, b, "x")
			wantOutput(t, out, "1\n")
		} else if !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: the cell says %v, want ErrGone", name, err)
		}
	}
}
