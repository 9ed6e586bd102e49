package codeexec

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ToolUse is a call of a client's tool by the code of a cell.
type ToolUse struct {
	ID    string
	Name  string
	Input *claude.Node
}

// Step is how far a call has come: it has a result, or its code waits for the tools in Pending. A call that waits is parked
// in its container when the turn ends, and Continue goes on with it.
type Step struct {
	Result  *claude.Node
	Pending []ToolUse
}

// Answer is what the client says to one ToolUse.
type Answer struct {
	ID      string
	Text    string
	IsError bool
}

// sum tells answers with one id apart.
func (a Answer) sum() [sha256.Size]byte {
	mark := "text\x00"
	if a.IsError {
		mark = "error\x00"
	}
	return sha256.Sum256([]byte(mark + a.Text))
}

// MaxAnswer is the largest text of an answer, in bytes.
const MaxAnswer = guest.MaxToolAnswer

var (
	errReplaced = errors.New("another cell was started while this one waited")
	errForsaken = errors.New("nobody answered the code, twice")
)

// execution is a cell whose code may call tools. It belongs to whoever has the turn of its container; only the goroutine of
// its run calls call.
type execution struct {
	key      key
	owner    any
	runner   Runner // without its lease
	c        Call
	outputs  string // id of the output folder
	out, err capture
	run      running
	left     bool          // a client went away, and the run goes on
	tomb     bool          // nothing is known of it but how it is answered
	waits    chan struct{} // one token: a group was opened

	mu     sync.Mutex
	groups []*group
	result *claude.Node // the end, once somebody looked at it
	lost   bool         // the interpreter before it was lost
	forgot int          // times in a row that nobody answered in time
	stored *group       // has events
	record *record      // once it has ended
}

// groupState is what became of the calls of a group.
type groupState uint8

const (
	groupOpen groupState = iota
	groupAnswered
	groupExpired
)

// group is the calls that code waits for together.
type group struct {
	uses    []ToolUse
	calls   []uint64 // ids of the guest, in the order of uses
	state   groupState
	shown   bool // to the client, or meant to be
	sums    map[string][sha256.Size]byte
	answers []sandbox.ToolAnswer
	done    chan struct{} // closed when answers are there
	events  []*claude.Node
	size    int
	behind  map[string]behind // by the id of a call that ran after these answers
}

// begin starts a cell whose code may call the functions of the offer.
func (r *Runner) begin(ctx context.Context, p place, c Call, code string) (*execution, error) {
	id, dir, err := r.outputDir(ctx, p, c)
	if err != nil {
		return nil, err
	}
	known := r.parked()
	// Nothing of it may hold the request in memory, whose texts are pieces of one body.
	c = Call{ID: strings.Clone(c.ID), Name: strings.Clone(c.Name)}
	x := &execution{key: key{p.ID(), c.ID}, owner: p.Owner(), runner: *r, c: c, outputs: id, waits: make(chan struct{}, 1)}
	x.runner.Lease, x.runner.Functions = nil, nil
	names := make([]string, len(r.Functions))
	for i, f := range r.Functions {
		names[i] = strings.Clone(f.Name)
		x.runner.Functions = append(x.runner.Functions, Function{Name: names[i], check: f.check})
	}
	known.add(x)
	x.run, err = p.Begin(ctx, sandbox.Cell{
		Code: code, Fresh: r.Version.FreshCells(), Env: map[string]string{"OUTPUT_DIR": dir}, Stdout: &x.out, Stderr: &x.err,
		Timeout: r.limits().Cell, OutputBytes: outputBytes, Tools: names, Call: x.call,
	}, func() { known.over(x) })
	if err != nil {
		known.drop(x)
		return nil, err
	}
	return x, nil
}

// call implements sandbox.Cell.Call: it returns when the client has answered, or its time is over.
func (x *execution) call(ctx context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
	g := &group{done: make(chan struct{}), sums: map[string][sha256.Size]byte{}}
	var refused []sandbox.ToolAnswer
	for _, c := range calls {
		if ctx.Err() != nil {
			return nil
		}
		input, why := x.input(c)
		if why != "" {
			refused = append(refused, sandbox.ToolAnswer{ID: c.ID, Raise: guest.RaiseTool, Text: why})
			continue
		}
		g.uses = append(g.uses, ToolUse{ID: wire.NewID("toolu"), Name: c.Name, Input: input})
		g.calls = append(g.calls, c.ID)
	}
	if len(g.uses) == 0 {
		return refused
	}
	x.runner.parked().open(x, g)
	select {
	case x.waits <- struct{}{}:
	default:
	}
	select {
	case <-g.done:
		x.mu.Lock()
		defer x.mu.Unlock()
		said := append(refused, g.answers...)
		g.answers = nil // the code has them
		return said
	case <-ctx.Done():
		return nil
	}
}

// input reads and checks the input of a call. What does not fit the tool's schema never reaches the client.
func (x *execution) input(c sandbox.ToolCall) (input *claude.Node, why string) {
	for _, f := range x.runner.Functions {
		if f.Name != c.Name {
			continue
		}
		input, err := claude.Parse(c.Input)
		if err != nil || !input.Is(claude.Object) {
			return nil, c.Name + ": the input is no JSON object"
		}
		if why := f.check.check(input); why != "" {
			return nil, c.Name + ": the input does not fit the tool's input_schema: " + why
		}
		return input, ""
	}
	return nil, c.Name + ": there is no such tool"
}

// newest is the open group, nil when the code waits for nothing.
func (x *execution) newest() *group {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.groups); n > 0 && x.groups[n-1].state == groupOpen {
		return x.groups[n-1]
	}
	return nil
}

// await returns when the code waits for tools, or has ended. kept says that a client who goes away leaves the code running,
// because it has been given answers that nobody can give again.
func (x *execution) await(ctx context.Context, p place, kept bool) (Step, error) {
	for {
		select {
		case <-x.run.Done():
			if kept { // what the code made of answers that nobody can give again must not be lost with the client
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), x.runner.limits().Call)
				defer cancel()
			}
			return x.finish(ctx, p)
		default:
		}
		if g := x.newest(); g != nil {
			return x.pause(ctx, p, g)
		}
		select {
		case <-x.waits:
		case <-x.run.Done():
		case <-ctx.Done():
			return Step{}, x.leave(ctx, p, kept)
		}
	}
}

// pause parks the run, from the end of the turn on.
func (x *execution) pause(ctx context.Context, p place, g *group) (Step, error) {
	fresh := x.runner.Version.FreshCells()
	x.mu.Lock()
	g.shown = true
	x.lost = x.lost || !fresh && p.REPLLost()
	x.mu.Unlock()
	if !fresh {
		// A server that is killed meanwhile finds out from the row that there were variables.
		if err := p.NoteREPL(context.WithoutCancel(ctx), true); err != nil {
			x.run.End(err)
			<-x.run.Done()
			return Step{}, err
		}
	}
	p.Park(x.run, x.runner.parked().wait(), false, x.due)
	return Step{Pending: slices.Clone(g.uses)}, nil
}

// leave ends the wait of a request that is over, and with it the run, unless that is kept.
func (x *execution) leave(ctx context.Context, p place, kept bool) error {
	cause := context.Cause(ctx)
	if x.left = kept && errors.Is(cause, context.Canceled); x.left {
		p.Park(x.run, 0, true, x.due)
		return cause
	}
	x.run.End(cause)
	<-x.run.Done()
	return cause
}

// finish makes the result block of a run that has ended.
func (x *execution) finish(ctx context.Context, p place) (Step, error) {
	res, err := x.run.Result()
	if err != nil {
		return Step{}, startError(err)
	}
	r := &x.runner
	o := outcome{stdout: x.out.text(res.StdoutDropped), stderr: x.err.text(res.StderrDropped), code: res.Code}
	if !r.Version.FreshCells() {
		if res.Started && (x.lost || p.REPLLost()) {
			o.stderr = noteREPLLost + "\n" + o.stderr
		}
		if err := p.NoteREPL(ctx, res.Holds); err != nil {
			return Step{}, err
		}
	}
	b, err := r.finish(ctx, p, x.c, x.outputs, o, cellEnd(res, o.stderr, seconds(r.limits().Cell)))
	return Step{Result: b}, err
}

// settle keeps how a run ended, for whoever asks again; one that goes on has not ended.
func (x *execution) settle(step Step, err error) {
	if step.Pending != nil || x.left {
		return
	}
	b := step.Result
	if b == nil {
		te := asToolError(err)
		b = ErrorBlock(x.c, te.Code, te.Message)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.result = b
}

// settled is the result that is kept, nil while there is none.
func (x *execution) settled() *claude.Node {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result
}

// answer gives the code what the client said.
func (x *execution) answer(g *group, answers []Answer) {
	by := map[string]Answer{}
	for _, a := range answers {
		by[a.ID] = a
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, u := range g.uses {
		a := by[u.ID]
		g.sums[u.ID] = a.sum()
		said := sandbox.ToolAnswer{ID: g.calls[i], Text: a.Text}
		if a.IsError && x.runner.parked().RaiseErrors {
			said.Raise = guest.RaiseTool
		}
		g.answers = append(g.answers, said)
	}
	g.state = groupAnswered
	g.forgetInputs()
	close(g.done)
}

// expire raises TimeoutError in the code for every call of the group.
func (x *execution) expire(g *group) {
	text := timeoutText(g.uses, x.runner.parked().wait())
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range g.calls {
		g.answers = append(g.answers, sandbox.ToolAnswer{ID: id, Raise: guest.RaiseTimeout, Text: text})
	}
	g.state = groupExpired
	g.forgetInputs()
	close(g.done)
}

// forgetInputs: only a group that is open is shown to the client.
func (g *group) forgetInputs() {
	for i := range g.uses {
		g.uses[i].Input = nil
	}
}

func timeoutText(uses []ToolUse, wait time.Duration) string {
	var names []string
	seen := map[string]bool{}
	for _, u := range uses {
		if !seen[u.Name] {
			names = append(names, "'"+u.Name+"'")
		}
		seen[u.Name] = true
	}
	return fmt.Sprintf("Calling tools [%s] timed out after %g seconds.", strings.Join(names, ", "), wait.Seconds())
}

// due goes on with a run that nobody came back to: one that waits too long gets TimeoutError, and whatever comes of it is
// kept. One that is left alone a second time is ended, since nobody may ever ask.
func (x *execution) due(ctx context.Context, p place) {
	r := &x.runner
	step, err := r.guarded(ctx, x.c, func(ctx context.Context) (Step, error) {
		if err := x.resume(ctx, p); err != nil {
			return Step{}, err
		}
		if g := x.newest(); g != nil && g.shown {
			if x.forgotten() > 1 {
				x.run.End(errForsaken)
				<-x.run.Done()
				return Step{}, errForsaken
			}
			x.expire(g)
		}
		return x.await(ctx, p, false)
	})
	x.settle(step, err)
	r.log().InfoContext(ctx, "parked cell went on by itself", "call_id", x.c.ID, "ended", step.Pending == nil, "error", err)
}

// resume takes the run into this turn. A sandbox that is gone is no error: the run ends with it.
func (x *execution) resume(ctx context.Context, p place) error {
	x.left = false
	if err := p.Resume(ctx, x.run); err != nil && !errors.Is(err, sandbox.ErrGone) {
		return err
	}
	return nil
}

func (x *execution) forgotten() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgot++
	return x.forgot
}

func (x *execution) remembered() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgot = 0
}
