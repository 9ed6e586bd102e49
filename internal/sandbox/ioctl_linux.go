package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlPointer is for requests that x/sys has no function for.
func ioctlPointer[T any](fd int, request uint, arg *T) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}
