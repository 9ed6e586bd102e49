package serve

import (
	"fmt"
	"sync"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// call is one id inside the guest.
type call struct {
	s        *server
	id       uint64
	start    func()
	canceled chan struct{} // closed when the host wants the call to end

	mu       sync.Mutex
	changed  chan struct{} // one token: credit, inbox or cancellation changed
	code     []byte
	want     int64 // bytes of code still to come
	credit   int64 // what we may still send
	inbox    []*guest.Frame
	open     int64 // window bytes the host has used
	freed    int64
	stopped  bool
	inClosed bool // nobody reads the input any more
	asked    bool // the host has been given calls of tools, and may answer

	fed  chan struct{} // one token: the inbox or inClosed changed
	over chan struct{} // closed with inClosed
}

func newCall(s *server, id uint64) *call {
	return &call{
		s: s, id: id, credit: guest.Window,
		canceled: make(chan struct{}), changed: make(chan struct{}, 1), fed: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// expectCode takes the first piece of code and starts the call if it is all.
func (k *call) expectCode(want int64, first []byte) error {
	if want < 0 || want > guest.MaxCode {
		return fmt.Errorf("code of %d bytes: %w", want, guest.ErrProtocol)
	}
	k.mu.Lock()
	k.want = want
	k.mu.Unlock()
	return k.addCode(first, true)
}

func (k *call) addCode(p []byte, first bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if int64(len(p)) > k.want || (!first && len(p) == 0) || (!first && k.want == 0) {
		return fmt.Errorf("call %d: more code than announced: %w", k.id, guest.ErrProtocol)
	}
	k.code = append(k.code, p...)
	k.want -= int64(len(p))
	if k.want == 0 {
		k.start()
	}
	return nil
}

// receive takes a frame of a running call from the reader. It never blocks.
func (k *call) receive(f *guest.Frame) error {
	switch f.Type {
	case guest.TypeCode:
		return k.addCode(f.Payload, false)
	case guest.TypeCancel:
		k.cancel()
		return nil
	case guest.TypeCredit:
		return k.addCredit(f.N)
	case guest.TypeData:
		return k.addInput(f)
	case guest.TypeAnswer:
		return k.addAnswer(f)
	default:
		return fmt.Errorf("call %d: frame %q: %w", k.id, f.Type, guest.ErrProtocol)
	}
}

func (k *call) addCredit(n int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n <= 0 || n > guest.Window || k.credit+n > guest.Window {
		return fmt.Errorf("call %d: credit of %d: %w", k.id, n, guest.ErrProtocol)
	}
	k.credit += n
	poke(k.changed)
	return nil
}

func (k *call) addInput(f *guest.Frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.addInputLocked(f)
}

// addAnswer takes a piece of an answer, which there is only after a group of calls.
func (k *call) addAnswer(f *guest.Frame) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked || f.Tool == nil && !f.EOF {
		return fmt.Errorf("call %d: answer to nothing: %w", k.id, guest.ErrProtocol)
	}
	k.asked = !f.EOF
	return k.addInputLocked(f)
}

// ask lets the host answer.
func (k *call) ask() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = true
}

func (k *call) addInputLocked(f *guest.Frame) error {
	k.open += f.Cost()
	if k.open > guest.Window || len(f.Payload) > guest.MaxData {
		return fmt.Errorf("call %d: window overrun: %w", k.id, guest.ErrProtocol)
	}
	if !k.inClosed {
		k.inbox = append(k.inbox, f)
		poke(k.fed)
	}
	return nil
}

// cancel may be called more than once, before or after the end.
func (k *call) cancel() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	k.stopped = true
	close(k.canceled)
	poke(k.changed)
	if k.want > 0 {
		k.want = 0
		k.start() // it answers that it was canceled
	}
}

func (k *call) isCanceled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopped
}

// send carries data to the host, waiting for the window. After a cancellation
// it drops: the host no longer listens, and the call must come to its end.
func (k *call) send(stream int, p []byte) {
	for len(p) > 0 {
		n := min(len(p), guest.MaxData)
		f := &guest.Frame{Type: guest.TypeData, ID: k.id, Stream: stream, Payload: p[:n]}
		if !k.spend(f.Cost()) {
			return
		}
		// A broken stream ends the guest through its reader.
		_ = k.s.w.Write(f)
		p = p[n:]
	}
}

func (k *call) spend(cost int64) bool {
	for {
		k.mu.Lock()
		stopped, ok := k.stopped, k.credit >= cost
		if ok && !stopped {
			k.credit -= cost
		}
		more := k.credit > guest.FrameCost
		k.mu.Unlock()
		if stopped {
			poke(k.changed) // for the other stream
			return false
		}
		if ok {
			if more {
				poke(k.changed)
			}
			return true
		}
		<-k.changed
	}
}

// sendTool carries a piece of a call of a tool; false means that the cell is over.
func (k *call) sendTool(f *guest.Frame) bool {
	f.Type, f.ID = guest.TypeTool, k.id
	for {
		k.mu.Lock()
		ended, ok := k.stopped || k.inClosed, k.credit >= f.Cost()
		if ok && !ended {
			k.credit -= f.Cost()
		}
		more := k.credit > guest.FrameCost
		k.mu.Unlock()
		if ended || ok && more {
			poke(k.changed) // for the streams
		}
		if ended {
			return false
		}
		if ok {
			return k.s.w.Write(f) == nil
		}
		select {
		case <-k.changed:
		case <-k.over:
		}
	}
}

// receiveData waits for the next input frame; ok is false when there will be none.
func (k *call) receiveData() (f *guest.Frame, ok bool) {
	for {
		k.mu.Lock()
		if k.inClosed || k.stopped {
			k.mu.Unlock()
			return nil, false
		}
		if len(k.inbox) > 0 {
			f = k.inbox[0]
			k.inbox[0] = nil
			k.inbox = k.inbox[1:]
			k.mu.Unlock()
			return f, true
		}
		k.mu.Unlock()
		select {
		case <-k.fed:
		case <-k.canceled:
		}
	}
}

// consumed returns the window of an input frame to the host.
func (k *call) consumed(f *guest.Frame) {
	k.mu.Lock()
	k.freed += f.Cost()
	n := int64(0)
	if k.freed >= guest.Window/4 {
		n, k.freed = k.freed, 0
		k.open -= n
	}
	k.mu.Unlock()
	if n > 0 {
		_ = k.s.w.Write(&guest.Frame{Type: guest.TypeCredit, ID: k.id, N: n})
	}
}

// shutInput tells the host that nobody reads the input any more.
func (k *call) shutInput() {
	k.shut()
	_ = k.s.w.Write(&guest.Frame{Type: guest.TypeCredit, ID: k.id, EOF: true})
}

// shut ends receiveData and drops what has come.
func (k *call) shut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.inClosed {
		close(k.over)
	}
	k.inClosed, k.inbox = true, nil
	poke(k.fed)
}
