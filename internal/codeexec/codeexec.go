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
func DefaultLimits() Limits {
	return Limits{Command: 300 * time.Second, Call: 330 * time.Second, Cell: 90 * time.Second}
}

// Call is one server_tool_use block.
type Call struct {
	ID    string
	Name  string
	Input *claude.Node
}

// Runner runs the calls of one response in one container. It is used by one
// goroutine at a time.
type Runner struct {
	Lease   *container.Lease
	Version Version
	Limits  Limits       // zero fields = DefaultLimits
	Log     *slog.Logger // nil = discard
}

// Run runs the call and returns its result block. The error is non-nil only
// when ctx ended.
func (r *Runner) Run(ctx context.Context, c Call) (*claude.Node, error) {
	return r.run(ctx, r.place(), c)
}
