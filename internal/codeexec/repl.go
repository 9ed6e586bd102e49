package codeexec

import (
	"context"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

const (
	noteREPLLost = "note: the Python interpreter was restarted since the last cell; variables and imports of earlier cells are lost, files are kept"
	// detection is the word that clients look for when a cell ran too long.
	detection = "detection_timeout"
)

func (r *Runner) cell(ctx context.Context, p place, c Call) (Step, error) {
	code, bad := text(c.Input, "code")
	if bad != nil {
		return Step{}, bad
	}
	// One that still waits for the client holds the interpreter.
	if err := p.EndParked(ctx, errReplaced); err != nil {
		return Step{}, err
	}
	if len(r.Functions) == 0 {
		b, err := r.plainCell(ctx, p, c, code)
		return Step{Result: b}, err
	}
	x, err := r.begin(ctx, p, c, code)
	if err != nil {
		return Step{}, err
	}
	step, err := x.await(ctx, p, false)
	x.settle(step, err)
	return step, err
}

// plainCell runs a cell that calls nobody.
func (r *Runner) plainCell(ctx context.Context, p place, c Call, code string) (*claude.Node, error) {
	m, err := p.Machine(ctx)
	if err != nil {
		return nil, err
	}
	id, dir, err := r.outputDir(ctx, p, c)
	if err != nil {
		return nil, err
	}
	fresh := r.Version.FreshCells()
	var stdout, stderr capture
	limit := r.limits().Cell
	res, err := m.Cell(ctx, sandbox.Cell{
		Code: code, Fresh: fresh, Env: map[string]string{"OUTPUT_DIR": dir}, Stdout: &stdout, Stderr: &stderr,
		Timeout: limit, OutputBytes: outputBytes,
	})
	if err != nil {
		return nil, startError(err)
	}
	o := outcome{stdout: stdout.text(res.StdoutDropped), stderr: stderr.text(res.StderrDropped), code: res.Code}
	// The container knows of an interpreter that was lost with its sandbox; the
	// guest says on stderr itself when it had to end one.
	if !fresh && res.Started && p.REPLLost() {
		o.stderr = noteREPLLost + "\n" + o.stderr
	}
	if !fresh {
		if err := p.NoteREPL(ctx, res.Holds); err != nil {
			return nil, err
		}
	}
	return r.finish(ctx, p, c, id, o, cellEnd(res, o.stderr, seconds(limit)))
}

// cellEnd is like ending; a cell past its limit is a normal result with a word
// that clients know.
func cellEnd(res sandbox.CellResult, stderr, limit string) end {
	switch {
	case res.TimedOut && strings.Contains(stderr, detection):
		return end{code: codeTimeout}
	case res.TimedOut:
		return end{codeTimeout, detection + ": the cell ran longer than " + limit + " of wall-clock time and was interrupted"}
	case res.OOM:
		return end{codeKilled, noteOOM}
	}
	return end{}
}
