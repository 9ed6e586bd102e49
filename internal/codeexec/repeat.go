package codeexec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// A client whose connection is lost sends its continuation again. What makes it the same is its container, its call and what
// it answers, ids and content. The repeat waits for the one that it repeats, and gets the response of that, or goes on where
// that stopped; nothing runs twice:
//
//	answers   are fed to the code once (group.state), and what came of the code is kept (execution.result)
//	calls     behind the continued one run once (group.behind), to their end also when the client goes away meanwhile
//	response  is kept once it was made to its end (group.events)

// flight names a continuation that is being answered.
type flight struct {
	at      key
	answers [sha256.Size]byte
}

// sumAll tells sets of answers apart, in whatever order they come.
func sumAll(answers []Answer) [sha256.Size]byte {
	sorted := slices.SortedFunc(slices.Values(answers), func(a, b Answer) int { return strings.Compare(a.ID, b.ID) })
	var all bytes.Buffer
	for _, a := range sorted {
		id, sum := sha256.Sum256([]byte(a.ID)), a.sum()
		all.Write(id[:])
		all.Write(sum[:])
	}
	return sha256.Sum256(all.Bytes())
}

// Join begins a continuation, before it waits for the turn of its container. It waits until no other is at work on the same
// answers, and lets others with the same wait until leave is called. patient says that the code has been given these answers
// before and nobody has the end of it yet: whoever has the turn is likely to be at work on that, and may take as long as the
// code does. The error is that of ctx.
func (k *Parked) Join(ctx context.Context, container string, c Call, answers []Answer) (leave func(), patient bool, err error) {
	f := flight{key{container, c.ID}, sumAll(answers)}
	for {
		before := k.takeOff(f)
		if before == nil {
			return func() { k.land(f) }, k.had(f.at, answers), nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// takeOff gives the end of the same flight, nil if there was none and this is it.
func (k *Parked) takeOff(f flight) (before <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if before := k.flights[f]; before != nil {
		return before
	}
	if k.flights == nil {
		k.flights = map[flight]chan struct{}{}
	}
	k.flights[f] = make(chan struct{})
	return nil
}

func (k *Parked) land(f flight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.flights[f])
	delete(k.flights, f)
}

// had reports whether an execution that has not ended was given these answers, or is past waiting for them.
func (k *Parked) had(at key, answers []Answer) bool {
	k.mu.Lock()
	x := k.byKey[at]
	k.mu.Unlock()
	if x == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.group(answers)
	return x.result == nil && g != nil && (g.state == groupExpired || g.state == groupAnswered && g.changed(answers) == "")
}

// group is the one of these calls, nil if there is none; the mutex is held.
func (x *execution) group(answers []Answer) *group {
	asked := make(map[string]bool, len(answers))
	for _, a := range answers {
		asked[a.ID] = true
	}
	for _, g := range x.groups {
		if len(g.uses) == len(answers) && !slices.ContainsFunc(g.uses, func(u ToolUse) bool { return !asked[u.ID] }) {
			return g
		}
	}
	return nil
}

// changed is the id of an answer that differs from what was answered before, "" if none does.
func (g *group) changed(answers []Answer) (id string) {
	for _, a := range answers {
		if g.sums[a.ID] != a.sum() {
			return a.ID
		}
	}
	return ""
}

// tomb makes an execution of which nothing is left here known, so that what is done for its continuation is done once.
func (k *Parked) tomb(at key, owner any, c Call) *execution {
	c = Call{ID: strings.Clone(c.ID), Name: strings.Clone(c.Name)}
	x := &execution{key: key{strings.Clone(at.container), c.ID}, owner: owner, c: c, tomb: true}
	x.runner.Parked = k
	x.result = ErrorBlock(c, CodeUnavailable, messageNoSandbox)
	k.add(x)
	k.over(x)
	return x
}

// bury has a tomb wait for these answers no more.
func (k *Parked) bury(x *execution, answers []Answer) {
	x.mu.Lock()
	if x.group(answers) != nil {
		x.mu.Unlock()
		return
	}
	g, size := &group{state: groupAnswered, sums: map[string][sha256.Size]byte{}}, 0
	for _, a := range answers {
		id := strings.Clone(a.ID)
		g.uses = append(g.uses, ToolUse{ID: id})
		g.sums[id] = a.sum()
		size += 200 + len(id)
	}
	x.groups = append(x.groups, g)
	x.mu.Unlock()
	k.grown(x, size)
}

// behind is what came of a call that ran behind a continued one.
type behind struct {
	result *claude.Node
	x      *execution // the call of a cell whose code calls tools
}

// Run runs a call behind the continued one, or tells what came of it when a request with the same answers had it run before.
// ctx must not end with the client: nobody could tell then how far the call came.
func (k *Continuation) Run(ctx context.Context, c Call) (Step, error) {
	c.ID, c.Name = strings.Clone(c.ID), strings.Clone(c.Name) // what is kept must not hold the request in memory
	switch b := k.ran(c.ID); {
	case b.result != nil:
		return Step{Result: b.result}, nil
	case b.x != nil:
		return b.x.goOn(ctx, k.p, func() {})
	}
	step, err := k.r.run(ctx, k.p, c)
	b := behind{result: step.Result}
	switch {
	case err != nil: // the container or the server ends
		b.result = ErrorBlock(c, CodeUnavailable, messageNoSandbox)
	case step.Result == nil:
		b = behind{x: k.r.parked().at(key{k.p.ID(), c.ID})}
	}
	k.note(c.ID, b)
	return step, err
}

func (k *Parked) at(name key) *execution {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byKey[name]
}

func (k *Continuation) ran(id string) behind {
	k.x.mu.Lock()
	defer k.x.mu.Unlock()
	return k.g.behind[id]
}

func (k *Continuation) note(id string, b behind) {
	size := 200 + len(id)
	if b.result != nil {
		size += len(b.result.Bytes())
	}
	k.x.mu.Lock()
	if k.g.behind == nil {
		k.g.behind = map[string]behind{}
	}
	k.g.behind[id] = b
	k.x.mu.Unlock()
	k.r.parked().grown(k.x, size)
}
