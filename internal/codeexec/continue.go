package codeexec

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// DefaultToolWait is how long code waits for the client's answer.
const DefaultToolWait = 270 * time.Second

// Bounds of what is remembered of executions that have ended, for clients that repeat a request whose answer they did not get.
const (
	keepEnded     = 15 * time.Minute
	maxEndedBytes = 64 << 20
	maxStored     = 1 << 20 // of one response
)

// Parked knows the executions of this process whose code calls tools: those that run or wait, and for a while those that have
// ended. All runners of one server share it. Its fields are set before the first use.
type Parked struct {
	Wait        time.Duration    // for an answer, from the end of the response; 0 = DefaultToolWait
	RaiseErrors bool             // a result with is_error is raised in the code; else its text is returned
	Now         func() time.Time // nil = time.Now

	mu    sync.Mutex
	byKey map[key]*execution
	byUse map[string]*execution
	// flights are the continuations that are being answered, by what makes two the same; each is closed at its end.
	flights map[flight]chan struct{}
	ended   list.List // of *record, oldest first
	bytes   int
}

// key names an execution. Ids of calls come from the model and repeat from one conversation to another.
type key struct{ container, call string }

// record is an execution that has ended.
type record struct {
	x     *execution
	at    time.Time
	bytes int
	place *list.Element // in Parked.ended, nil when it is forgotten
}

func (r *Runner) parked() *Parked {
	if r.Parked == nil {
		r.Parked = &Parked{}
	}
	return r.Parked
}

func (k *Parked) wait() time.Duration {
	if k.Wait == 0 {
		return DefaultToolWait
	}
	return k.Wait
}

func (k *Parked) now() time.Time {
	if k.Now == nil {
		return time.Now()
	}
	return k.Now()
}

// add makes an execution known; one of the same name from an earlier try is forgotten.
func (k *Parked) add(x *execution) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byKey == nil {
		k.byKey, k.byUse = map[key]*execution{}, map[string]*execution{}
	}
	if before := k.byKey[x.key]; before != nil {
		k.forget(before)
	}
	k.byKey[x.key] = x
	k.trim()
}

// open makes the calls of a group known.
func (k *Parked) open(x *execution, g *group) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.groups = append(x.groups, g)
	for _, u := range g.uses {
		k.byUse[u.ID] = x
	}
}

// over begins the time for which an execution that has ended is remembered.
func (k *Parked) over(x *execution) {
	size := x.size()
	k.mu.Lock()
	defer k.mu.Unlock()
	x.runner.Functions = nil // its code calls no more, and what inputs are checked with is large
	if k.byKey[x.key] == x {
		r := &record{x: x, at: k.now(), bytes: size}
		r.place = k.ended.PushBack(r)
		x.record = r
		k.bytes += size
	}
	k.trim()
}

// grown notes that an execution takes more, or less.
func (k *Parked) grown(x *execution, by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := x.record; r != nil && r.place != nil {
		r.bytes += by
		k.bytes += by
	}
	k.trim()
}

// drop forgets an execution that never began.
func (k *Parked) drop(x *execution) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(x)
}

// size is about what an ended execution takes. Its id comes from the client and may be as long as a request.
func (x *execution) size() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	size := 500 + len(x.key.container) + len(x.key.call) + x.out.buf.Len() + x.err.buf.Len()
	for _, g := range x.groups {
		size += g.size
		for _, u := range g.uses {
			size += 200 + len(u.Name)
		}
	}
	return size
}

// trim forgets ended executions, the oldest first; the mutex is held.
func (k *Parked) trim() {
	for e := k.ended.Front(); e != nil; e = k.ended.Front() {
		r := e.Value.(*record)
		if k.bytes <= maxEndedBytes && k.now().Sub(r.at) < keepEnded {
			return
		}
		k.forget(r.x)
	}
}

// forget drops an execution; the mutex is held.
func (k *Parked) forget(x *execution) {
	if k.byKey[x.key] == x {
		delete(k.byKey, x.key)
	}
	if r := x.record; r != nil && r.place != nil {
		k.bytes -= r.bytes
		k.ended.Remove(r.place)
		r.place = nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range x.groups {
		for _, u := range g.uses {
			delete(k.byUse, u.ID)
		}
	}
}

// find gives the execution of a call, nil when this process has none, and whether one of the ids belongs to another execution
// of the same owner.
func (k *Parked) find(at key, owner any, answers []Answer) (x *execution, elsewhere bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x = k.byKey[at]
	for _, a := range answers {
		if of := k.byUse[a.ID]; of != nil && of != x && of.owner == owner {
			elsewhere = true
		}
	}
	return x, elsewhere
}

// Continuation is a request that goes on with a call whose code waits, or waited, for its answers.
type Continuation struct {
	r       *Runner
	p       place
	c       Call
	x       *execution
	g       *group
	answers []Answer
	fresh   bool // the code has not been given these answers
}

// Continue finds the execution that answers are for; nothing happens before Next. The errors are refusals for the client.
func (r *Runner) Continue(c Call, answers []Answer) (*Continuation, error) {
	return r.continueIn(r.place(), c, answers)
}

func (r *Runner) continueIn(p place, c Call, answers []Answer) (*Continuation, error) {
	x, elsewhere := r.parked().find(key{p.ID(), c.ID}, p.Owner(), answers)
	if elsewhere {
		return nil, unexpected(answers[0].ID, "they belong to another call")
	}
	if x == nil {
		x = r.parked().tomb(key{p.ID(), c.ID}, p.Owner(), c)
	}
	if x.tomb {
		r.parked().bury(x, answers)
	}
	k := &Continuation{r: r, p: p, c: c, x: x, answers: answers}
	x.remembered()
	x.mu.Lock()
	defer x.mu.Unlock()
	k.g = x.group(answers)
	switch {
	case k.g == nil:
		return nil, unexpected(answers[0].ID, "the call never waited for these together")
	case k.g.state == groupOpen:
		k.fresh = x.result == nil
	case k.g.state == groupAnswered:
		if id := k.g.changed(answers); id != "" {
			return nil, wire.Invalid("messages: `tool_use` %s was answered before with other content; an answer cannot be changed.", id)
		}
	case k.g.state == groupExpired: // whatever they say comes too late
	}
	return k, nil
}

func unexpected(id, why string) error {
	return wire.Invalid("messages: unexpected `tool_use_id` found in `tool_result` blocks: %s: %s.", id, why)
}

// Stored are the events of the response that was given to the same answers before, nil when there was none, or it did not
// come to its end.
func (k *Continuation) Stored() []*claude.Node {
	if k.fresh {
		return nil
	}
	k.x.mu.Lock()
	defer k.x.mu.Unlock()
	return k.g.events
}

// Keep stores the events of the whole response, for a client that did not get it and asks again. Only the newest response of an
// execution is kept: a client does not go back further.
func (k *Continuation) Keep(events []*claude.Node) {
	size := 0
	for _, e := range events {
		size += len(e.Bytes())
	}
	if size > maxStored {
		return
	}
	k.x.mu.Lock()
	by := size
	if last := k.x.stored; last != nil {
		by -= last.size
		last.events, last.size = nil, 0
	}
	k.x.stored, k.g.events, k.g.size = k.g, events, size
	k.x.mu.Unlock()
	k.r.parked().grown(k.x, by)
}

// Next goes on with the call: its code gets the answers, unless it had them or they come too late, and the step tells how far
// it has come then. A call of which nothing is left here has the error unavailable. The error is non-nil only when ctx ended.
func (k *Continuation) Next(ctx context.Context) (Step, error) {
	if k.x.tomb {
		k.r.log().InfoContext(ctx, "continued call is not known", "call_id", k.x.c.ID)
	}
	return k.x.goOn(ctx, k.p, func() {
		if k.fresh {
			k.x.answer(k.g, k.answers)
			k.fresh = false
		}
	})
}

// goOn takes an execution on in the turn of p, if it has not ended; answer is called when its sandbox runs again.
func (x *execution) goOn(ctx context.Context, p place, answer func()) (Step, error) {
	if b := x.settled(); b != nil {
		return Step{Result: b}, nil
	}
	step, err := x.runner.guarded(ctx, x.c, func(ctx context.Context) (Step, error) {
		if err := x.resume(ctx, p); err != nil {
			return Step{}, err
		}
		answer()
		return x.await(ctx, p, true)
	})
	x.settle(step, err)
	return step, err
}
