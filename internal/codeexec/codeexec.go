package codeexec

import (
	"context"
	"log/slog"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/container"
)

// Limits of one call.
type Limits struct {
	Command time.Duration // a bash command; reaching it is a normal result, code 124
	Call    time.Duration // the whole call; reaching it is execution_time_exceeded
	Cell    time.Duration // a Python cell, wall clock
}

// DefaultLimits are the documented ones.
func DefaultLimits() Limits { return LimitsFor(300 * time.Second) }

// LimitsFor derives the limits from how long a command may run. The call has
// time beside it for starting the sandbox and taking the output files; a cell
// has its own limit unless commands have less.
func LimitsFor(command time.Duration) Limits {
	return Limits{Command: command, Call: command + 30*time.Second, Cell: min(command, 90*time.Second)}
}

func (l Limits) withDefaults() Limits {
	def := DefaultLimits()
	if l.Command == 0 {
		l.Command = def.Command
	}
	if l.Call == 0 {
		l.Call = def.Call
	}
	if l.Cell == 0 {
		l.Cell = def.Cell
	}
	return l
}

// Call is one server_tool_use block.
type Call struct {
	ID    string
	Name  string
	Input *claude.Node // nil = what the model sent is no JSON object
}

// Runner runs the calls of one response in one container. It is used by one
// goroutine at a time.
type Runner struct {
	Lease     *container.Lease
	Version   Version
	Functions []Function   // that the code of cells may call
	Limits    Limits       // zero fields = DefaultLimits
	Parked    *Parked      // shared by all runners of a server; nil = one of its own
	Log       *slog.Logger // nil = discard
}

// Run runs the call until it has a result, or its code waits for tools of the
// client. The error is non-nil only when ctx ended.
func (r *Runner) Run(ctx context.Context, c Call) (Step, error) {
	return r.run(ctx, r.place(), c)
}

func (r *Runner) offer() Offer { return Offer{r.Version, r.Functions} }
