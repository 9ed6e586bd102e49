package serve

import (
	"slices"
	"sync"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// family is everything that carries one marker on behalf of cells: a fork server
// and the interpreter it has forked, or a cold interpreter alone. They share the
// marker because only the guest can give one, at exec. At most one interpreter
// lives in a family, so that whatever else has the marker is its cell's.
type family struct {
	s      *server
	marker uint32

	mu   sync.Mutex
	core []*proc
}

func (s *server) newFamily() *family { return &family{s: s, marker: s.procs.mark()} }

// join makes a process one that is not ended with a cell.
func (f *family) join(p *proc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core = append(f.core, p)
}

// leave takes a process out that has been reaped or was never started. With the
// last one the marker is free.
func (f *family) leave(p *proc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core = slices.DeleteFunc(f.core, func(q *proc) bool { return q == p })
	if len(f.core) == 0 {
		f.s.procs.unmark(f.marker, false)
	}
}

// alone tells whether p is the only one.
func (f *family) alone(p *proc) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.core) == 1 && f.core[0] == p
}

// spared are the living pids of the core but p's.
func (f *family) spared(p *proc) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var pids []int
	for _, q := range f.core {
		if q != p && !q.ended() {
			pids = append(pids, q.pid)
		}
	}
	return pids
}

// kill ends everything of the family but the rest of its core.
func (f *family) kill(p *proc) {
	f.s.procs.kill(f.marker, f.spared(p)...)
}

// interpreter enters a process in the family and joins its streams to it.
func (f *family) interpreter(in *interp, p *proc) {
	in.family, in.proc = f, p
	if !f.alone(p) { // which is a fork server that has become it
		f.join(p)
	}
	go in.out.run()
	go in.err.run()
	go in.listen()
}

// noPython is the fault of a root file system without Python.
func noPython() *guest.Frame {
	return faultKind(guest.ErrNotExist, "python3: not found in this root file system")
}
