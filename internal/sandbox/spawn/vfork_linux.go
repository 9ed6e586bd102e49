package spawn

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The standard library starts a child in a new user namespace by a full fork: the page tables of the server are copied,
// and every page that server or child then touches is copied at a fault. That was a third of the start of a sandbox and
// grew with the server. Here the child borrows the server's memory until it executes the guest, as the library does for
// children without a user namespace. The price is that nobody can write the child's id maps before it executes: it keeps
// its capabilities over that by the ambient set, which an empty bounding set does not touch, and takes its ids when the
// maps are there.

// cloneArgs is struct clone_args of linux/sched.h.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// vfork is all that the child needs, as plain numbers: between clone and exec it must not allocate, grow its stack, or
// call anything that the compiler may instrument.
type vfork struct {
	args                cloneArgs
	program             uintptr // descriptor
	empty, argv, envp   uintptr
	root                uintptr
	files               [4]uintptr
	capHeader, capData  uintptr
	carried, bounding   uintptr // capability masks
	failedStep, failure uintptr // written by the child: the memory is shared
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

//go:noescape
func vforkCall(args, size uintptr) (pid, errno uintptr)

// startVfork runs the program behind a descriptor in new namespaces, as the leader of a session, with files as its
// descriptors 0 to 3. It must run on the thread whose end shall be the child's. All files must be close-on-exec and have
// numbers above 3.
func startVfork(program int, c Child, files [4]int) (int, error) {
	argvp, err := syscall.SlicePtrFromStrings(c.Args)
	if err != nil {
		return 0, err
	}
	envp, err := syscall.SlicePtrFromStrings(c.Env)
	if err != nil {
		return 0, err
	}
	empty, root := [1]byte{}, [2]byte{'/'}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	caps := [2]unix.CapUserData{{Effective: c.Caps, Permitted: c.Caps, Inheritable: c.Caps}}
	v := &vfork{
		args:    cloneArgs{flags: namespaces | unix.CLONE_VM | unix.CLONE_VFORK, exitSignal: uint64(unix.SIGCHLD)},
		program: uintptr(program), empty: uintptr(unsafe.Pointer(&empty)), root: uintptr(unsafe.Pointer(&root)),
		argv: uintptr(unsafe.Pointer(&argvp[0])), envp: uintptr(unsafe.Pointer(&envp[0])),
		capHeader: uintptr(unsafe.Pointer(&header)), capData: uintptr(unsafe.Pointer(&caps)),
		carried: uintptr(c.Caps),
	}
	if c.Inherit {
		v.bounding = v.carried
	}
	if c.Cgroup >= 0 {
		v.args.flags |= unix.CLONE_INTO_CGROUP
		v.args.cgroup = uint64(c.Cgroup)
	}
	for n, fd := range files {
		v.files[n] = uintptr(fd)
	}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	for _, p := range []any{&empty, &root, &header, &caps, v, &argvp[0], &envp[0]} {
		pinned.Pin(p)
	}
	syscall.ForkLock.Lock()
	pid, errno := cloneAndExec(v)
	afterFork()
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(argvp)
	runtime.KeepAlive(envp)
	if errno != 0 {
		return 0, fmt.Errorf("clone: %w", syscall.Errno(errno))
	}
	if v.failure != 0 {
		_, _ = syscall.Wait4(int(pid), nil, 0, nil) // it has ended by itself
		return 0, fmt.Errorf("step %d of the child: %w", v.failedStep, syscall.Errno(v.failure))
	}
	return int(pid), nil
}

// cloneAndExec returns in the parent only, once the child has executed or ended. In the child everything happens in this
// frame; the parent leaves it at once, because the child has used it meanwhile.
//
//go:noinline
//go:norace
//go:nocheckptr
func cloneAndExec(v *vfork) (pid, errno uintptr) {
	beforeFork()
	pid, errno = vforkCall(uintptr(unsafe.Pointer(&v.args)), unsafe.Sizeof(v.args))
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	afterForkInChild()
	var step uintptr
	var e syscall.Errno
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		goto failed
	}
	step = 1
	if _, _, e = syscall.RawSyscall(unix.SYS_CAPSET, v.capHeader, v.capData, 0); e != 0 {
		goto failed
	}
	step = 2
	for c := range uintptr(32) {
		if v.carried&(1<<c) == 0 {
			continue
		}
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0, 0); e != 0 {
			goto failed
		}
	}
	step = 3
	for c := uintptr(0); ; c++ {
		if v.bounding>>c&1 != 0 {
			continue
		}
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); e == unix.EINVAL && c > unix.CAP_SETPCAP {
			break // one more than this kernel knows
		}
		if e != 0 {
			goto failed
		}
	}
	step = 4
	if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0); e != 0 {
		goto failed
	}
	step = 5
	if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, v.root, 0, 0); e != 0 {
		goto failed
	}
	step = 6
	for n := range uintptr(4) {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, v.files[n], n, 0); e != 0 {
			goto failed
		}
	}
	step = 7
	_, _, e = syscall.RawSyscall6(unix.SYS_EXECVEAT, v.program, v.empty, v.argv, v.envp, unix.AT_EMPTY_PATH, 0)
failed:
	v.failedStep, v.failure = step, uintptr(e)
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 253, 0, 0) //nolint:errcheck // exit does not return
	}
}
