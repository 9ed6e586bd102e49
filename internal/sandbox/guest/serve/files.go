package serve

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// fileOp does one file operation and returns its last frame.
type fileOp func(k *call, f *guest.FileSpec, p place) (*guest.Frame, error)

var fileOps = map[guest.Type]fileOp{
	guest.TypePut:    put,
	guest.TypeGet:    get,
	guest.TypeStat:   stat,
	guest.TypeList:   list,
	guest.TypeMkdir:  mkdir,
	guest.TypeRemove: remove,
}

func (s *server) file(k *call, f *guest.FileSpec, op fileOp) *guest.Frame {
	p, err := placeOf(f)
	if err != nil {
		return faultKind(guest.ErrInvalidPath, "the path is empty or has a NUL byte")
	}
	last, err := op(k, f, p)
	if err != nil {
		return fault(err)
	}
	return last
}

func ok() *guest.Frame { return &guest.Frame{Type: guest.TypeOK} }

func special(detail string, kind error) error { return &guest.Error{Detail: detail, Err: kind} }

// errCanceled ends an operation that the host gave up.
var errCanceled = errors.New("canceled")

// get sends a regular file.
func get(k *call, f *guest.FileSpec, p place) (*guest.Frame, error) {
	var (
		file *os.File
		st   unix.Stat_t
	)
	err := as(f.AsCode, func() (err error) {
		file, err = openRegular(p, &st)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if f.Max > 0 && st.Size > f.Max {
		return nil, special("the file is larger than was asked for", guest.ErrTooLarge)
	}
	if err := k.s.w.Write(&guest.Frame{Type: guest.TypeInfo, ID: k.id, Entry: entryOf(p.path, &st)}); err != nil {
		return nil, err
	}
	return k.copyOut(file, f.Max)
}

// openRegular opens without waiting for anybody (a FIFO's writer) and looks at
// what was opened, not at what the name meant a moment ago.
func openRegular(p place, st *unix.Stat_t) (*os.File, error) {
	fd, err := p.open(unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(fd, st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return os.NewFile(uintptr(fd), "file"), nil
	case unix.S_IFDIR:
		err = unix.EISDIR
	default:
		err = special("not a regular file", guest.ErrPermission)
	}
	unix.Close(fd)
	return nil, err
}

// copyOut sends a file to its end. A file that grows past limit is too large.
func (k *call) copyOut(file *os.File, limit int64) (*guest.Frame, error) {
	buf := make([]byte, guest.MaxData)
	var sent int64
	for {
		n, err := file.Read(buf)
		if k.isCanceled() {
			return nil, errCanceled
		}
		if limit > 0 && sent+int64(n) > limit {
			return nil, special("the file grew beyond what was asked for", guest.ErrTooLarge)
		}
		k.send(0, buf[:n])
		sent += int64(n)
		if n == 0 || err != nil {
			if err != nil && n == 0 && !isEOF(err) {
				return nil, err
			}
			if n == 0 {
				return &guest.Frame{Type: guest.TypeOK, N: sent}, nil
			}
		}
	}
}

// stat describes a path.
func stat(_ *call, f *guest.FileSpec, p place) (*guest.Frame, error) {
	flags := unix.O_PATH
	if f.NoFollow {
		flags |= unix.O_NOFOLLOW
	}
	if p.strict && f.NoFollow {
		return statStrict(f, p)
	}
	var st unix.Stat_t
	err := as(f.AsCode, func() error {
		fd, err := p.open(flags)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Fstat(fd, &st)
	})
	if err != nil {
		return nil, err
	}
	return &guest.Frame{Type: guest.TypeOK, Entry: entryOf(p.path, &st)}, nil
}

// statStrict describes a link itself where no link may be walked through.
func statStrict(f *guest.FileSpec, p place) (*guest.Frame, error) {
	var st unix.Stat_t
	err := as(f.AsCode, func() error {
		dir, name, err := p.parent()
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return nil, err
	}
	return &guest.Frame{Type: guest.TypeOK, Entry: entryOf(p.path, &st)}, nil
}

// mkdir makes a folder.
func mkdir(_ *call, f *guest.FileSpec, p place) (*guest.Frame, error) {
	err := as(f.AsCode, func() error {
		if f.All {
			return mkdirAll(p, modeOr(f.Mode, 0o755), f.Code)
		}
		return mkdirOne(p, modeOr(f.Mode, 0o755), f.Code)
	})
	if err != nil {
		return nil, err
	}
	return ok(), nil
}

func modeOr(mode, fallback uint32) uint32 {
	if mode == 0 {
		return fallback
	}
	return mode & 0o777
}

func mkdirOne(p place, mode uint32, toCode bool) error {
	dir, name, err := p.parent()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, name, mode); err != nil {
		return err
	}
	// Mkdir obeys the umask; what was asked for is what is made.
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	if toCode {
		return unix.Fchown(fd, guest.CodeUID, guest.CodeUID)
	}
	return nil
}

// mkdirAll makes what is missing on the way to p. The loop goes up until a
// folder exists and then down again.
func mkdirAll(p place, mode uint32, toCode bool) error {
	var missing []place
	for at := p; ; {
		fd, err := at.open(unix.O_PATH | unix.O_DIRECTORY)
		if err == nil {
			unix.Close(fd)
			break
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		missing = append(missing, at)
		up := parentPath(at.path)
		if up == at.path {
			return err
		}
		at.path = up
	}
	for _, m := range slices.Backward(missing) {
		// EEXIST: another call, or the code itself, was faster.
		if err := mkdirOne(m, mode, toCode); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}
