// Package vfork starts a child that borrows its parent's memory until it executes a program, and does in between what the
// parent wrote down: a list of system calls. The standard library does the same for ordinary children, but copies the
// parent for one in a user namespace of its own, and has no place for a step that it does not know.
//
// # Invariants
//
// Between clone and exec the child runs in its parent's memory, so nothing there may allocate, grow the stack, or be
// instrumented by the compiler: all that it does is in one function. Nobody can write the child's id maps before it
// executes.
//
// # Goroutines
//
// None.
package vfork

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Steps are the system calls of a child, in their order; the last one executes the program. The zero value has none. Start
// uses them up.
type Steps struct {
	pinned runtime.Pinner
	calls  []call
	err    error
}

// call is a system call as plain numbers.
type call struct {
	number   uintptr
	args     [6]uintptr
	onResult bool
}

// Call adds a system call with up to six arguments. The child ends at the first one that fails.
func (s *Steps) Call(number uintptr, args ...uintptr) {
	c := call{number: number}
	copy(c.args[:], args)
	s.calls = append(s.calls, c)
}

// CallOnResult adds a system call whose first argument is what the call before returned.
func (s *Steps) CallOnResult(number uintptr, args ...uintptr) {
	s.Call(number, append([]uintptr{0}, args...)...)
	s.calls[len(s.calls)-1].onResult = true
}

// String is a C string for an argument, which lives until Start has returned. One that has a NUL byte makes Start fail.
func (s *Steps) String(v string) uintptr {
	p, err := syscall.BytePtrFromString(v)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return 0
	}
	return Pointer(s, p)
}

// Strings is a list of C strings, like argv and envp.
func (s *Steps) Strings(v []string) uintptr {
	list, err := syscall.SlicePtrFromStrings(v)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return 0
	}
	return Pointer(s, &list[0])
}

// Pointer is the address of what p points to, which lives until Start has returned.
func Pointer[T any](s *Steps, p *T) uintptr {
	s.pinned.Pin(p)
	return uintptr(unsafe.Pointer(p))
}

// cloneArgs is struct clone_args of linux/sched.h.
type cloneArgs struct {
	flags      uint64
	_          [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal uint64
	_          [5]uint64 // stack, stack_size, tls, set_tid, set_tid_size
	cgroup     uint64
}

// child is all that cloneAndCall needs.
type child struct {
	number, first, second uintptr // the call that makes the child
	calls                 []call
	failedStep, failure   uintptr // written by the child: the memory is shared
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

//go:noescape
func clone(number, first, second uintptr) (pid, errno uintptr)

// Start makes the child, in the new namespaces that flags name, and returns once it has executed its program. cgroup is the
// folder of a v2 group to be born in, or -1. The error of a step that failed wraps its syscall.Errno; the child has been
// reaped then. A child dies with the calling thread if a step says so.
func (s *Steps) Start(flags uint64, cgroup int) (int, error) {
	defer s.pinned.Unpin()
	if s.err != nil {
		return 0, s.err
	}
	flags |= unix.CLONE_VM | unix.CLONE_VFORK
	c := &child{number: unix.SYS_CLONE, first: uintptr(flags) | uintptr(unix.SIGCHLD), calls: s.calls}
	if cgroup >= 0 {
		args := &cloneArgs{flags: flags | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(cgroup)}
		c.number, c.first, c.second = unix.SYS_CLONE3, Pointer(s, args), unsafe.Sizeof(*args)
	}
	s.pinned.Pin(c)
	syscall.ForkLock.Lock()
	pid, errno := cloneAndCall(c)
	afterFork()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return 0, fmt.Errorf("clone: %w", syscall.Errno(errno))
	}
	if c.failure != 0 {
		for {
			// ECHILD: one who waits for any child has met it.
			if _, err := syscall.Wait4(int(pid), nil, 0, nil); err != syscall.EINTR {
				break
			}
		}
		return 0, fmt.Errorf("step %d of the child: %w", c.failedStep, syscall.Errno(c.failure))
	}
	return int(pid), nil
}

// cloneAndCall returns in the parent only, once the child has executed or ended. In the child everything happens in this
// frame; the parent leaves it at once, because the child has used it meanwhile.
//
//go:noinline
//go:norace
//go:nocheckptr
func cloneAndCall(c *child) (pid, errno uintptr) {
	beforeFork()
	pid, errno = clone(c.number, c.first, c.second)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	afterForkInChild()
	var result uintptr
	for n := range c.calls {
		step := &c.calls[n]
		first := step.args[0]
		if step.onResult {
			first = result
		}
		r, _, e := syscall.RawSyscall6(step.number, first, step.args[1], step.args[2], step.args[3], step.args[4], step.args[5])
		if e != 0 {
			c.failedStep, c.failure = uintptr(n), uintptr(e)
			break
		}
		result = r
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 253, 0, 0) //nolint:errcheck // exit does not return
	}
}
