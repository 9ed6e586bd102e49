package serve

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Markers are supplementary group ids; nothing else in a sandbox uses them.
const (
	firstMarker = 20000
	markers     = 10000
	// keptSweep is how many may be in use before the kept ones are looked at.
	keptSweep = 64
)

// procs owns all processes.
type procs struct {
	pid1 bool
	// fork, if set, runs a function on the one thread that starts processes.
	fork chan func()

	// reaped has one token after each reaped process.
	reaped chan struct{}

	// mu also serialises forks: a status that is reaped before its process is
	// entered in live waits for it.
	mu    sync.Mutex
	live  map[int]*proc
	marks map[uint32]bool // markers in use; true: kept background processes
	last  uint32
	// strangers were reaped while a process is to be adopted; nil at other times.
	strangers map[int]bool
	watching  bool
	work      *sync.Cond // there may be children again, or closed
	closed    bool
}

func newProcs() *procs {
	p := &procs{
		pid1:   os.Getpid() == 1,
		reaped: make(chan struct{}, 1), live: map[int]*proc{}, marks: map[uint32]bool{},
	}
	p.work = sync.NewCond(&p.mu)
	return p
}

// watch makes sure that children are waited for. It is called under mu.
func (p *procs) watch() {
	if !p.watching {
		p.watching = true
		if !p.pid1 {
			// Orphans come to us as they would to PID 1. A kernel without
			// subreapers does not exist since 3.4.
			_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		}
		go p.reap()
	}
	p.work.Signal()
}

// reap is the one place that waits for children, its own and adopted ones.
func (p *procs) reap() {
	for {
		var (
			status syscall.WaitStatus
			usage  syscall.Rusage
		)
		pid, err := syscall.Wait4(-1, &status, syscall.WALL, &usage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		p.mu.Lock()
		if err != nil {
			// No children at all, so no kept ones either.
			if !p.idle() {
				p.mu.Unlock()
				return
			}
			p.mu.Unlock()
			continue
		}
		if c := p.live[pid]; c != nil {
			delete(p.live, pid)
			c.status, c.usage = status, usage
			close(c.done)
		} else if p.strangers != nil {
			p.strangers[pid] = true
		}
		p.mu.Unlock()
		poke(p.reaped)
	}
}

// idle waits under mu for the next start; false after close.
func (p *procs) idle() bool {
	for m, kept := range p.marks {
		if kept {
			delete(p.marks, m)
		}
	}
	for len(p.live) == 0 && !p.closed {
		p.work.Wait()
	}
	return !p.closed
}

func (p *procs) close() {
	p.mu.Lock()
	p.closed = true
	if p.fork != nil {
		close(p.fork)
	}
	p.work.Signal()
	p.mu.Unlock()
}

// mark takes a marker that no living process carries.
func (p *procs) mark() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		p.last = (p.last + 1) % markers
		m := firstMarker + p.last
		if _, used := p.marks[m]; !used {
			p.marks[m] = false
			return m
		}
	}
}

// unmark gives a marker back, or keeps it for background processes.
func (p *procs) unmark(m uint32, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !kept {
		delete(p.marks, m)
		return
	}
	p.marks[m] = true
	if len(p.marks) > keptSweep {
		p.sweepKept()
	}
}

// sweepKept frees, under mu, the markers whose processes have all ended. Where
// no interpreter lives idle does that for nothing.
func (p *procs) sweepKept() {
	used := map[string]bool{}
	p.scan(func(_ int, status []byte) {
		used[string(bytes.TrimSpace(field(status, "\nGroups:\t")))] = true
	})
	for m, kept := range p.marks {
		if kept && !used[strconv.FormatUint(uint64(m), 10)] {
			delete(p.marks, m)
		}
	}
}

// signal sends to the process itself, or to its group, unless it was reaped,
// after which its number may belong to another.
func (p *procs) signal(c *proc, group bool, sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[c.pid] != c {
		return
	}
	pid := c.pid
	if group {
		pid = -pid
	}
	// ESRCH: it is a zombie that the reaper has yet to fetch.
	_ = syscall.Kill(pid, sig)
}
