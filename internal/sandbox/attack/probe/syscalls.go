package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bad is a pointer to nothing: a call that gets past the filter and the
// capability checks answers EFAULT, which the suite tells from a refusal.
const bad = 8

// minusOne is the file descriptor, or id, that never is.
const minusOne = ^uintptr(0)

type attempt struct {
	name string
	nr   uintptr
	args [6]uintptr
}

func a(args ...uintptr) (six [6]uintptr) {
	copy(six[:], args)
	return six
}

// groups hold the calls by row of the threat table. The arguments are such
// that an allowed call would succeed or fail with anything but a refusal.
var groups = map[string][]attempt{
	"mount": {
		{"mount", unix.SYS_MOUNT, a(bad, bad, bad, unix.MS_BIND, 0)},
		{"umount2", unix.SYS_UMOUNT2, a(bad, 0)},
		{"pivot_root", unix.SYS_PIVOT_ROOT, a(bad, bad)},
		{"chroot", unix.SYS_CHROOT, a(bad)},
		{"fsopen", unix.SYS_FSOPEN, a(bad, 0)},
		{"fsconfig", unix.SYS_FSCONFIG, a(minusOne, 0)},
		{"fsmount", unix.SYS_FSMOUNT, a(minusOne, 0, 0)},
		{"fspick", unix.SYS_FSPICK, a(minusOne, bad, 0)},
		{"open_tree", unix.SYS_OPEN_TREE, a(minusOne, bad, unix.OPEN_TREE_CLONE)},
		{"move_mount", unix.SYS_MOVE_MOUNT, a(minusOne, bad, minusOne, bad, 0)},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, a(minusOne, bad, 0, bad, 32)},
	},
	"namespace": {
		{"unshare(0)", unix.SYS_UNSHARE, a(0)},
		{"unshare(NEWUSER)", unix.SYS_UNSHARE, a(unix.CLONE_NEWUSER)},
		{"unshare(NEWNS)", unix.SYS_UNSHARE, a(unix.CLONE_NEWNS)},
		{"unshare(NEWPID)", unix.SYS_UNSHARE, a(unix.CLONE_NEWPID)},
		{"unshare(NEWNET)", unix.SYS_UNSHARE, a(unix.CLONE_NEWNET)},
		{"unshare(NEWIPC)", unix.SYS_UNSHARE, a(unix.CLONE_NEWIPC)},
		{"unshare(NEWUTS)", unix.SYS_UNSHARE, a(unix.CLONE_NEWUTS)},
		{"unshare(NEWCGROUP)", unix.SYS_UNSHARE, a(unix.CLONE_NEWCGROUP)},
		{"unshare(NEWTIME)", unix.SYS_UNSHARE, a(unix.CLONE_NEWTIME)},
		{"setns", unix.SYS_SETNS, a(minusOne, 0)},
		{"clone3", unix.SYS_CLONE3, a(bad, 88)},
	},
	"kernel": {
		{"init_module", unix.SYS_INIT_MODULE, a(bad, 1, bad)},
		{"finit_module", unix.SYS_FINIT_MODULE, a(minusOne, bad, 0)},
		{"delete_module", unix.SYS_DELETE_MODULE, a(bad, 0)},
		{"kexec_load", unix.SYS_KEXEC_LOAD, a(0, 0, bad, 0)},
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, a(minusOne, minusOne, 0, bad, 0)},
		{"bpf", unix.SYS_BPF, a(0, bad, 72)},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, a(bad, 0, minusOne, minusOne, 0)},
		{"userfaultfd", unix.SYS_USERFAULTFD, a(1)},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, a(1, bad)},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, a(minusOne, 0, 0, 0, 0, 0)},
		{"io_uring_register", unix.SYS_IO_URING_REGISTER, a(minusOne, 0, 0, 0)},
		{"keyctl", unix.SYS_KEYCTL, a(0, 0, 1)},
		{"add_key", unix.SYS_ADD_KEY, a(bad, bad, bad, 1, minusOne)},
		{"request_key", unix.SYS_REQUEST_KEY, a(bad, bad, bad, 0)},
		{"syslog", unix.SYS_SYSLOG, a(10)},
		{"reboot", unix.SYS_REBOOT, a(0, 0, 0, 0)},
		{"swapon", unix.SYS_SWAPON, a(bad, 0)},
		{"swapoff", unix.SYS_SWAPOFF, a(bad)},
		{"acct", unix.SYS_ACCT, a(bad)},
		{"quotactl", unix.SYS_QUOTACTL, a(0, bad, 0, 0)},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, a(minusOne, bad, 0)},
		{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, a(minusOne, bad, bad, bad, 0)},
		{"lookup_dcookie", sysLookupDcookie, a(0, bad, 1)},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, a(0, 0)},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, a(minusOne, 0, 0)},
		{"kcmp", unix.SYS_KCMP, a(1, 1, 0, 0, 0)},
		{"vhangup", unix.SYS_VHANGUP, a()},
	},
	"clock": {
		{"settimeofday", unix.SYS_SETTIMEOFDAY, a(bad, 0)},
		{"clock_settime", unix.SYS_CLOCK_SETTIME, a(0, bad)},
		{"adjtimex", unix.SYS_ADJTIMEX, a(bad)},
		{"clock_adjtime", unix.SYS_CLOCK_ADJTIME, a(0, bad)},
		{"sethostname", unix.SYS_SETHOSTNAME, a(bad, 1)},
		{"setdomainname", unix.SYS_SETDOMAINNAME, a(bad, 1)},
	},
	"trace": {
		{"ptrace(TRACEME)", unix.SYS_PTRACE, a(unix.PTRACE_TRACEME)},
		{"ptrace(ATTACH 1)", unix.SYS_PTRACE, a(unix.PTRACE_ATTACH, 1)},
		{"ptrace(SEIZE 1)", unix.SYS_PTRACE, a(unix.PTRACE_SEIZE, 1)},
		{"process_vm_readv(1)", unix.SYS_PROCESS_VM_READV, a(1, bad, 1, bad, 1, 0)},
		{"process_vm_writev(1)", unix.SYS_PROCESS_VM_WRITEV, a(1, bad, 1, bad, 1, 0)},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, a(minusOne, 0, 0)},
		{"kcmp(1)", unix.SYS_KCMP, a(1, 1, 0, 0, 0)},
	},
}

// calls tries every call of a group.
func calls(args []string) error {
	group, known := groups[args[0]]
	if !known {
		return fmt.Errorf("unknown group %q", args[0])
	}
	runtime.LockOSThread()
	for _, c := range append(group, archGroups[args[0]]...) {
		_, _, errno := syscall.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		say(answer{Name: c.name, Errno: errnoName(errno), Num: int(errno)})
	}
	return nil
}

// call makes one call by number in one of the three entries of amd64:
// call native|x32|i386 NR [ARG...].
func call(args []string) error {
	nr, rest, err := numbers(args[1:])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	switch args[0] {
	case "native":
		r, _, errno := syscall.RawSyscall6(nr, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5])
		say(answer{Name: "native", Value: int64(r), Errno: errnoName(errno), Num: int(errno)})
	case "x32":
		r, _, errno := syscall.RawSyscall6(nr|x32Bit, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5])
		say(answer{Name: "x32", Value: int64(r), Errno: errnoName(errno), Num: int(errno)})
	case "i386":
		say(answer{Name: "trying"})
		say(viaInt80(nr, rest))
	default:
		return fmt.Errorf("unknown entry %q", args[0])
	}
	return nil
}

const x32Bit = 0x40000000

// viaInt80 answers SIGSEGV where the kernel has no such gate at all.
func viaInt80(nr uintptr, args [6]uintptr) (result answer) {
	result.Name = "i386"
	debug.SetPanicOnFault(true)
	defer func() {
		if recover() != nil {
			result.Errno, result.Num = "SIGSEGV", -1
		}
	}()
	r := int32(int80(nr, args[0], args[1], args[2]))
	result.Value = int64(r)
	if r < 0 && r > -4096 {
		result = result.with(syscall.Errno(-r))
	}
	return result
}

func numbers(args []string) (first uintptr, rest [6]uintptr, err error) {
	if len(args) == 0 || len(args) > 7 {
		return 0, rest, errors.New("want a number and up to six arguments")
	}
	for i, s := range args {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return 0, rest, err
		}
		if i == 0 {
			first = uintptr(n)
		} else {
			rest[i-1] = uintptr(n)
		}
	}
	return first, rest, nil
}

// clones makes children with each namespace flag. A child that came to be
// leaves at once without touching the Go runtime.
func clones([]string) error {
	runtime.LockOSThread()
	flags := []struct {
		name string
		bit  uintptr
	}{
		{"NEWUSER", unix.CLONE_NEWUSER},
		{"NEWNS", unix.CLONE_NEWNS},
		{"NEWPID", unix.CLONE_NEWPID},
		{"NEWNET", unix.CLONE_NEWNET},
		{"NEWIPC", unix.CLONE_NEWIPC},
		{"NEWUTS", unix.CLONE_NEWUTS},
		{"NEWCGROUP", unix.CLONE_NEWCGROUP},
		{"NEWUSER|NEWNS", unix.CLONE_NEWUSER | unix.CLONE_NEWNS},
	}
	for _, f := range flags {
		say(answer{Name: "clone(" + f.name + ")"}.with(rawClone(f.bit | uintptr(unix.SIGCHLD))))
	}
	for _, f := range flags {
		// 88 bytes are struct clone_args up to cgroup.
		var raw [11]uint64
		raw[0], raw[4] = uint64(f.bit), uint64(unix.SIGCHLD)
		say(answer{Name: "clone3(" + f.name + ")"}.with(rawClone3(&raw)))
	}
	return nil
}

//go:norace
//go:noinline
func rawClone(flags uintptr) syscall.Errno {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return errno
}

//go:norace
//go:noinline
func rawClone3(args *[11]uint64) syscall.Errno {
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno == 0 && pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return errno
}

func (a answer) with(err error) answer {
	var errno syscall.Errno
	switch {
	case err == nil:
	case errors.As(err, &errno):
		a.Errno, a.Num = errnoName(errno), int(errno)
	default:
		a.Errno, a.Num = err.Error(), -1
	}
	return a
}

func errnoName(errno syscall.Errno) string {
	if errno == 0 {
		return ""
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return strconv.Itoa(int(errno))
}
