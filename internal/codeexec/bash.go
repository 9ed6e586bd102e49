package codeexec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// outputBytes is what the guest keeps of each stream: enough for MaxCharacters
// of any script.
const outputBytes = 1 << 20

// Return codes of commands that did not end by themselves.
const (
	codeTimeout = 124
	codeKilled  = 137
)

const noteOOM = "out of memory: the memory limit of the sandbox was reached and the process was killed"

func (r *Runner) bash(ctx context.Context, p place, c Call) (*claude.Node, error) {
	command, bad := text(c.Input, "command")
	if bad != nil {
		return nil, bad
	}
	m, err := p.Machine(ctx)
	if err != nil {
		return nil, err
	}
	id, dir, err := r.outputDir(ctx, p, c)
	if err != nil {
		return nil, err
	}
	var stdout, stderr capture
	limit := r.limits().Command
	res, err := m.Exec(ctx, sandbox.Command{
		Shell: command, Env: map[string]string{"OUTPUT_DIR": dir}, Stdout: &stdout, Stderr: &stderr,
		Timeout: limit, OutputBytes: outputBytes,
	})
	if err != nil {
		return nil, startError(err)
	}
	o := outcome{stdout: stdout.text(res.StdoutDropped), stderr: stderr.text(res.StderrDropped), code: res.Code}
	return r.finish(ctx, p, c, id, o, ending(res, limit))
}

// ending says how a command ended when it did not end by itself: its return
// code, 0 for its own, and the last line of stderr.
type end struct {
	code int
	line string
}

func ending(res sandbox.Result, limit time.Duration) end {
	switch {
	case res.TimedOut:
		return end{codeTimeout, "timed out after " + seconds(limit)}
	case res.OOM:
		return end{codeKilled, noteOOM}
	}
	return end{}
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%g s", d.Seconds())
}

// startError tells a script that could not be started from a sandbox that is
// gone.
func startError(err error) error {
	if errors.Is(err, guest.ErrTooLarge) {
		return &ToolError{Code: CodeInvalidInput, Message: "The code is too large to be run.", Err: err}
	}
	return err
}

// finish takes the output files and builds the block. It runs after a failed
// command too: what was finished before is worth having.
func (r *Runner) finish(ctx context.Context, p place, c Call, id string, o outcome, e end) (*claude.Node, error) {
	ids, notes, err := p.Export(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("export output files: %w", err)
	}
	o.files = ids
	o.stderr = withNotes(o.stderr, notes, e.line)
	if e.code != 0 {
		o.code = e.code
	}
	return outputBlock(c, o), nil
}
