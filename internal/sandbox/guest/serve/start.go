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
// instruction.
func (p *procs) start(pr *program) (*proc, error) {
	attr := &syscall.ProcAttr{
		Dir: pr.cwd, Env: pr.env, Files: pr.files,
		Sys: &syscall.SysProcAttr{
			// No controlling terminal: prompts on /dev/tty fail at once.
			Setsid:     true,
			Credential: &syscall.Credential{Uid: guest.CodeUID, Gid: guest.CodeUID, Groups: []uint32{pr.marker}},
		},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.setScore(codeOOMScore); err != nil {
		return nil, err
	}
	pid, err := p.forkExec(pr.path, pr.argv, attr)
	// A guest that stays at 500 is safe, only less likely to survive.
	scoreErr := p.setScore(p.baseScore)
	if err != nil {
		return nil, err
	}
	c := &proc{pid: pid, marker: pr.marker, done: make(chan struct{})}
	p.live[pid] = c
	p.watch()
	if scoreErr != nil {
		fmt.Fprintln(os.Stderr, "guest: reset oom score:", scoreErr)
	}
	return c, nil
}

func (p *procs) forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	if p.fork == nil {
		return syscall.ForkExec(path, argv, attr)
	}
	done := make(chan struct{})
	p.fork <- func() {
		defer close(done)
		pid, err = syscall.ForkExec(path, argv, attr)
	}
	<-done
	return pid, err
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

func (p *procs) setScore(v string) error {
	if p.score == nil {
		return p.scoreErr
	}
	if _, err := p.score.WriteAt([]byte(v), 0); err != nil {
		return fmt.Errorf("set oom score: %w", err)
	}
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
