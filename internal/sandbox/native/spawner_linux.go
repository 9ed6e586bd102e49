package native

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// namespaces are all that the kernel offers except time, whose clocks the guest shares with the host on purpose.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// spawner starts all guests on one thread that lives as long as the driver. The kernel sends the parent-death signal when
// the thread, not the process, that started a child ends; an ordinary goroutine's thread may end at any time.
type spawner struct {
	guest *os.File
	work  chan func()
	done  chan struct{}
	fail  error // why nothing can be started; set before the first work
}

func startSpawner(guest *os.File) *spawner {
	s := &spawner{guest: guest, work: make(chan func()), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
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

// stop ends the thread; nothing it started may be alive any more.
func (s *spawner) stop() {
	close(s.work)
	<-s.done
}

// start runs the guest in new namespaces with the host ids of r; files become its descriptors 0 to 3. The child then waits
// for its setup and has done nothing else.
func (s *spawner) start(cgroup int, r *sandbox.IDRange, files [4]*os.File) (*os.Process, error) {
	var fds [4]int
	for n, f := range files {
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
			// Nothing of the server's environment. One processor, because the guest mostly waits, and each thread less
			// makes its start faster and the sandbox smaller.
			pid, err = startVfork(int(s.guest.Fd()), cgroup, []string{"airlock-guest", "init"}, []string{"GOMAXPROCS=1"}, fds)
		}
	}
	<-finished
	if err != nil {
		return nil, fmt.Errorf("start guest: %w", err)
	}
	// Nobody but us can reap the child, so its pid is still its own.
	proc, err := os.FindProcess(pid)
	if err == nil {
		err = mapIDs(pid, r.First)
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
