package codeexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// errCallLimit ends the context of a call that passed Limits.Call.
var errCallLimit = errors.New("call limit reached")

// runner starts code in a sandbox.
type runner interface {
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Cell(ctx context.Context, c sandbox.Cell) (sandbox.CellResult, error)
}

// files reads and writes inside a sandbox.
type files interface {
	Put(ctx context.Context, path string, r io.Reader, o guest.PutOptions) error
	Get(ctx context.Context, path string, o guest.GetOptions) (io.ReadCloser, sandbox.FileInfo, error)
	Stat(ctx context.Context, path string, o guest.StatOptions) (sandbox.FileInfo, error)
	List(ctx context.Context, dir string, depth, limit int) ([]sandbox.FileInfo, error)
}

// machine is what a call needs of a sandbox.
type machine interface {
	runner
	files
}

// place is what a call needs of a lease.
type place interface {
	Machine(ctx context.Context) (machine, error)
	OutputDir(ctx context.Context, id string) (string, error)
	Export(ctx context.Context, id string) (ids, notes []string, err error)
	NoteREPL(ctx context.Context, holds bool) error
	REPLLost() bool
	Unsaved(ctx context.Context) string
	// ID and Owner are those of the container.
	ID() string
	Owner() any
	// Begin starts a cell that may go on beyond the turn: Park keeps it, and due is
	// called in a turn of its own when wait is over; Resume takes it into this turn.
	// ended is called at its end, before Done is closed.
	Begin(ctx context.Context, c sandbox.Cell, ended func()) (running, error)
	Park(r running, wait time.Duration, busy bool, due func(context.Context, place))
	Resume(ctx context.Context, r running) error
	EndParked(ctx context.Context, cause error) error
}

// running is a cell that was begun.
type running interface {
	Done() <-chan struct{}
	Result() (sandbox.CellResult, error)
	End(cause error)
}

// leasePlace is a container.Lease as a place.
type leasePlace struct{ *container.Lease }

func (p leasePlace) Machine(ctx context.Context) (machine, error) {
	m, err := p.Metered(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p leasePlace) Export(ctx context.Context, id string) (ids, notes []string, err error) {
	made, notes, err := p.Lease.Export(ctx, id)
	for _, f := range made {
		ids = append(ids, string(f.ID))
	}
	if err == nil {
		if note := p.Unsaved(ctx); note != "" {
			notes = append(notes, note)
		}
	}
	return ids, notes, err
}

func (p leasePlace) ID() string {
	if c := p.Container(); c != nil {
		return string(c.ID)
	}
	return ""
}

func (p leasePlace) Owner() any {
	if c := p.Container(); c != nil {
		return c.Owner
	}
	return nil
}

func (p leasePlace) Begin(ctx context.Context, c sandbox.Cell, ended func()) (running, error) {
	m, err := p.Metered(ctx)
	if err != nil {
		return nil, err
	}
	return m.Begin(ctx, c, ended), nil
}

func (p leasePlace) Park(r running, wait time.Duration, busy bool, due func(context.Context, place)) {
	p.Lease.Park(r.(*container.Parkable), container.Parking{Wait: wait, Busy: busy, Due: func(ctx context.Context, l *container.Lease) {
		due(ctx, leasePlace{l})
	}})
}

func (p leasePlace) Resume(ctx context.Context, r running) error {
	return p.Lease.Resume(ctx, r.(*container.Parkable))
}

func (r *Runner) place() place { return leasePlace{r.Lease} }

func (r *Runner) log() *slog.Logger {
	if r.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return r.Log
}

func (r *Runner) limits() Limits { return r.Limits.withDefaults() }

// run is Run over any place.
func (r *Runner) run(ctx context.Context, p place, c Call) (Step, error) {
	return r.guarded(ctx, c, func(ctx context.Context) (Step, error) { return r.dispatch(ctx, p, c) })
}

// guarded works on a call under the limit of one, and makes an error block of
// an error that leaves the request alive.
func (r *Runner) guarded(ctx context.Context, c Call, work func(context.Context) (Step, error)) (Step, error) {
	callCtx, cancel := context.WithTimeoutCause(ctx, r.limits().Call, errCallLimit)
	defer cancel()
	step, err := work(callCtx)
	if err == nil {
		return step, nil
	}
	if ctx.Err() != nil {
		return Step{}, context.Cause(ctx)
	}
	te := asToolError(err)
	r.log().InfoContext(ctx, "tool call ended with an error", "tool", c.Name, "call_id", c.ID, "error_code", string(te.Code), "error", te)
	return Step{Result: ErrorBlock(c, te.Code, te.Message)}, nil
}

func (r *Runner) dispatch(ctx context.Context, p place, c Call) (Step, error) {
	if !c.Input.Is(claude.Object) {
		return Step{}, invalid("input: it is no JSON object.")
	}
	var b *claude.Node
	var err error
	switch {
	case !r.offer().Offers(c.Name):
		err = invalid("the tool is not offered by " + string(r.Version) + ".")
	case c.Name == ToolBash:
		b, err = r.bash(ctx, p, c)
	case c.Name == ToolCell:
		return r.cell(ctx, p, c)
	default:
		b, err = r.edit(ctx, p, c)
	}
	return Step{Result: b}, err
}

// asToolError says which tool error an error is. What is not known to be the
// call's own fault is unavailable, and its text goes to the log only.
func asToolError(err error) *ToolError {
	var te *ToolError
	var we *wire.Error
	switch {
	case errors.As(err, &te):
		return te
	case errors.Is(err, errCallLimit), errors.Is(err, sandbox.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return &ToolError{Code: CodeTimeExceeded, Message: messageCallExpiry, Err: err}
	case errors.As(err, &we) && we.Type == wire.TypeRateLimit:
		return &ToolError{Code: CodeTooMany, Message: "Too many calls run at once.", Err: err}
	}
	return &ToolError{Code: CodeUnavailable, Message: messageNoSandbox, Err: err}
}

// outputDir makes the output folder of a call. The id of a call that a client
// replays may hold anything, so an odd one is replaced for the folder.
func (r *Runner) outputDir(ctx context.Context, p place, c Call) (id, dir string, err error) {
	id = c.ID
	for _, ch := range id {
		if (ch < 'a' || ch > 'z') && (ch < 'A' || ch > 'Z') && (ch < '0' || ch > '9') && ch != '_' && ch != '-' {
			id = ""
			break
		}
	}
	if id == "" || len(id) > 100 {
		id = wire.NewID("call")
	}
	dir, err = p.OutputDir(ctx, id)
	if err != nil {
		return "", "", fmt.Errorf("make output folder: %w", err)
	}
	return id, dir, nil
}
