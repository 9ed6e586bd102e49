package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// How long the host is patient with a guest that lives but says nothing.
const (
	// killGrace is between the guest's TERM and its KILL.
	killGrace = 2 * time.Second
	// answerGrace is between the KILL and the answer.
	answerGrace = 5 * time.Second
	// writeGrace is how long one frame may take to leave.
	writeGrace = 10 * time.Second
	// pingEvery is the interval of liveness pings while a call runs; the third
	// that meets silence ends the connection.
	pingEvery  = 10 * time.Second
	pingMisses = 3
)

// Options of NewConn.
type Options struct {
	// Env is the sandbox's environment beside the guest's own defaults.
	Env map[string]string
	// Resume is set for a guest that was restored from a checkpoint: it waits in the middle of its work.
	Resume bool
	// OOMCount, if set, returns how often the kernel has killed for memory in
	// the sandbox. It is read before each call and after one that died of
	// signal 9. It must be safe for concurrent use.
	OOMCount func() int64
	// OOMUnseen is set where code inside cannot tell such a kill: whatever a
	// call reports that went on meanwhile, memory ended it.
	OOMUnseen bool
	// Preload names the Python modules that the fork server imports; without
	// any there is none, and every interpreter starts cold.
	Preload []string
}

// Conn is the host's end of a guest stream. It is safe for concurrent use.
type Conn struct {
	rw    io.ReadWriteCloser
	oom   func() int64
	blind bool // Options.OOMUnseen
	w     *Writer
	heard atomic.Int64 // frames received, for liveness
	runs  atomic.Int64 // commands and cells under way

	ready  chan struct{}
	done   chan struct{}
	ending sync.WaitGroup

	mu    sync.Mutex
	calls map[uint64]*call
	last  uint64
	err   error
}

// NewConn starts to speak over rw, which it owns from then on. If rw has
// SetWriteDeadline it is used to notice a guest that no longer reads.
func NewConn(rw io.ReadWriteCloser, opts Options) *Conn {
	c := &Conn{
		rw: rw, oom: opts.OOMCount, blind: opts.OOMUnseen, w: NewWriter(rw),
		ready: make(chan struct{}), done: make(chan struct{}),
		calls: map[uint64]*call{},
	}
	if d, ok := rw.(interface{ SetWriteDeadline(time.Time) error }); ok {
		// A stream without deadlines (a test's) answers with an error that
		// only means that a stuck peer is noticed later, by the pings.
		c.w.Before = func() { _ = d.SetWriteDeadline(time.Now().Add(writeGrace)) }
	}
	c.w.mu.Lock() // the greeting is first, whatever the caller does next
	c.ending.Add(2)
	go func() {
		defer c.ending.Done()
		c.greet(&Hello{Version: Version, Env: envList(opts.Env), Preload: opts.Preload, Resume: opts.Resume})
	}()
	go func() {
		defer c.ending.Done()
		c.read()
	}()
	return c
}

func (c *Conn) greet(hello *Hello) {
	w := NewWriter(c.rw)
	w.Before = c.w.Before
	err := w.Write(&Frame{Type: TypeHello, Hello: hello})
	c.w.mu.Unlock()
	if err != nil {
		c.fail(fmt.Errorf("greet: %w", gone(err)))
	}
}

// read is the one reader. It ends when the stream does.
func (c *Conn) read() {
	r := NewReader(c.rw)
	for {
		f, err := r.Read()
		if err == nil {
			c.heard.Add(1)
			err = c.dispatch(f)
		}
		if err != nil {
			c.fail(gone(err))
			return
		}
	}
}

func (c *Conn) dispatch(f *Frame) error {
	if f.Type == TypeReady {
		select {
		case <-c.ready:
			return fmt.Errorf("second ready: %w", ErrProtocol)
		default:
		}
		if f.N != Version {
			return fmt.Errorf("guest speaks version %d, not %d: %w", f.N, Version, ErrProtocol)
		}
		close(c.ready)
		return nil
	}
	c.mu.Lock()
	k := c.calls[f.ID]
	c.mu.Unlock()
	if k == nil {
		return nil // a late answer to a call that was given up
	}
	return k.put(f)
}

// gone makes any error of the stream match ErrGone, unless it is ErrProtocol.
func gone(err error) error {
	switch {
	case errors.Is(err, ErrProtocol), errors.Is(err, ErrGone):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrGone, os.ErrDeadlineExceeded)
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return ErrGone
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}

// errUnresponsive: the guest lives, but did not do what it must in time.
var errUnresponsive = fmt.Errorf("%w: no answer: %w", ErrGone, os.ErrDeadlineExceeded)

// fail ends the connection for the first reason only.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if !first {
		return
	}
	close(c.done)
	// The stream is being given up; an error of Close changes nothing.
	_ = c.rw.Close()
}

// Ready waits until the guest has answered the greeting.
func (c *Conn) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done is closed when the connection ended; Err then tells why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil while the connection lives; then it matches ErrGone or ErrProtocol.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection, and with it the guest. All calls end with ErrGone.
// It waits for the goroutines of the connection and may be called again.
func (c *Conn) Close() error {
	c.fail(ErrGone)
	c.ending.Wait()
	return nil
}

// Running is how many commands and cells are under way, those included that wait for a turn or for the answer of a tool.
func (c *Conn) Running() int { return int(c.runs.Load()) }

// begin registers a new call.
func (c *Conn) begin() (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.last++
	k := newCall(c.last)
	c.calls[k.id] = k
	return k, nil
}

// end forgets a call; a guest that still works on it is told to stop.
func (c *Conn) end(k *call) {
	c.mu.Lock()
	delete(c.calls, k.id)
	c.mu.Unlock()
	k.mu.Lock()
	answered := k.answered
	k.mu.Unlock()
	if !answered {
		c.cancel(k)
	}
}

func (c *Conn) cancel(k *call) {
	// A failed write has ended the connection, which the caller sees there.
	_ = c.send(&Frame{Type: TypeCancel, ID: k.id})
}

// send writes a frame; an error ends the connection unless the frame was too large.
func (c *Conn) send(f *Frame) error {
	err := c.w.Write(f)
	if err == nil || errors.Is(err, ErrTooLarge) {
		return err
	}
	c.fail(gone(err))
	return c.Err()
}

// sendData sends payload within the window.
func (c *Conn) sendData(ctx context.Context, k *call, p []byte) (over bool, err error) {
	return c.sendWithin(ctx, k, &Frame{Type: TypeData, ID: k.id, Payload: p, EOF: len(p) == 0})
}

// sendWithin sends a frame that takes from the window. It returns early, without error, if the guest wants no more.
func (c *Conn) sendWithin(ctx context.Context, k *call, f *Frame) (over bool, err error) {
	for ctx.Err() == nil {
		ok, over := k.spend(f.Cost())
		if over {
			return true, nil
		}
		if ok {
			return false, c.send(f)
		}
		select {
		case <-k.refill:
		case <-c.done:
			return true, c.Err()
		case <-ctx.Done():
		}
	}
	return true, context.Cause(ctx)
}

// consumed returns the window of a data frame to the guest.
func (c *Conn) consumed(k *call, f *Frame) error {
	n := k.free(f)
	if n == 0 {
		return nil
	}
	return c.send(&Frame{Type: TypeCredit, ID: k.id, N: n})
}

// next waits for a frame of the call. Frames that have arrived count before
// the end of the connection.
func (c *Conn) next(ctx context.Context, k *call) (*Frame, error) {
	for {
		if f := k.take(); f != nil {
			return f, nil
		}
		select {
		case <-k.wake:
		case <-c.done:
			if f := k.take(); f != nil {
				return f, nil
			}
			return nil, c.Err()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ask sends a frame and returns the last frame of its call.
func (c *Conn) ask(ctx context.Context, op string, f *Frame) (*Frame, error) {
	k, err := c.begin()
	if err != nil {
		return nil, err
	}
	defer c.end(k)
	f.ID = k.id
	if err := c.send(f); err != nil {
		return nil, err
	}
	r, err := c.next(ctx, k)
	if err != nil {
		return nil, err
	}
	return r, faultOf(op, f.File, r)
}

// Ping waits for an answer of the guest.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, "ping", &Frame{Type: TypePing})
	return err
}

// Clock asks the guest what time it has.
func (c *Conn) Clock(ctx context.Context) (time.Time, error) {
	f, err := c.ask(ctx, "clock", &Frame{Type: TypePing})
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, f.N), nil
}

// Warm waits until the Python fork server of the sandbox can fork, and starts it
// if needed. An *Error says that there is none: no modules to preload, no Python.
func (c *Conn) Warm(ctx context.Context) error {
	_, err := c.ask(ctx, "warm", &Frame{Type: TypeWarm})
	return err
}

// Rest ends what the guest can make again, which is the fork server. It comes
// before a freeze; interpreters with state stay.
func (c *Conn) Rest(ctx context.Context) error {
	_, err := c.ask(ctx, "rest", &Frame{Type: TypeRest})
	return err
}

// Sync writes the sandbox's files through to its file systems.
func (c *Conn) Sync(ctx context.Context) error {
	_, err := c.ask(ctx, "sync", &Frame{Type: TypeSync})
	return err
}

// sentinels that a fault may name.
var sentinels = []error{ErrNotExist, ErrIsDir, ErrTooLarge, ErrPermission, ErrNoSpace, ErrInvalidPath}

// faultOf returns the error a frame stands for, or nil.
func faultOf(op string, file *FileSpec, f *Frame) error {
	if f.Type != TypeFault || f.Fault == nil {
		return nil
	}
	e := &Error{Op: op, Detail: f.Fault.Detail}
	if file != nil {
		e.Path = string(file.Path)
	}
	for _, s := range sentinels {
		if s.Error() == f.Fault.Kind {
			e.Err = s
		}
	}
	return e
}

func envList(env map[string]string) [][]byte {
	list := make([][]byte, 0, len(env))
	for k, v := range env {
		list = append(list, []byte(k+"="+v))
	}
	return list
}
