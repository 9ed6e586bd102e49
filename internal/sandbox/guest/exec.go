package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Exec runs a command to its end and returns how it ended.
//
// When ctx ends, all processes of the command are killed and reaped before
// Exec returns with the cause of ctx. The Result then has Canceled, unless the
// command had just ended by itself; output may be missing either way. An
// *Error means that it never started; ErrGone that nobody knows how it ended.
func (c *Conn) Exec(ctx context.Context, cmd Command) (Result, error) {
	spec, err := cmd.spec()
	if err != nil {
		return Result{}, err
	}
	f := &Frame{Type: TypeExec, Exec: spec}
	fl := &follower{
		c: c, op: "exec", timeout: cmd.Timeout, limit: spec.Output,
		out: [2]io.Writer{cmd.Stdout, cmd.Stderr}, stdin: cmd.Stdin,
	}
	exit, err := fl.run(ctx, f, cmd.Shell)
	if exit == nil {
		return Result{}, err
	}
	return fl.result(exit), err
}

// spec checks what can be checked here and fills in defaults.
func (cmd *Command) spec() (*ExecSpec, error) {
	if (len(cmd.Argv) == 0) == (cmd.Shell == "") {
		return nil, &Error{Op: "exec", Detail: "exactly one of argv and shell is wanted", Err: ErrInvalidPath}
	}
	if err := checkCode("exec", cmd.Shell); err != nil {
		return nil, err
	}
	if strings.IndexByte(cmd.Shell, 0) >= 0 {
		return nil, &Error{Op: "exec", Detail: "the script has a NUL byte", Err: ErrInvalidPath}
	}
	s := &ExecSpec{
		Script: int64(len(cmd.Shell)), Cwd: []byte(cmd.Cwd), Env: envList(cmd.Env),
		Stdin: cmd.Stdin != nil, Timeout: cmd.Timeout, Output: outputLimit(cmd.OutputBytes), Keep: cmd.Keep,
	}
	for _, a := range cmd.Argv {
		s.Argv = append(s.Argv, []byte(a))
	}
	return s, checkEnv("exec", cmd.Env)
}

func outputLimit(n int64) int64 {
	if n == 0 {
		return DefaultOutputBytes
	}
	return max(n, -1)
}

func checkCode(op, code string) error {
	if len(code) > MaxCode {
		return &Error{Op: op, Detail: fmt.Sprintf("code of %d bytes; the limit is %d", len(code), MaxCode), Err: ErrTooLarge}
	}
	return nil
}

func checkEnv(op string, env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return &Error{Op: op, Detail: fmt.Sprintf("environment variable %q cannot be set", k), Err: ErrInvalidPath}
		}
	}
	return nil
}

// follower sees one command or cell from its first frame to its last.
type follower struct {
	c       *Conn
	op      string
	timeout time.Duration
	limit   int64
	out     [2]io.Writer
	stdin   io.Reader
	desk    *desk // nil if there are no tools

	k        *call
	guard    *guard
	oomAt    int64
	got      [2]int64
	canceled error // why we asked the guest to end it
}

// run returns the guest's account of the end, with an error if the call did
// not end by itself.
func (fl *follower) run(ctx context.Context, f *Frame, code string) (*Exit, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	k, err := fl.c.begin()
	if err != nil {
		return nil, err
	}
	fl.k = k
	fl.c.runs.Add(1)
	defer fl.c.runs.Add(-1)
	defer fl.c.end(k)
	fl.oomAt = fl.c.oomCount()
	if err := fl.start(f, code); err != nil {
		return nil, err
	}
	if fl.stdin != nil {
		pumping, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		go fl.pump(pumping)
	}
	exit, err := fl.follow(ctx)
	var refused *Error
	if fl.canceled != nil && errors.As(err, &refused) {
		err = fl.canceled // it was canceled before it started
	}
	if err == nil && exit.Canceled && fl.canceled == nil {
		return nil, fl.breach("canceled without request")
	}
	if err == nil {
		// Even if it ended by itself: what it printed last was dropped.
		err = fl.canceled
	}
	return exit, err
}

func (fl *follower) start(f *Frame, code string) error {
	f.ID = fl.k.id
	n := min(len(code), codeChunk)
	f.Payload = []byte(code[:n])
	err := fl.c.send(f)
	if errors.Is(err, ErrTooLarge) {
		return &Error{Op: fl.op, Detail: "arguments and environment together are over 1 MiB", Err: ErrTooLarge}
	}
	for err == nil && n < len(code) {
		m := min(len(code), n+codeChunk)
		err = fl.c.send(&Frame{Type: TypeCode, ID: fl.k.id, Payload: []byte(code[n:m])})
		n = m
	}
	return err
}

// pump carries stdin until its end, the command's end, or the guest's word that
// nobody reads any more.
func (fl *follower) pump(ctx context.Context) {
	buf := make([]byte, MaxData)
	for {
		n, err := fl.stdin.Read(buf)
		if n > 0 {
			over, serr := fl.c.sendData(ctx, fl.k, buf[:n])
			if over || serr != nil {
				return
			}
		}
		if err != nil {
			// The command sees the end of its input, as it would if the
			// writer of a pipe failed. sendData's error ended the connection.
			_, _ = fl.c.sendData(ctx, fl.k, nil)
			return
		}
	}
}

// follow handles frames until the last one.
func (fl *follower) follow(ctx context.Context) (*Exit, error) {
	guard := fl.newGuard()
	fl.guard = guard
	defer guard.stop()
	calls := ctx
	if fl.desk != nil {
		fl.desk.k = fl.k
		calls, fl.desk.stop = context.WithCancelCause(ctx)
		defer fl.desk.close()
	}
	stop := ctx.Done()
	for {
		if f := fl.k.take(); f != nil {
			exit, err := fl.handle(calls, f)
			guard.touch()
			if exit != nil || err != nil {
				return exit, err
			}
			continue
		}
		select {
		case <-fl.k.wake:
		case <-stop:
			stop = nil
			fl.giveUp(context.Cause(ctx))
		case <-guard.C():
			if fl.canceled == nil && fl.desk.waits() {
				guard.rest()
				continue
			}
			if err := guard.check(); err != nil {
				fl.c.fail(err)
				return nil, err
			}
		case <-fl.c.done:
			// The last frame may have come just before the end.
			if !fl.k.pending() {
				return nil, fl.c.Err()
			}
		}
	}
}

func (fl *follower) giveUp(why error) {
	if fl.canceled == nil {
		fl.canceled = why
		if fl.desk != nil {
			fl.desk.stop(why)
		}
		fl.c.cancel(fl.k)
		fl.guard.final()
	}
}

// handle is given the context of calls that the frame may complete.
func (fl *follower) handle(ctx context.Context, f *Frame) (*Exit, error) {
	switch f.Type {
	case TypeData:
		return nil, fl.data(f)
	case TypeTool:
		return nil, fl.tool(ctx, f)
	case TypeExit:
		if f.Exit == nil {
			return nil, fl.breach("exit without content")
		}
		return f.Exit, nil
	case TypeFault:
		return nil, faultOf(fl.op, nil, f)
	default:
		return nil, fl.breach("unexpected " + string(f.Type))
	}
}

func (fl *follower) breach(what string) error {
	err := fmt.Errorf("%s: %s: %w", fl.op, what, ErrProtocol)
	fl.c.fail(err)
	return err
}

// markerRoom is what the guest may send beyond the bound: the line that counts
// dropped bytes and the lines about a cell.
const markerRoom = 1024

func (fl *follower) data(f *Frame) error {
	i := f.Stream - 1
	if i != 0 && i != 1 {
		return fl.breach("output without stream")
	}
	fl.got[i] += int64(len(f.Payload))
	if fl.limit >= 0 && fl.got[i] > fl.limit+markerRoom {
		return fl.breach("more output than asked for")
	}
	// After a cancellation the consumer may be gone: drop, but keep the guest going.
	if w := fl.out[i]; w != nil && fl.canceled == nil && len(f.Payload) > 0 {
		if _, err := w.Write(f.Payload); err != nil {
			fl.giveUp(fmt.Errorf("%s: write output: %w", fl.op, err))
		}
	}
	return fl.c.consumed(fl.k, f)
}

func (fl *follower) tool(ctx context.Context, f *Frame) error {
	// After a cancellation nobody answers any more, whatever was on its way.
	if fl.canceled == nil || fl.desk == nil {
		if what := fl.desk.take(ctx, f); what != "" {
			return fl.breach(what)
		}
	}
	return fl.c.consumed(fl.k, f)
}

func (c *Conn) oomCount() int64 {
	if c.oom == nil {
		return 0
	}
	return c.oom()
}

// result translates and decides what only the host can know: whether the kernel
// killed for memory.
func (fl *follower) result(e *Exit) Result {
	r := Result{
		Code: e.Code, Signal: e.Signal, TimedOut: e.TimedOut, Canceled: e.Canceled,
		StdoutDropped: e.Dropped[0], StderrDropped: e.Dropped[1],
		CPU: e.CPU, Wall: e.Wall, MaxRSS: e.MaxRSS, LeftRunning: e.Left,
		Written: fl.got[0] + fl.got[1] + e.Dropped[0] + e.Dropped[1],
	}
	if r.Signal == 9 || r.Code == 137 || fl.c.blind {
		r.OOM = !r.TimedOut && !r.Canceled && fl.c.oomCount() > fl.oomAt
	}
	if r.OOM && fl.c.blind {
		r.Code, r.Signal = 137, 9
	}
	return r
}

// guard notices a guest that no longer does its part: one that is silent while
// a call runs, and one that does not end a call it must end.
type guard struct {
	c       *Conn
	tick    *time.Timer
	dueAt   time.Time // the call must have ended; zero: not bounded
	hard    bool      // dueAt no longer moves
	heard   int64
	misses  int
	touched time.Time
}

func (fl *follower) newGuard() *guard {
	g := &guard{c: fl.c, tick: time.NewTimer(pingEvery), heard: fl.c.heard.Load()}
	if fl.timeout > 0 {
		g.dueAt = time.Now().Add(fl.timeout + killGrace + answerGrace)
	}
	g.arm()
	return g
}

func (g *guard) C() <-chan time.Time { return g.tick.C }
func (g *guard) stop()               { g.tick.Stop() }
func (g *guard) touch()              { g.touched = time.Now() }

// rest is for a guest of which nothing is expected: it may be frozen.
func (g *guard) rest() {
	g.heard, g.misses = g.c.heard.Load(), 0
	g.arm()
}

func (g *guard) arm() {
	wait := pingEvery
	if !g.dueAt.IsZero() {
		wait = min(wait, time.Until(g.dueAt))
	}
	g.tick.Reset(max(wait, time.Millisecond))
}

// final starts the last wait, after a cancellation.
func (g *guard) final() {
	g.dueAt, g.hard = time.Now().Add(killGrace+answerGrace), true
	g.arm()
}

func (g *guard) check() error {
	now := time.Now()
	if !g.dueAt.IsZero() && !now.Before(g.dueAt) {
		// A slow consumer holds the last frames back; that is not the guest's fault.
		if g.hard || now.Sub(g.touched) > answerGrace {
			return errUnresponsive
		}
		g.dueAt = now.Add(answerGrace)
	}
	if heard := g.c.heard.Load(); heard != g.heard {
		g.heard, g.misses = heard, 0
	} else if g.misses++; g.misses >= pingMisses {
		return errUnresponsive
	}
	g.arm()
	return g.c.send(&Frame{Type: TypePing})
}
