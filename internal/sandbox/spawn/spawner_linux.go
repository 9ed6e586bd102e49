package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// Child is the first process of a sandbox.
type Child struct {
	// Args and Env are all that the program is told before it reads its files. Everything else of the server stays away.
	Args, Env []string
	// Cgroup is the folder of a v2 group to be born in, or -1.
	Cgroup int
	// Range gives the ids of its user namespace.
	Range *sandbox.IDRange
	// Files become its descriptors 0 to 3; the caller keeps its own.
	Files [4]*os.File
	// Caps are the capabilities, as a mask, that it has in its user namespace until it drops them.
	Caps uint32
	// Inherit lets the programs that it executes have Caps too. Without it no program ever gets a capability again.
	Inherit bool
}

// Spawner starts all children on one thread that lives as long as the driver. The kernel sends the parent-death signal
// when the thread, not the process, that started a child ends; an ordinary goroutine's thread may end at any time.
type Spawner struct {
	program *os.File
	work    chan func()
	done    chan struct{}
	fail    error // why nothing can be started; set before the first work
}

// New starts the thread. Every child executes program, which stays the caller's.
func New(program *os.File) *Spawner {
	s := &Spawner{program: program, work: make(chan func()), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Spawner) run() {
	defer close(s.done)
	// Never unlocked: the thread has another keyring from here on and ends with the goroutine.
	runtime.LockOSThread()
	// Guests must not hold the server's session keyring. A kernel without keyrings has none to hide.
	if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno != 0 && errno != unix.ENOSYS {
		s.fail = fmt.Errorf("new session keyring: %w", errno)
	}
	// Nor its groups. The plain call changes this thread only.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		s.fail = errors.Join(s.fail, fmt.Errorf("drop groups: %w", errno))
	}
	for f := range s.work {
		f()
	}
}

// Stop ends the thread; nothing it started may be alive any more.
func (s *Spawner) Stop() {
	close(s.work)
	<-s.done
}

// Start runs the program in new namespaces with the host ids of c.Range. The child has no id of its user namespace until
// it takes one, and ends when the server does.
func (s *Spawner) Start(c Child) (*os.Process, error) {
	var fds [4]int
	for n, f := range c.Files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 10)
		if err != nil {
			return nil, fmt.Errorf("start guest: %w: %w", sandbox.ErrCapacity, err)
		}
		defer func() { _ = unix.Close(fd) }() // the child has its own
		fds[n] = fd
	}
	var pid int
	var err error
	finished := make(chan struct{})
	s.work <- func() {
		defer close(finished)
		if err = s.fail; err == nil {
			pid, err = start(int(s.program.Fd()), c, fds)
		}
	}
	<-finished
	if err != nil {
		return nil, fmt.Errorf("start guest: %w", err)
	}
	// Nobody but us can reap the child, so its pid is still its own.
	proc, err := os.FindProcess(pid)
	if err == nil {
		err = mapIDs(pid, c.Range.First)
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
		_, werr := unix.Wait4(pid, nil, 0, nil)
		return nil, errors.Join(fmt.Errorf("map ids of guest: %w", err), werr)
	}
	return proc, nil
}

// mapIDs gives the child's user namespace the ids from first on.
func mapIDs(pid int, first uint32) error {
	line := fmt.Appendf(nil, "0 %d %d\n", first, sandbox.RangeSize)
	for _, name := range []string{"uid_map", "gid_map"} {
		f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/"+name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(line)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
