package serve

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// kinds maps what the kernel says to what the host can match.
var kinds = map[syscall.Errno]error{
	unix.ENOENT: guest.ErrNotExist,
	unix.EISDIR: guest.ErrIsDir,
	unix.EFBIG:  guest.ErrTooLarge, unix.E2BIG: guest.ErrTooLarge,
	unix.EACCES: guest.ErrPermission, unix.EPERM: guest.ErrPermission, unix.EROFS: guest.ErrPermission,
	unix.ELOOP: guest.ErrPermission, unix.ENXIO: guest.ErrPermission,
	unix.ENOSPC: guest.ErrNoSpace, unix.EDQUOT: guest.ErrNoSpace,
	unix.EINVAL: guest.ErrInvalidPath, unix.ENAMETOOLONG: guest.ErrInvalidPath, unix.ENOTDIR: guest.ErrInvalidPath,
	unix.EXDEV: guest.ErrPermission,
}

// fault is the last frame of a call that failed.
func fault(err error) *guest.Frame {
	if e, ok := errors.AsType[*guest.Error](err); ok {
		return faultKind(e.Err, e.Detail)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return faultKind(kinds[errno], err.Error())
	}
	return faultKind(nil, err.Error())
}

func faultKind(kind error, detail string) *guest.Frame {
	f := &guest.Fault{Detail: detail}
	if kind != nil {
		f.Kind = kind.Error()
	}
	return &guest.Frame{Type: guest.TypeFault, Fault: f}
}
