package guest

import (
	"fmt"
	"sync"
)

// call is one id on the host. The reader puts frames in, the goroutine of the
// operation takes them out and returns the window.
type call struct {
	id   uint64
	wake chan struct{} // one token: there is something in queue

	mu      sync.Mutex
	queue   []*Frame
	open    int64 // window bytes that the guest has used and we have not returned
	control int   // frames that come once and have come
	freed   int64 // consumed but not yet returned

	credit   int64         // what we may still send
	closed   bool          // the guest wants no more input
	refill   chan struct{} // one token: credit or closed changed
	answered bool          // the last frame has come
}

func newCall(id uint64) *call {
	return &call{id: id, wake: make(chan struct{}, 1), refill: make(chan struct{}, 1), credit: Window}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put takes a frame from the reader. It never blocks; a guest that overruns
// what it was allowed is at fault.
func (k *call) put(f *Frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered && f.Type != TypeCredit {
		return fmt.Errorf("call %d: %s after its end: %w", k.id, f.Type, ErrProtocol)
	}
	switch f.Type {
	case TypeCredit:
		return k.addCredit(f)
	case TypeData, TypeTool:
		k.open += f.Cost()
		if k.open > Window || len(f.Payload) > MaxData {
			return fmt.Errorf("call %d: window overrun: %w", k.id, ErrProtocol)
		}
	case TypeExit, TypeOK, TypeFault, TypePong:
		k.answered = true
		poke(k.refill)
	case TypeInfo:
		k.control++
		if k.control > 1 {
			return fmt.Errorf("call %d: repeated %s: %w", k.id, f.Type, ErrProtocol)
		}
	default:
		return fmt.Errorf("call %d: unexpected %q: %w", k.id, f.Type, ErrProtocol)
	}
	k.queue = append(k.queue, f)
	poke(k.wake)
	return nil
}

func (k *call) addCredit(f *Frame) error {
	if f.N < 0 || f.N > Window || k.credit+f.N > Window {
		return fmt.Errorf("call %d: credit of %d: %w", k.id, f.N, ErrProtocol)
	}
	k.credit += f.N
	k.closed = k.closed || f.EOF
	poke(k.refill)
	return nil
}

// take returns the next frame or nil.
func (k *call) take() *Frame {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) == 0 {
		return nil
	}
	f := k.queue[0]
	k.queue[0] = nil
	k.queue = k.queue[1:]
	if len(k.queue) > 0 {
		poke(k.wake)
	}
	return f
}

func (k *call) pending() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.queue) > 0
}

// free gives a consumed data frame back and returns how much to tell the guest
// now, 0 if that can wait.
func (k *call) free(f *Frame) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.freed += f.Cost()
	if k.freed < Window/4 {
		return 0
	}
	n := k.freed
	k.freed = 0
	k.open -= n
	return n
}

// spend takes credit for a data frame; ok is false if there is not enough yet,
// over is true if nothing should be sent any more.
func (k *call) spend(cost int64) (ok, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.answered {
		return false, true
	}
	if k.credit < cost {
		return false, false
	}
	k.credit -= cost
	return true, false
}
