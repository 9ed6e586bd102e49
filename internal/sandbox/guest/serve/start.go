package serve

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/vfork"
)

// codeOOMScore makes the kernel kill code before the guest when memory ends.
const codeOOMScore = "500"

// program is what start needs to know.
type program struct {
	path   string
	argv   []string
	env    []string
	cwd    string
	files  []uintptr // descriptors 0, 1, 2, ...
	marker uint32
}

// proc is a started process. The fields after done are valid once it is closed.
type proc struct {
	pid    int
	marker uint32
	done   chan struct{}

	status syscall.WaitStatus
	usage  syscall.Rusage
}

// ended tells whether the process has been reaped.
func (c *proc) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// start runs a program as the code. On return the program has been executed,
// with the marker, the uid and the OOM score in place before its first
// instruction. The guest never carries that score itself: what an earlier
// command has left may use up the memory at any moment.
func (p *procs) start(pr *program) (*proc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := p.forkExec(pr)
	if err != nil {
		return nil, err
	}
	c := &proc{pid: pid, marker: pr.marker, done: make(chan struct{})}
	p.live[pid] = c
	p.watch()
	return c, nil
}

func (p *procs) forkExec(pr *program) (pid int, err error) {
	files, release, err := above(pr.files)
	defer release()
	if err != nil {
		return 0, err
	}
	var s vfork.Steps
	marker, score := pr.marker, []byte(codeOOMScore)
	// No controlling terminal: prompts on /dev/tty fail at once.
	s.Call(unix.SYS_SETSID)
	s.Call(unix.SYS_OPENAT, atCwd, s.String("/proc/self/oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	s.CallOnResult(unix.SYS_WRITE, vfork.Pointer(&s, &score[0]), uintptr(len(score)))
	s.Call(unix.SYS_SETGROUPS, 1, vfork.Pointer(&s, &marker))
	s.Call(unix.SYS_SETGID, guest.CodeUID)
	s.Call(unix.SYS_SETUID, guest.CodeUID)
	s.Call(unix.SYS_CHDIR, s.String(pr.cwd))
	for n, fd := range files {
		s.Call(unix.SYS_DUP3, fd, uintptr(n), 0)
	}
	s.Call(unix.SYS_EXECVE, s.String(pr.path), s.Strings(pr.argv), s.Strings(pr.env))
	if p.fork == nil {
		return s.Start(0, -1)
	}
	done := make(chan struct{})
	p.fork <- func() {
		defer close(done)
		pid, err = s.Start(0, -1)
	}
	<-done
	return pid, err
}

// atCwd is AT_FDCWD as an argument.
const atCwd = ^uintptr(99)

// above gives descriptors other numbers where one has a number that a child's own will get.
func above(files []uintptr) (moved []uintptr, release func(), err error) {
	var made []int
	release = func() {
		for _, fd := range made {
			_ = unix.Close(fd) // the child has its own
		}
	}
	for _, fd := range files {
		if fd < uintptr(len(files)) {
			n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, len(files))
			if err != nil {
				return nil, release, err
			}
			made = append(made, n)
			fd = uintptr(n)
		}
		moved = append(moved, fd)
	}
	return moved, release, nil
}

// forkIn starts all processes from now on by a thread that is in a control group of its own, and whose children are born
// there. The limits of that group bound the code and not the guest.
func (p *procs) forkIn(group *os.File) error {
	fork, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread()
		_, err := group.WriteString(strconv.Itoa(unix.Gettid()))
		ready <- errors.Join(err, group.Close())
		for f := range fork {
			f()
		}
	}()
	if err := <-ready; err != nil {
		return fmt.Errorf("join control group: %w", err)
	}
	p.fork = fork
	return nil
}

// startFault says why a program did not start. The kernel gives one number for
// the folder and the program, so look which it was.
func startFault(pr *program, err error) *guest.Frame {
	name := ""
	if len(pr.argv) > 0 {
		name = pr.argv[0]
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return fault(err)
	}
	detail := name + ": " + errno.Error()
	if fi, serr := os.Stat(pr.cwd); errors.Is(serr, os.ErrNotExist) || (serr == nil && !fi.IsDir()) {
		detail = "working directory " + pr.cwd + ": no such directory"
		return faultKind(guest.ErrNotExist, detail)
	}
	switch errno {
	case unix.E2BIG:
		return faultKind(guest.ErrTooLarge, "arguments and environment are too large: one string may have 128 KiB, all together 2 MiB")
	case unix.EACCES:
		return faultKind(guest.ErrPermission, name+" in "+pr.cwd+": permission denied")
	case unix.ENOEXEC:
		return faultKind(guest.ErrPermission, name+": not a program")
	case unix.EINVAL:
		return faultKind(guest.ErrInvalidPath, name+": argument or environment has a NUL byte")
	case unix.EAGAIN:
		return faultKind(nil, "no process can be started: the process limit is reached")
	default:
		f := fault(errno)
		f.Fault.Detail = detail
		return f
	}
}
