package server

import "sync"

// gate counts turns and closes at shutdown. The zero value is open.
type gate struct {
	mu     sync.Mutex
	closed bool
	turns  int
	empty  chan struct{} // closed when the gate is closed and no turn runs
}

// enter begins a turn; false = the gate is closed.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.turns++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turns--
	if g.closed && g.turns == 0 {
		close(g.empty)
	}
}

// close lets no new turn in; the channel closes when the running ones have ended. Closing again gives the same channel.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		g.empty = make(chan struct{})
		if g.turns == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

// shut reports whether the gate is closed.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
