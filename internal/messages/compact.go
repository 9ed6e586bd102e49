package messages

import (
	"context"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
)

// A continuation after which the code does nothing but call on samples nothing. The hosted service streams that in two events:
// message_start with all calls in its content, and message_stop. Ours are the events of any other message, because all clients
// understand them; Service.CompactResume asks for the hosted form.

// compact reports whether this response may have the compact form. It shows when the code has come to its next stop.
func (t *turn) compact() bool {
	return t.s.CompactResume && t.again != nil && t.out.stream != nil
}

// resumeCompact goes on with the code that waited, which is the first of the deferred calls.
func (t *turn) resumeCompact(ctx context.Context) (waits bool, err error) {
	c := t.req.deferred[0]
	step, err := t.unseen(ctx, c)
	switch {
	case err != nil:
		return false, err
	case t.out.begun():
	case len(step.Pending) > 0:
		return true, t.inStart(ctx, c, step)
	default:
		if err := t.start("", "", (&usage{}).start()); err != nil {
			return false, err
		}
	}
	return t.came(ctx, c, step)
}

// unseen goes on with the code while nothing is sent. If that takes longer than a stream may be silent the response begins as
// any other.
func (t *turn) unseen(ctx context.Context, c codeexec.Call) (codeexec.Step, error) {
	type outcome struct {
		step codeexec.Step
		err  error
	}
	start := claude.NewObject("type", "message_start", "message", t.opening("", "", (&usage{}).start()))
	came := make(chan outcome, 1)
	go func() {
		step, err := t.run(ctx, c)
		came <- outcome{step, err}
	}()
	timer := time.NewTimer(t.out.every)
	defer timer.Stop()
	select {
	case o := <-came:
		return o.step, o.err
	case <-timer.C:
	}
	err := t.out.send(start)
	o := <-came // nothing may be at work in the turn when it ends
	if o.err != nil {
		err = o.err
	}
	return o.step, err
}

// inStart sends a message that is complete from the start.
func (t *turn) inStart(ctx context.Context, c codeexec.Call, step codeexec.Step) error {
	t.place.Release(ctx) // as finish does
	m := t.opening("", "", overlay((&usage{}).start(), t.usage.final()))
	m.Set("content", claude.NewArray(t.uses(c, step)...))
	m.Set("stop_reason", claude.NewString("tool_use"))
	if err := t.out.send(claude.NewObject("type", "message_start", "message", m)); err != nil {
		return err
	}
	return t.out.send(claude.NewObject("type", "message_stop"))
}
