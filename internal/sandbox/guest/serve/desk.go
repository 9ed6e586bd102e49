package serve

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// offer is what Python is told of tools. It keeps the limits too, so that the code gets an exception.
type offer struct {
	Names   []string `json:"names"`
	Calls   int      `json:"calls"`
	Pending int      `json:"pending"`
	Input   int      `json:"input"`
	Inputs  int      `json:"inputs"`
	Quiet   float64  `json:"quiet"` // seconds
}

func offerOf(names []string) *offer {
	if len(names) == 0 {
		return nil
	}
	return &offer{
		Names: names, Calls: guest.MaxToolCalls, Pending: guest.MaxToolPending,
		Input: guest.MaxToolInput, Inputs: guest.MaxToolInputs, Quiet: guest.ToolQuiet.Seconds(),
	}
}

// desk carries the calls of one cell to the host and the answers back. The code shares the interpreter and can forge
// whatever it says: what it may not do is not carried, and numbers are given here, so that it can take over no call but its
// own. The methods but carry belong to the goroutine of the cell.
//
//	collecting --wait--> carry: calls to the host, the clock stands still, answers to Python --> collecting
type desk struct {
	c     *cellRun
	tools map[string]int

	group []toolCall
	size  int
	made  uint64

	out  atomic.Bool   // a group is carried
	idle chan struct{} // closed when none is; replaced with each group
}

// toolCall is a call that Python knows by its number and the host by ours.
type toolCall struct {
	python int64
	id     uint64
	tool   int
	input  []byte
}

func newDesk(c *cellRun) *desk {
	d := &desk{c: c, tools: map[string]int{}, idle: make(chan struct{})}
	close(d.idle)
	for n, name := range c.spec.Tools {
		d.tools[name] = n
	}
	return d
}

// add takes a call. One that Python should not have made is dropped; at the end of its group Python misses the answer.
func (d *desk) add(m message) {
	tool, known := d.tools[m.Name]
	switch {
	case !known, d.out.Load(), d.made >= guest.MaxToolCalls, len(d.group) >= guest.MaxToolPending:
	case len(m.text) > guest.MaxToolInput, d.size+len(m.text) > guest.MaxToolInputs, !guest.ValidToolInput(m.text):
	default:
		d.made++
		d.size += len(m.text)
		d.group = append(d.group, toolCall{python: m.Call, id: d.made, tool: tool, input: m.text})
	}
}

// send has the group carried. A cell that is being ended, or has died, gets no answers.
func (d *desk) send() {
	if d.out.Load() || d.c.exit.TimedOut || d.c.exit.Canceled || d.c.in.ended() {
		return
	}
	group := d.group
	d.group, d.size = nil, 0
	d.out.Store(true)
	idle := make(chan struct{})
	d.idle = idle
	go func() {
		defer close(idle)
		d.carry(group)
	}()
}

// carry ends early when the cell does.
func (d *desk) carry(group []toolCall) {
	if len(group) == 0 { // none of it was carried
		d.out.Store(false)
		// An error means that the interpreter ended, which the cell sees.
		_ = d.c.in.tell(message{Type: "answer", Last: true}, nil)
		return
	}
	python := map[uint64]int64{}
	for n := range group {
		if !d.forward(&group[n], n == len(group)-1) {
			return
		}
		python[group[n].id] = group[n].python
	}
	d.answers(python)
}

// forward sends one call and lets go of its input. With the last one of a group it is the host's move.
func (d *desk) forward(call *toolCall, last bool) bool {
	rest := call.input
	call.input = nil
	for {
		n := min(len(rest), guest.MaxData)
		f := &guest.Frame{Payload: rest[:n], Tool: &guest.ToolPart{Call: call.id, Tool: call.tool, More: n < len(rest)}}
		if f.EOF = last && !f.Tool.More; f.EOF {
			d.c.k.ask()
			d.c.clock.stop()
		}
		if !d.c.k.sendTool(f) {
			return false
		}
		if rest = rest[n:]; len(rest) == 0 {
			return true
		}
	}
}

// answers passes on what the host says, piece by piece, until the end of the group.
func (d *desk) answers(python map[uint64]int64) {
	for {
		f, ok := d.c.k.receiveData()
		if !ok {
			return
		}
		// The host's move has ended, whether or not Python takes note of it.
		d.c.clock.run()
		m := message{Type: "answer", Last: f.EOF}
		if f.Tool != nil {
			m.Call, m.More, m.Raise = python[f.Tool.Call], f.Tool.More, f.Tool.Raise
		}
		if f.EOF {
			d.out.Store(false) // before Python can know of it
		}
		err := d.c.in.tell(m, f.Payload)
		d.c.k.consumed(f)
		if err != nil || f.EOF {
			return // an error means that the interpreter ended, which the cell sees
		}
	}
}

// end is for a cell that is over: nothing is carried afterwards. An interpreter that does not take a message it has been
// sent the half of is of no further use.
func (d *desk) end() {
	d.c.k.shut()
	if d.c.in.ended() {
		d.c.in.ctl.Close() // a child of the cell may hold the other end
	}
	t := time.NewTimer(muteGrace)
	defer t.Stop()
	select {
	case <-d.idle:
	case <-t.C:
		d.c.in.kill()
		d.c.in.ctl.Close()
		<-d.idle
	}
}

// clock is the time limit of a cell. It stands still while the host has the calls of a group.
type clock struct {
	mu    sync.Mutex
	timer *time.Timer
	left  time.Duration
	since time.Time // when it last began to run; zero while it stands still
}

func newClock(limit time.Duration) *clock {
	return &clock{timer: time.NewTimer(limit), left: limit, since: time.Now()}
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() && c.timer.Stop() {
		c.left -= time.Since(c.since)
		c.since = time.Time{}
	}
}

func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}
