package messages

import (
	"context"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// sink is the client's end of a response. Every event goes into the sum, which
// is the answer of a plain request, and to the client when it streams. Its
// methods may be called by the loop and the ping goroutine.
type sink struct {
	sum    claude.Accumulator
	stream *wire.Stream // nil = not streamed
	every  time.Duration
	keep   bool           // collect the events in kept
	kept   []*claude.Node // shared with sum; not to be changed

	mu      sync.Mutex
	started bool // guarded by mu, like stopped
	stopped bool
	pings   sync.WaitGroup
	end     chan struct{}
}

func newSink(stream *wire.Stream, every time.Duration) *sink {
	return &sink{stream: stream, every: every, end: make(chan struct{})}
}

// send passes one event on. The first one commits the 200.
func (k *sink) send(e *claude.Node) error {
	if err := k.sum.Add(e); err != nil {
		return err
	}
	if k.keep {
		k.kept = append(k.kept, e)
	}
	if k.stream == nil {
		return nil
	}
	k.begin()
	return k.stream.Event(e.Type(), e.Bytes())
}

// pass passes on an event that is not part of the message.
func (k *sink) pass(e *claude.Node) error {
	if k.stream == nil || !k.begun() {
		return nil
	}
	return k.stream.Event(e.Type(), e.Bytes())
}

func (k *sink) begun() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.started
}

// begin starts the pings, which keep proxies from cutting a connection on which
// a command runs in silence.
func (k *sink) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.started {
		return
	}
	k.started = true
	k.pings.Go(func() {
		t := time.NewTicker(k.every)
		defer t.Stop()
		for {
			select {
			case <-k.end:
				return
			case <-t.C:
				// A client that is gone is noticed by the loop's next event.
				if err := k.stream.Event("ping", []byte(`{"type":"ping"}`)); err != nil {
					return
				}
			}
		}
	})
}

// stop ends the pings; nothing is sent by them afterwards.
func (k *sink) stop() {
	k.mu.Lock()
	first := !k.stopped
	k.stopped = true
	k.mu.Unlock()
	if first {
		close(k.end)
	}
	k.pings.Wait()
}

// fail ends a stream that has begun with an error event.
func (k *sink) fail(ctx context.Context, err error) error {
	return k.stream.Event("error", wire.ErrorBody(ctx, err))
}

// block sends a block that is whole from the start.
func (k *sink) block(index int, b *claude.Node) error {
	if err := k.send(claude.NewObject("type", "content_block_start", "index", index, "content_block", b)); err != nil {
		return err
	}
	return k.send(claude.NewObject("type", "content_block_stop", "index", index))
}
