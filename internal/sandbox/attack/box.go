package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// Box is one sandbox with shorthand for attempts.
type Box struct {
	*sandbox.Sandbox
	env *Env
	// Spec is what it was made of; Restart takes it again.
	Spec sandbox.Spec

	probe    sync.Once // puts the hostile program inside
	probeErr error
}

// drop removes the workspace; without one it does nothing.
func (b *Box) drop(ctx context.Context) error {
	ws := b.Spec.Workspace
	if ws == nil || !b.env.Workspaces.Exists(ws.ID) {
		return nil
	}
	return errors.Join(ws.Detach(ctx), b.env.Workspaces.Remove(ws.ID))
}

// Output is how a command ended and what it said.
type Output struct {
	sandbox.Result
	Stdout, Stderr string
}

func (o Output) String() string {
	return fmt.Sprintf("code %d signal %d timed out %t oom %t, stdout %.300q, stderr %.300q",
		o.Code, o.Signal, o.TimedOut, o.OOM, o.Stdout, o.Stderr)
}

// CommandTime ends a command of the suite that hangs.
const CommandTime = 30 * time.Second

// Exec runs one command and keeps what it says.
func (b *Box) Exec(ctx context.Context, c sandbox.Command) (Output, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if c.Timeout == 0 {
		c.Timeout = CommandTime
	}
	res, err := b.Sandbox.Exec(ctx, c)
	return Output{Result: res, Stdout: stdout.String(), Stderr: stderr.String()}, err
}

// Sh runs a shell script.
func (b *Box) Sh(ctx context.Context, script string) (Output, error) {
	return b.Exec(ctx, sandbox.Command{Shell: script})
}

// Cell runs Python code in the resident interpreter.
func (b *Box) Cell(ctx context.Context, c sandbox.Cell) (sandbox.CellResult, Output, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	res, err := b.Sandbox.Cell(ctx, c)
	return res, Output{Result: res.Result, Stdout: stdout.String(), Stderr: stderr.String()}, err
}

// Answer is what the kernel told the probe.
type Answer struct {
	Name  string `json:"name"`
	Errno string `json:"errno"`
	Num   int    `json:"num"`
	Value int64  `json:"value"`
	Text  string `json:"text"`
}

// Refused says that the filter or a missing right stopped the attempt.
func (a Answer) Refused() bool {
	return slices.Contains([]string{"EPERM", "EACCES", "ENOSYS"}, a.Errno)
}

// Answers are all lines of one attempt, in order.
type Answers []Answer

// Get is the last answer of that name; a missing one has the errno "none".
func (as Answers) Get(name string) Answer {
	for _, a := range slices.Backward(as) {
		if a.Name == name {
			return a
		}
	}
	return Answer{Name: name, Errno: "none"}
}

// Probe runs the hostile program and returns what it was told.
func (b *Box) Probe(ctx context.Context, args ...string) (Answers, Output, error) {
	return b.ProbeFor(ctx, CommandTime, args...)
}

// ProbeFor is Probe with a time limit.
func (b *Box) ProbeFor(ctx context.Context, limit time.Duration, args ...string) (Answers, Output, error) {
	if err := b.PutProbe(ctx); err != nil {
		return nil, Output{}, err
	}
	out, err := b.Exec(ctx, sandbox.Command{Argv: append([]string{probePath}, args...), Timeout: limit})
	if err != nil {
		return nil, out, fmt.Errorf("probe %s: %w", strings.Join(args, " "), err)
	}
	return parseAnswers(out.Stdout), out, nil
}

func parseAnswers(text string) Answers {
	var answers Answers
	for line := range strings.Lines(text) {
		var a Answer
		if json.Unmarshal([]byte(line), &a) == nil && a.Name != "" {
			answers = append(answers, a)
		}
	}
	return answers
}

// AliveWithin is generous: it tells a guest that answers from one that hangs.
const AliveWithin = 15 * time.Second

// Alive proves that the guest answers and that commands still run.
func (b *Box) Alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	if err := b.Ping(ctx); err != nil {
		return fmt.Errorf("ping afterwards: %w", err)
	}
	out, err := b.Exec(ctx, sandbox.Command{Argv: []string{"/bin/echo", "alive"}})
	if err != nil {
		return fmt.Errorf("echo afterwards: %w", err)
	}
	if out.Stdout != "alive\n" || out.Code != 0 {
		return fmt.Errorf("echo afterwards: %v", out)
	}
	return nil
}

// Calm waits until no process but the guest is left, and fails with the count
// if that does not happen.
func (b *Box) Calm(ctx context.Context) error {
	var last int64
	err := Eventually(ctx, 10*time.Second, func() (bool, error) {
		list, err := b.Sh(ctx, `n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n`)
		if err != nil {
			return false, err
		}
		// The shell itself and process 1 are there.
		_, err = fmt.Sscan(list.Stdout, &last)
		return last <= 2, err
	})
	if err != nil {
		return fmt.Errorf("%d processes are left inside: %w", last, err)
	}
	return nil
}

// errNotYet says that a state was not reached in time.
var errNotYet = errors.New("not reached in time")

// Eventually asks until the answer is yes. What it waits for has no event to
// wait on: the kernel empties cgroups and frees pages on its own time.
func Eventually(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := done()
		if err != nil || yes {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return errNotYet
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
