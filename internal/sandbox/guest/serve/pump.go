package serve

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// pump reads a pipe for as long as somebody may write to it, into a capture
// while a call owns it and into nothing otherwise. Nothing is read and not
// delivered: the lock is held from the read to the delivery.
type pump struct {
	f    *os.File
	conn syscall.RawConn
	eof  chan struct{} // closed when no writer is left

	mu   sync.Mutex
	sink *capture
}

// buffers are lent for a read; an idle pump holds none.
var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

const bufferSize = 32 << 10

// newPump makes a pipe and returns the end that code writes to.
func newPump(sink *capture) (*pump, *os.File, error) {
	r, w, err := codePipe(0)
	if err != nil {
		return nil, nil, err
	}
	conn, err := r.SyscallConn()
	if err != nil {
		r.Close()
		w.Close()
		return nil, nil, err
	}
	return &pump{f: r, conn: conn, eof: make(chan struct{}), sink: sink}, w, nil
}

// codePipe makes a pipe that belongs to the code, which can so open
// /dev/stdout and /dev/stderr. Our end, 0 to read or 1 to write, does not block.
func codePipe(ours int) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	err = unix.Fchown(fds[0], guest.CodeUID, guest.CodeUID)
	if err == nil {
		err = unix.SetNonblock(fds[ours], true)
	}
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// run reads until no writer is left or the pipe is closed.
func (p *pump) run() {
	defer close(p.eof)
	// An error means that the file was closed, which is one of the two ends.
	_ = p.conn.Read(func(fd uintptr) bool {
		for {
			n, err := p.step(int(fd), bufferSize)
			switch {
			case n > 0 || errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			default:
				return true
			}
		}
	})
}

// step reads once, at most limit bytes, and delivers.
func (p *pump) step(fd, limit int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stepLocked(fd, limit)
}

func (p *pump) stepLocked(fd, limit int) (int, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	n, err := unix.Read(fd, (*buf)[:min(limit, len(*buf))])
	if n > 0 {
		p.sink.write((*buf)[:n])
	}
	return n, err
}

// drain delivers what is in the pipe at this moment. It does not follow a writer
// that goes on.
func (p *pump) drain() {
	_ = p.conn.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil && left > 0 {
			var n int
			n, err = p.stepLocked(int(fd), left)
			if n <= 0 {
				return
			}
			left -= n
		}
	})
}

// take gives the stream to a call; what came before is dropped.
func (p *pump) take(sink *capture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	p.sink = sink
}

// finish delivers what was written until now and the held-back tail, and
// returns how much was dropped. What comes later goes nowhere.
func (p *pump) finish() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	dropped := p.sink.close()
	p.sink = nowhere()
	return dropped
}

// nowhere swallows, at the pace of dropped output.
func nowhere() *capture { return &capture{} }
