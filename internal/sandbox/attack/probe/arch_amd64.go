package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const sysLookupDcookie = unix.SYS_LOOKUP_DCOOKIE

// archGroups holds the calls that only this architecture has.
var archGroups = map[string][]attempt{
	"kernel": {
		{"iopl", unix.SYS_IOPL, a(0)},
		{"ioperm", unix.SYS_IOPERM, a(0, 1, 0)},
		{"uselib", unix.SYS_USELIB, a(bad)},
		{"nfsservctl", unix.SYS_NFSSERVCTL, a(0, 0, 0)},
	},
}

// int80 enters the kernel by the i386 gate, which has its own table of calls
// and shows the filter another architecture word.
func int80(nr, a1, a2, a3 uintptr) uintptr

// vforkOrphan makes a child that makes a child; both end at once. It answers
// with the pid of the first, or a negative errno.
func vforkOrphan() uintptr

// orphan leaves one dead process to process 1.
func orphan() syscall.Errno {
	pid := int(vforkOrphan())
	if pid < 0 {
		return syscall.Errno(-pid)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_WAIT4, uintptr(pid), 0, 0, 0, 0, 0)
	return 0
}
