package native

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

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
	for f := range s.work {
		f()
	}
}

// stop ends the thread; nothing it started may be alive any more.
func (s *spawner) stop() {
	close(s.work)
	<-s.done
}

// start runs the guest in new namespaces with the host ids of r; files become its descriptors 0, 1, 2, ... The child
// then waits for its setup and has done nothing else.
func (s *spawner) start(cgroup int, r *sandbox.IDRange, files []*os.File) (*os.Process, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(r.First), Size: sandbox.RangeSize}}
	attr := &os.ProcAttr{
		Dir: "/",
		// Nothing of the server's environment. One processor, because the guest mostly waits, and each thread less makes
		// its start faster and the sandbox smaller.
		Env:   []string{"GOMAXPROCS=1"},
		Files: files,
		Sys: &syscall.SysProcAttr{
			Cloneflags: namespaces, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
			// Without an identity of its own the child would lose its capabilities at exec.
			Credential:  &syscall.Credential{Uid: 0, Gid: 0},
			Setsid:      true,
			Pdeathsig:   unix.SIGKILL,
			UseCgroupFD: cgroup >= 0, CgroupFD: max(cgroup, 0),
		},
	}
	path := "/proc/self/fd/" + strconv.Itoa(int(s.guest.Fd()))
	var proc *os.Process
	var err error
	finished := make(chan struct{})
	s.work <- func() {
		defer close(finished)
		if err = s.fail; err == nil {
			proc, err = os.StartProcess(path, []string{"airlock-guest", "init"}, attr)
		}
	}
	<-finished
	if err != nil {
		return nil, fmt.Errorf("start guest: %w", err)
	}
	return proc, nil
}
