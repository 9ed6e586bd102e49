package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// Launch is the launcher. It must run on the main thread, as the first process of fresh namespaces, before the program has
// made any file descriptor of its own. Descriptors 0 to 2 become those of the guest inside, fd is the stream to the
// server. It returns when the sandbox has ended, with nil if the server wished it; the process must then end, and with it
// the kernel ends everything else in the jail.
//
// What it starts runs under leased ids without any right outside its namespaces. runsc adds its own walls to these: an
// empty root, a system call filter and, around the gofer, a network namespace of its own.
func Launch(fd int) error {
	runtime.LockOSThread()
	s := walls.Socket(fd)
	l := &launcher{waiting: map[int]chan syscall.WaitStatus{}, ended: make(chan end, 64), answered: make(chan struct{}, 1)}
	err := l.start(s)
	if errors.Is(err, errKilled) {
		return err // without an answer, as if this process had been killed: nobody has refused anything
	}
	if werr := walls.WriteStatus(s, err); err == nil {
		err = werr
	}
	if err != nil {
		return err
	}
	runtime.UnlockOSThread()
	go l.serve(s)
	end := <-l.ended
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last {
		<-l.answered // the sandbox ends before runsc has said how it went
		return nil
	}
	return fmt.Errorf("process %d of runsc has ended, status %#x", end.pid, uint32(end.status))
}

// errKilled: a process of runsc did not end by itself while it started.
var errKilled = errors.New("killed from outside")

// end is a process that nobody waits for, and how it ended.
type end struct {
	pid    int
	status syscall.WaitStatus
}

// launcher owns all processes of a jail.
type launcher struct {
	// mu also serialises forks: a status that is reaped before its process is entered in waiting waits for it.
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	reaping bool
	last    bool // the sandbox was told to end

	ended    chan end      // processes that nobody waits for: the sandbox or its gofer
	answered chan struct{} // the order to end was answered
	direct   *booting      // how it was started, until runsc is told; nil if runsc did it
}

func (l *launcher) start(s walls.Socket) error {
	if err := unix.CloseRange(uint(s)+1, ^uint(0), 0); err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	unix.CloseOnExec(int(s))
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set dumpable: %w", err)
	}
	var j Jail
	fds, err := s.Receive(&j)
	if err != nil {
		return err
	}
	if err := walls.KeepCores(); err != nil {
		return fmt.Errorf("cores: %w", err)
	}
	if err := walls.BecomeRoot(); err != nil {
		return fmt.Errorf("ids: %w", err)
	}
	if err := build(j, fds); err != nil {
		return err
	}
	if err := walls.SetRlimits(j.Rlimits); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if j.Direct != nil {
		return l.boot(j)
	}
	return l.run(j.Start)
}

// serve obeys orders until the server hangs up.
func (l *launcher) serve(s walls.Socket) {
	for {
		var o Order
		fds, err := s.Receive(&o)
		if errors.Is(err, io.EOF) {
			os.Exit(0) // without the server nothing here may live
		}
		if err == nil {
			err = l.obey(o, fds)
		}
		if walls.WriteStatus(s, err) != nil {
			os.Exit(1)
		}
		if o.Last {
			select {
			case l.answered <- struct{}{}:
			default: // one is enough
			}
		}
	}
}

func (l *launcher) obey(o Order, fds []int) error {
	if err := attachAll(o.Mounts, fds); err != nil {
		return err
	}
	if o.Call != "" {
		return callSentry(o.Call, nil)
	}
	l.mu.Lock()
	l.last = l.last || o.Last
	l.mu.Unlock()
	if l.direct != nil {
		if err := l.direct.remember(); err != nil {
			return err
		}
		l.direct = nil // once: from here on the state is runsc's
	}
	return l.run(o.Args)
}

// run executes runsc and waits for it; what it leaves running becomes ours.
func (l *launcher) run(args []string) error {
	done, err := l.fork(append([]string{Runsc}, args...))
	if err != nil {
		return fmt.Errorf("start runsc: %w", err)
	}
	status := <-done
	switch {
	case status.Signaled():
		return fmt.Errorf("runsc was ended by signal %d: %w", status.Signal(), errKilled)
	case status.ExitStatus() != 0:
		// It has said why on its stderr, which the server keeps.
		return errors.New("runsc exited with code " + strconv.Itoa(status.ExitStatus()))
	}
	return nil
}

func (l *launcher) fork(argv []string) (chan syscall.WaitStatus, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pid, err := syscall.ForkExec(Runsc, argv, &syscall.ProcAttr{
		Dir: "/", Env: []string{"TMPDIR=/tmp", "PATH=/"}, Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return nil, err
	}
	done := make(chan syscall.WaitStatus, 1)
	l.waiting[pid] = done
	l.reapLocked()
	return done, nil
}

// reapLocked begins to reap. The caller holds mu.
func (l *launcher) reapLocked() {
	if !l.reaping {
		l.reaping = true
		go l.reap()
	}
}

// reap is the one place that waits for processes. The goroutine ends with the process.
func (l *launcher) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WALL, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			l.ended <- end{} // no child at all: there is no sandbox
			return
		}
		l.mu.Lock()
		done := l.waiting[pid]
		delete(l.waiting, pid)
		l.mu.Unlock()
		if done != nil {
			done <- status
			continue
		}
		select {
		case l.ended <- end{pid, status}:
		default: // the first is enough
		}
	}
}
