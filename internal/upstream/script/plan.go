package script

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// What the model says when the script does not say it.
const (
	sayNoScript = "This is the scripted model. It only carries out fenced action blocks, and your message has none; nothing was changed."
	sayDone     = "Done."
	sayFailed   = "The script ended here because an action that must succeed failed."
)

// step is a piece of one assistant message.
type step struct {
	text  string
	sleep time.Duration
	call  *call
}

// turn is one assistant message.
type turn struct {
	steps  []step
	stop   string // "" = what follows from the calls
	usage  []*claude.Node
	faults []fault
	calls  int
}

// plan is a parsed script.
type plan struct {
	turns []turn
	musts map[int]bool // ordinals of calls that must succeed
}

// parse reads a script. A message without any fence is a plan of one turn that
// says so.
func parse(text string) (*plan, error) {
	parts := split(text)
	b := &builder{musts: map[int]bool{}}
	fenced := false
	for _, p := range parts {
		fenced = fenced || p.fenced
	}
	if !fenced {
		return &plan{turns: []turn{{steps: []step{{text: sayNoScript}}}}}, nil
	}
	for _, p := range parts {
		if !p.fenced {
			b.say(p.raw)
			continue
		}
		a, err := parseAction(p)
		if err != nil {
			return nil, err
		}
		if a == nil {
			b.say(p.raw)
			continue
		}
		if err := b.add(*a); err != nil {
			return nil, err
		}
	}
	return b.finish()
}

type builder struct {
	turns   []turn
	cur     turn
	group   bool
	stopped bool
	calls   int
	faults  int
	musts   map[int]bool
}

func (b *builder) say(s string) {
	if b.stopped && !b.group {
		return
	}
	b.cur.steps = append(b.cur.steps, step{text: s})
}

func (b *builder) add(a action) error {
	if b.stopped && (!b.group || a.kind != actEnd) {
		return errors.New("nothing can follow stop: the next request could not tell how far the script is")
	}
	switch a.kind {
	case actParallel:
		if b.group {
			return errors.New("parallel inside parallel")
		}
		b.group = true
	case actEnd:
		if !b.group {
			return errors.New("end without parallel")
		}
		if b.cur.calls == 0 {
			return errors.New("a parallel group without a tool call")
		}
		b.group = false
		b.close()
	case actCall:
		b.musts[b.calls] = a.call.must
		b.calls++
		b.cur.calls++
		b.cur.steps = append(b.cur.steps, step{call: &a.call})
		if !b.group {
			b.close()
		}
	case actSay:
		b.say(words(a.words))
	case actSleep:
		b.cur.steps = append(b.cur.steps, step{sleep: a.sleep})
	case actUsage:
		b.cur.usage = append(b.cur.usage, a.usage)
	case actError:
		a.fault.ordinal = b.faults
		b.faults++
		b.cur.faults = append(b.cur.faults, a.fault)
	case actStop:
		b.cur.stop, b.stopped = a.stop, true
		if !b.group {
			b.close()
		}
	}
	return nil
}

func (b *builder) close() {
	b.turns = append(b.turns, b.cur)
	b.cur = turn{}
}

func (b *builder) finish() (*plan, error) {
	if b.group {
		return nil, errors.New("parallel without end")
	}
	if !b.stopped {
		said := false
		for _, s := range b.cur.steps {
			said = said || s.text != ""
		}
		if !said {
			b.say(sayDone)
		}
		b.close()
	}
	return &plan{turns: b.turns, musts: b.musts}, nil
}

// words returns n words, so that a reader can see one missing.
func words(n int) string {
	var s strings.Builder
	for i := 1; i <= n; i++ {
		if i > 1 {
			s.WriteByte(' ')
		}
		s.WriteString("w" + strconv.Itoa(i))
	}
	return s.String()
}

// next picks the turn for a conversation in which the calls with these results
// were answered.
func (p *plan) next(results []bool) (turn, error) {
	for i, failed := range results {
		if failed && p.musts[i] {
			return turn{steps: []step{{text: sayFailed}}}, nil
		}
	}
	done := 0
	for _, t := range p.turns {
		if done == len(results) {
			return t, nil
		}
		if done += t.calls; done > len(results) {
			return turn{}, errors.New("the results of " + strconv.Itoa(done-len(results)) + " calls of the last message are missing")
		}
	}
	// Everything was answered, and the last message of the script was cut
	// short by stop: there is nothing left to say.
	return turn{steps: []step{{text: sayDone}}}, nil
}
