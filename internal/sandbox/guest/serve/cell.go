package serve

import (
	"strconv"
	"syscall"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// cellTimeoutCode is what timeout(1) uses.
const cellTimeoutCode = 124

// muteGrace is how long an interpreter may live after it stopped to speak.
const muteGrace = time.Second

// repl is the resident interpreter. Whoever holds the turn may use cur.
type repl struct {
	s    *server
	turn chan struct{}
	cur  *interp
}

func newREPL(s *server) *repl { return &repl{s: s, turn: make(chan struct{}, 1)} }

func (r *repl) close() {
	r.turn <- struct{}{}
	if r.cur != nil {
		r.cur.kill()
		r.cur.release()
		r.cur = nil
	}
	<-r.turn
}

// current returns the living interpreter or makes one. lost is true if one
// that had run cells has ended meanwhile.
func (r *repl) current() (in *interp, started, lost bool, f *guest.Frame) {
	if r.cur != nil && r.cur.ended() {
		lost = r.cur.cells > 0
		r.drop()
	}
	if r.cur == nil {
		r.cur, f = r.s.startInterp()
		started = f == nil
	}
	return r.cur, started, lost, f
}

func (r *repl) drop() {
	r.cur.kill()
	r.cur.release()
	r.cur = nil
}

// cellRun is one running cell.
type cellRun struct {
	k     *call
	spec  *guest.CellSpec
	in    *interp
	exit  guest.Exit
	begun bool // the interpreter said that the cell began
	done  bool // and that it ended
	fired bool // the interrupt reached the code
	last  byte // of stderr
	clock *clock
	desk  *desk // nil if there are no tools
}

// cell runs a cell and returns its last frame.
func (s *server) cell(k *call, spec *guest.CellSpec) *guest.Frame {
	if spec.Fresh {
		return s.freshCell(k, spec)
	}
	select {
	case s.repl.turn <- struct{}{}:
		defer func() { <-s.repl.turn }()
	case <-k.canceled:
	}
	if k.isCanceled() {
		return faultKind(nil, "canceled before it started")
	}
	for {
		in, started, lost, f := s.repl.current()
		if f != nil {
			return f
		}
		c := &cellRun{k: k, spec: spec, in: in}
		c.exit.Started, c.exit.StateLost = started, lost
		if !c.run() {
			continue
		}
		if c.exit.Holds = !in.ended(); !c.exit.Holds {
			s.repl.drop()
		}
		if started && !in.forked {
			s.forks.kick()
		}
		return &guest.Frame{Type: guest.TypeExit, Exit: &c.exit}
	}
}

func (s *server) freshCell(k *call, spec *guest.CellSpec) *guest.Frame {
	if k.isCanceled() {
		return faultKind(nil, "canceled before it started")
	}
	for {
		in, f := s.startInterp()
		if f != nil {
			return f
		}
		c := &cellRun{k: k, spec: spec, in: in}
		c.exit.Started = true
		ran := c.run()
		in.release()
		if !ran {
			continue
		}
		if !in.forked {
			s.forks.kick()
		}
		return &guest.Frame{Type: guest.TypeExit, Exit: &c.exit}
	}
}

// run is false if the interpreter turned out to have died before it saw the
// cell, which can then be run in a new one: none of it has happened.
func (c *cellRun) run() bool {
	began := time.Now()
	c.in.out.take(newCapture(c.spec.Output, func(p []byte) { c.k.send(1, p) }))
	c.in.err.take(newCapture(c.spec.Output, c.stderr))
	if c.exit.StateLost {
		c.note("the Python interpreter ended after the last cell; a new one was started and all variables are lost")
	}
	c.in.cells++
	told := make(chan struct{})
	go func() {
		defer close(told)
		// An error means that the interpreter ended, which wait sees.
		_ = c.in.tell(message{Type: "cell", Cell: c.in.cells, Fresh: c.spec.Fresh, Env: c.spec.Env, Tools: offerOf(c.spec.Tools)}, c.k.code)
	}()
	if len(c.spec.Tools) > 0 {
		c.desk = newDesk(c)
	}
	c.wait()
	if c.desk != nil && c.begun {
		c.desk.end()
	}
	c.settle()
	c.exit.Wall = time.Since(began)
	if c.in.ended() {
		c.in.ctl.Close() // nobody reads what is still being told
	}
	<-told
	if c.in.ended() && !c.begun && !c.exit.Canceled && !c.exit.TimedOut && c.again() {
		return false
	}
	c.k.code = nil
	c.exit.Dropped = [2]int64{c.in.out.finish(), c.in.err.finish()}
	c.epilogue()
	return true
}

// again tells whether a cell that its interpreter has not begun may run in
// another one. If a cold one dies before its first cell, so will the next.
func (c *cellRun) again() bool {
	if c.in.cells > 1 {
		return true
	}
	if c.in.forked {
		c.in.cells = 0 // nothing is lost with it
		c.in.s.forks.reject(c.in.family)
	}
	return c.in.forked
}

func (c *cellRun) stderr(p []byte) {
	c.last = p[len(p)-1]
	c.k.send(2, p)
}

// note adds a line to stderr.
func (c *cellRun) note(line string) {
	if c.last != 0 && c.last != '\n' {
		line = "\n" + line
	}
	c.stderr([]byte(line + "\n"))
}

// wait returns when the cell, or its interpreter, has ended.
func (c *cellRun) wait() {
	c.clock = newClock(c.spec.Timeout)
	defer c.clock.timer.Stop()
	if c.ends(c.clock.timer.C, c.k.canceled) {
		return
	}
	if c.k.isCanceled() {
		c.exit.Canceled = true
	} else {
		c.exit.TimedOut = true
	}
	c.in.s.procs.signal(c.in.proc, false, syscall.SIGINT)
	grace := time.NewTimer(termGrace)
	defer grace.Stop()
	if c.ends(grace.C, nil) {
		// It ended by itself while we reached for it.
		if c.done && !c.fired && !c.in.ended() {
			c.exit.TimedOut, c.exit.Canceled = false, false
		}
		return
	}
	c.in.kill()
}

// ends is false if one of the two channels came first.
func (c *cellRun) ends(timer <-chan time.Time, canceled <-chan struct{}) bool {
	said := c.in.said
	var mute <-chan time.Time
	late := c.lateBegin()
	for {
		if c.done && !c.spec.Fresh {
			return true
		}
		select {
		case m, ok := <-said:
			if !ok {
				// It is ending. If not, its code has closed the channel, and
				// nothing would ever tell that the cell is done.
				said = nil
				if !c.spec.Fresh {
					t := time.NewTimer(muteGrace)
					defer t.Stop()
					mute = t.C
				}
				continue
			}
			c.hear(m)
		case <-mute:
			c.in.kill()
		case <-late:
			late = nil
			c.killUnbegun(said)
		case <-c.in.proc.done:
			c.hearRest()
			return true
		case <-timer:
			return false
		case <-canceled:
			return false
		}
	}
}

// killUnbegun ends an interpreter that has not begun its cell. What it said may wait beside the clock, and which of the two
// was looked at first is chance: a cell that is killed after it said that it began would not be run again.
func (c *cellRun) killUnbegun(said <-chan message) {
	for !c.begun {
		select {
		case m, ok := <-said:
			if ok {
				c.hear(m)
				continue
			}
		default:
		}
		c.in.kill()
		return
	}
}

// lateBegin fires when a forked interpreter should long have begun its first
// cell: code may have stopped it while it waited.
func (c *cellRun) lateBegin() <-chan time.Time {
	if !c.in.forked || c.in.cells > 1 {
		return nil
	}
	return time.After(forkLimit)
}

// hearRest takes the messages that were sent before the end.
func (c *cellRun) hearRest() {
	_ = c.in.ctl.SetReadDeadline(time.Unix(1, 0)) // a socket has deadlines
	for m := range c.in.said {
		c.hear(m)
	}
}

func (c *cellRun) hear(m message) {
	if m.Cell != c.in.cells || c.done {
		return
	}
	c.begun = true
	if m.Type != "done" {
		c.hearCall(m)
		return
	}
	c.done, c.fired = true, m.Interrupted
	c.exit.Code = m.Code & 0xff
	c.exit.CPU = time.Duration(max(m.CPU, 0))
	c.exit.MaxRSS = max(m.MaxRSS, 0)
}

func (c *cellRun) hearCall(m message) {
	switch {
	case c.desk == nil:
	case m.Type == "call":
		c.desk.add(m)
	case m.Type == "wait":
		c.desk.send()
	}
}

// settle deals with the processes the cell has left.
func (c *cellRun) settle() {
	p := c.in.s.procs
	if c.in.ended() {
		if c.spec.Fresh || !c.done {
			account(&c.exit, c.in.proc)
		}
		c.in.family.kill(c.in.proc)
		return
	}
	marker, core := c.in.family.marker, append(c.in.family.spared(c.in.proc), c.in.proc.pid)
	if len(p.others(marker, core...)) == 0 {
		return
	}
	t := time.NewTimer(drainGrace)
	defer t.Stop()
	for len(p.others(marker, core...)) > 0 {
		tick := time.NewTimer(10 * time.Millisecond)
		select {
		case <-tick.C:
			continue
		case <-c.k.canceled:
		case <-t.C:
		}
		tick.Stop()
		p.hunt(marker, core...)
		p.waitGone(marker, core...)
		return
	}
}

// epilogue says what became of the time and of the variables.
func (c *cellRun) epilogue() {
	lost := c.in.ended() && !c.spec.Fresh
	c.exit.StateLost = c.exit.StateLost || lost
	if c.exit.TimedOut {
		c.exit.Code = cellTimeoutCode
		line := "detection_timeout: the cell ran longer than " + seconds(c.spec.Timeout) + " and was interrupted"
		switch {
		case lost:
			line += "; it did not yield, so the interpreter was restarted and all variables are lost"
		case !c.spec.Fresh:
			line += "; variables are kept"
		}
		c.note(line)
		return
	}
	if lost && !c.exit.Canceled {
		how := "exited with code " + strconv.Itoa(c.exit.Code)
		if c.exit.Signal != 0 {
			how = "was ended by signal " + strconv.Itoa(c.exit.Signal)
		}
		c.note("the Python interpreter " + how + "; all variables are lost")
	}
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'g', -1, 64) + " s"
}
