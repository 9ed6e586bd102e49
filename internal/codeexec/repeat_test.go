package codeexec

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

var behindCall = Call{ID: "srvtoolu_02behind", Name: ToolCell, Input: claude.NewObject("code", "y")}

// resumed goes on with the cell, as a request with these answers does.
func (c *caller) resumed(t *testing.T, a []Answer) *Continuation {
	t.Helper()
	k, err := c.continueIn(c.pad, cellCall, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// twice is a cell that asks once, and a second one, whose runs are counted.
func twice(t *testing.T, second func(context.Context, func(uint64, ...string) []string) string) (c *caller, runs *atomic.Int64) {
	t.Helper()
	runs = &atomic.Int64{}
	first := true
	return newCaller(t, func(ctx context.Context, call func(uint64, ...string) []string) string {
		if first {
			first = false
			return asking("one")(ctx, call)
		}
		runs.Add(1)
		return second(ctx, call)
	}), runs
}

// A message had calls behind the code that waited, and the connection was lost after some of them ran.
func TestCallBehindContinuedCodeRunsOnce(t *testing.T) {
	t.Parallel()
	c, runs := twice(t, func(context.Context, func(uint64, ...string) []string) string { return "second" })
	a := answers(c.start(t), "a ")
	for range 3 {
		step, err := c.resumed(t, a).Run(t.Context(), behindCall)
		if err != nil || ended(t, step) != "second" {
			t.Fatalf("%+v, %v", step, err)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("it ran %d times", runs.Load())
	}
	// Another call behind it is another.
	other := behindCall
	other.ID = "srvtoolu_03behind"
	if step, err := c.resumed(t, a).Run(t.Context(), other); err != nil || ended(t, step) != "second" || runs.Load() != 2 {
		t.Errorf("%+v, %v, %d runs", step, err, runs.Load())
	}
}

// The call behind is code that waits itself: the repeat is shown the same calls, or its end when that came meanwhile.
func TestCodeBehindContinuedCodeIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	c, runs := twice(t, asking("two"))
	a := answers(c.start(t), "a ")
	var id string
	for range 2 {
		step, err := c.resumed(t, a).Run(t.Context(), behindCall)
		if err != nil || len(step.Pending) != 1 || id != "" && step.Pending[0].ID != id {
			t.Fatalf("%+v, %v; was %s", step, err, id)
		}
		if id = step.Pending[0].ID; c.kept != c.pad.run {
			t.Error("it is not parked")
		}
	}
	k, err := c.continueIn(c.pad, behindCall, []Answer{{ID: id, Text: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if step, err := k.Next(t.Context()); err != nil || ended(t, step) != "b" {
		t.Fatalf("%+v, %v", step, err)
	}
	if step, err := c.resumed(t, a).Run(t.Context(), behindCall); err != nil || ended(t, step) != "b" || runs.Load() != 1 {
		t.Errorf("after its end: %+v, %v, %d runs", step, err, runs.Load())
	}
}

// As after a restart: nothing is left of the code that waited, but what is done for its answers is done once too.
func TestCallBehindCodeThatIsNotKnownRunsOnce(t *testing.T) {
	t.Parallel()
	c, runs := twice(t, func(context.Context, func(uint64, ...string) []string) string { return "second" })
	a := answers(c.start(t), "a ")
	c.Parked = &Parked{}
	for range 2 {
		k, err := c.continueIn(c.pad, cellCall, a)
		if err != nil || k.Stored() != nil {
			t.Fatalf("%v, %v", k.Stored(), err)
		}
		if step, err := k.Next(t.Context()); err != nil || ended(t, step) != string(CodeUnavailable) {
			t.Fatalf("%+v, %v", step, err)
		}
		if step, err := k.Run(t.Context(), behindCall); err != nil || ended(t, step) != "second" {
			t.Fatalf("%+v, %v", step, err)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("it ran %d times", runs.Load())
	}
	k := c.resumed(t, a)
	k.Keep([]*claude.Node{claude.NewString("all of it")})
	if again := c.resumed(t, a); len(again.Stored()) != 1 {
		t.Error("its response is not kept")
	}
	// Answers to other calls are those of another step, of which nothing is known either.
	if got := ended(t, c.goOn(t, []Answer{{ID: "toolu_other"}})); got != string(CodeUnavailable) {
		t.Errorf("another step gives %q", got)
	}
	if _, err := c.continueIn(c.pad, cellCall, []Answer{{ID: a[0].ID, Text: "changed"}}); err == nil || !strings.Contains(err.Error(), "other content") {
		t.Errorf("changed: %v", err)
	}
}

// What is remembered of unknown calls counts for the bound on all that is remembered.
func TestUnknownCallsAreRememberedWithinTheBound(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one"))
	var many []Answer
	for range 1000 {
		many = append(many, Answer{ID: "toolu_" + strings.Repeat("x", 300+len(many))})
	}
	c.goOn(t, many)
	if c.Parked.bytes < 1000*500 || len(c.Parked.byUse) != 0 {
		t.Errorf("%d bytes, %d calls", c.Parked.bytes, len(c.Parked.byUse))
	}
	// The ids are the client's as well, and as long as it likes.
	long := Call{ID: strings.Repeat("x", 1<<20), Name: ToolCell}
	before := c.Parked.bytes
	k, err := c.continueIn(c.pad, long, []Answer{{ID: "toolu_a"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Parked.bytes - before; got < 1<<20 {
		t.Errorf("a call with a long id counts as %d bytes", got)
	}
	before = c.Parked.bytes
	k.note(long.ID, behind{})
	if got := c.Parked.bytes - before; got < 1<<20 {
		t.Errorf("one behind it counts as %d bytes", got)
	}
}

// Fails, after minutes, if each of many calls is looked for by itself.
func TestManyAnswersAreTakenInLinearTime(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one"))
	many := make([]Answer, 200_000)
	for i := range many {
		many[i].ID = strconv.Itoa(i)
	}
	for range 2 {
		if got := ended(t, c.goOn(t, many)); got != string(CodeUnavailable) {
			t.Errorf("got %q", got)
		}
	}
	many[7].ID = "another"
	if x := c.Parked.at(key{c.ID(), cellCall.ID}); x.group(many) != nil {
		t.Error("other calls are taken for these")
	}
}

// join begins a request and reports on the channel when it may go on.
func join(t *testing.T, k *Parked, a []Answer) (joined chan bool, leave func()) {
	t.Helper()
	joined = make(chan bool, 1)
	var end func()
	go func() {
		l, patient, err := k.Join(t.Context(), "container_01pad", cellCall, a)
		if err != nil {
			t.Error(err)
		}
		end = l
		joined <- patient
	}()
	return joined, func() { end() }
}

func TestRepeatWaitsForTheRequestThatItRepeats(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one", "two", "three"))
	s := c.start(t)
	a := answers(s, "a ")
	joined, leave := join(t, c.Parked, a)
	if <-joined {
		t.Error("the first is a repeat")
	}
	second, leaveSecond := join(t, c.Parked, a)
	// Who says something else is not the same, and is judged when he has the turn; nor is another call or container.
	other, leaveOther := join(t, c.Parked, answers(s, "b "))
	if <-other {
		t.Error("other content is a repeat")
	}
	leaveOther()
	for _, at := range []key{{"container_01pad", "srvtoolu_other"}, {"container_01other", cellCall.ID}} {
		l, patient, err := c.Parked.Join(t.Context(), at.container, Call{ID: at.call}, a)
		if err != nil || patient {
			t.Errorf("%v: %v, %v", at, patient, err)
		}
		l()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Parked.Join(gone, "container_01pad", cellCall, a); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that goes away waits on: %v", err)
	}
	next := c.goOn(t, a)
	select {
	case <-second:
		t.Fatal("the repeat does not wait")
	default:
	}
	leave()
	if !<-second {
		t.Error("the repeat of what the code was given has no patience")
	}
	leaveSecond()
	// Whatever comes too late is patient as well, until the code has ended and somebody has its end.
	c.over(t)
	for _, want := range []bool{true, false} {
		late, leave := join(t, c.Parked, answers(next, "late "))
		if got := <-late; got != want {
			t.Errorf("the code has not ended: %v, and who comes late is patient: %v", want, got)
		}
		leave()
		if want {
			last := c.goOn(t, answers(next, "late "))
			ended(t, c.goOn(t, answers(last, "a ")))
		}
	}
	if len(c.Parked.flights) != 0 {
		t.Errorf("%d flights are left", len(c.Parked.flights))
	}
}
