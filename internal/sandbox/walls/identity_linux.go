package walls

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The capabilities the guest keeps, inside its user namespace only: to start code under its uid, to end it, and to read
// and write files for it.
const keptCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID

// BecomeRoot takes the ids 0 of the user namespace, on all threads. Until then the process carries the server's.
func BecomeRoot() error {
	if err := syscall.Setgid(0); err != nil {
		return fmt.Errorf("setgid: %w", err)
	}
	if err := syscall.Setuid(0); err != nil {
		return fmt.Errorf("setuid: %w", err)
	}
	// A change of ids clears the wish to die with the server.
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// KeepCores asks the kernel never to run this process and what it starts on one core with anything else at the same
// time: threads of a core share its caches and buffers, through which code can read what the other one works on.
func KeepCores() error {
	const threadGroup = 1
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, threadGroup, 0)
	// Threat 57: a kernel that was built without it, or sees one thread on each core, has nothing to give.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// DropCapabilities leaves all threads with keptCapabilities. The bounding set, which would take forty calls, each on every
// thread, was emptied before there was a second thread.
func DropCapabilities() error {
	bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0)
	if err == nil && bound != 0 {
		err = errors.New("not empty")
	}
	if err != nil {
		return fmt.Errorf("bounding set: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: keptCapabilities, Permitted: keptCapabilities}}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("capset: %w", errno)
	}
	return nil
}

// LoadFilter sets no_new_privs and the system call filter on all threads.
func LoadFilter(program []byte) error {
	if len(program) == 0 || len(program)%8 != 0 {
		return errors.New("no program")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	filter := make([]unix.SockFilter, len(program)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), len(program)), program)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// TSYNC hands filter and no_new_privs to the threads that the runtime has made already.
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	if r != 0 {
		return fmt.Errorf("thread %d refused the filter", r)
	}
	return nil
}

// SetRlimits sets limits in the order resource, soft, hard.
func SetRlimits(limits [][3]uint64) error {
	for _, l := range limits {
		lim := syscall.Rlimit{Cur: l[1], Max: l[2]}
		// The syscall package must see the change of RLIMIT_NOFILE: it gives children back the value from before.
		if err := syscall.Setrlimit(int(l[0]), &lim); err != nil {
			return fmt.Errorf("set resource limit %d to %d: %w", l[0], l[2], err)
		}
	}
	return nil
}
