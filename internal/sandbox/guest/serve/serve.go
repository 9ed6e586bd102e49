package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// maxCalls bounds the calls at one time; a host never comes near it.
const maxCalls = 4096

// server is one run of the guest.
type server struct {
	w     *guest.Writer
	procs *procs
	repl  *repl
	forks *forks

	running sync.WaitGroup

	mu    sync.Mutex
	calls map[uint64]*call
	env   []string
	// preload is what the fork server imports; without it there is none.
	preload []string
}

// Run speaks the guest side of the frames over rw until the host closes it,
// and returns nil then. The caller exits, which ends every process of the
// sandbox if the guest is its PID 1; otherwise Run has killed them itself.
func Run(rw io.ReadWriteCloser) error { return RunIn(rw, nil) }

// RunIn is Run inside gVisor, with a control group, the open list of its threads, in which all code is started. Nil is
// elsewhere, and the guest's own group.
func RunIn(rw io.ReadWriteCloser, group *os.File) error {
	s := &server{w: guest.NewWriter(rw), calls: map[uint64]*call{}}
	s.procs = newProcs()
	if group != nil {
		if err := s.procs.forkIn(group); err != nil {
			return err
		}
	}
	s.repl = newREPL(s)
	s.forks = newForks(s)
	if group != nil {
		s.forks.way = byBecoming
	}
	defer s.procs.close()
	clearPuts()
	if err := s.w.Write(&guest.Frame{Type: guest.TypeReady, N: guest.Version}); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	err := s.read(guest.NewReader(rw))
	if !s.procs.pid1 {
		// PID 1 needs none of this: the kernel kills the rest when it exits.
		s.stop()
	}
	return err
}

// Stream is the host's stream on an inherited descriptor.
func Stream(fd int) (io.ReadWriteCloser, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("stream %d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), "host"), nil
}

func (s *server) read(r *guest.Reader) error {
	for {
		f, err := r.Read()
		if hostLeft(err) {
			return nil
		}
		if err == nil {
			err = s.dispatch(f)
		}
		if err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
	}
}

// hostLeft is true if the stream ended because the host closed its end. It may do so in the middle of a frame: the input of
// a command that has ended is still on its way when the sandbox is given up.
func hostLeft(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.ECONNRESET)
}

func (s *server) dispatch(f *guest.Frame) error {
	switch f.Type {
	case guest.TypeHello:
		return s.hello(f)
	case guest.TypePing:
		return s.w.Write(&guest.Frame{Type: guest.TypePong, ID: f.ID, N: time.Now().UnixNano()})
	case guest.TypeCode, guest.TypeData, guest.TypeCredit, guest.TypeCancel, guest.TypeAnswer:
		s.mu.Lock()
		k := s.calls[f.ID]
		s.mu.Unlock()
		if k == nil {
			return nil // a late word about a call that has ended
		}
		return k.receive(f)
	default: // an operation, or nothing a host may say
		run := s.operation(f)
		if run == nil {
			return fmt.Errorf("frame %q: %w", f.Type, guest.ErrProtocol)
		}
		return s.begin(f, run)
	}
}

// operation returns what a frame asks for, or nil if it is malformed.
func (s *server) operation(f *guest.Frame) func(*call) *guest.Frame {
	switch {
	case f.Type == guest.TypeSync:
		return s.sync
	case f.Type == guest.TypeWarm:
		return s.forks.warm
	case f.Type == guest.TypeRest:
		return s.forks.rest
	case f.Type == guest.TypeExec && f.Exec != nil:
		return func(k *call) *guest.Frame { return s.exec(k, f.Exec) }
	case f.Type == guest.TypeCell && f.Cell != nil:
		return func(k *call) *guest.Frame { return s.cell(k, f.Cell) }
	case f.File == nil:
		return nil
	}
	op, ok := fileOps[f.Type]
	if !ok {
		return nil
	}
	return func(k *call) *guest.Frame { return s.file(k, f.File, op) }
}

// begin starts a call as soon as all of its code has come.
func (s *server) begin(f *guest.Frame, run func(*call) *guest.Frame) error {
	k := newCall(s, f.ID)
	k.start = func() {
		s.running.Go(func() {
			s.finish(k, run(k))
		})
	}
	s.mu.Lock()
	_, used := s.calls[f.ID]
	full := len(s.calls) >= maxCalls
	if !used && !full {
		s.calls[f.ID] = k
	}
	s.mu.Unlock()
	switch {
	case used || f.ID == 0:
		return fmt.Errorf("call %d begun twice: %w", f.ID, guest.ErrProtocol)
	case full:
		return s.w.Write(&guest.Frame{Type: guest.TypeFault, ID: f.ID, Fault: &guest.Fault{Detail: "too many calls at once"}})
	}
	want := int64(0)
	if f.Exec != nil {
		want = f.Exec.Script
	}
	if f.Cell != nil {
		want = f.Cell.Code
	}
	return k.expectCode(want, f.Payload)
}

// finish sends the last frame of a call. An error of the stream shows in read.
func (s *server) finish(k *call, last *guest.Frame) {
	s.mu.Lock()
	delete(s.calls, k.id)
	s.mu.Unlock()
	k.shut()
	last.ID = k.id
	_ = s.w.Write(last)
}

func (s *server) hello(f *guest.Frame) error {
	if f.Hello == nil || f.Hello.Version != guest.Version {
		return fmt.Errorf("greeting of another version: %w", guest.ErrProtocol)
	}
	s.mu.Lock()
	s.env = environ(baseEnv, f.Hello.Env)
	s.preload = f.Hello.Preload
	s.mu.Unlock()
	if f.Hello.Resume {
		return s.w.Write(&guest.Frame{Type: guest.TypeReady, N: guest.Version})
	}
	return nil
}

func (s *server) preloads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preload
}

func (s *server) environment() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil {
		return baseEnv
	}
	return s.env
}

// stop ends all calls and everything that runs.
func (s *server) stop() {
	s.mu.Lock()
	calls := make([]*call, 0, len(s.calls))
	for _, k := range s.calls {
		calls = append(calls, k)
	}
	s.mu.Unlock()
	for _, k := range calls {
		k.cancel()
	}
	s.running.Wait()
	s.repl.close()
	s.forks.rest(nil)
	s.procs.killKept()
}

// sync flushes every file system that code can write to.
func (s *server) sync(*call) *guest.Frame {
	for _, dir := range []string{guest.Home, "/tmp", guest.OutputDir} {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fault(err)
		}
		err = unix.Syncfs(fd)
		unix.Close(fd)
		if err != nil {
			return fault(err)
		}
	}
	return &guest.Frame{Type: guest.TypeOK}
}
