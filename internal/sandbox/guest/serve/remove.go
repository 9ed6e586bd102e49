package serve

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// remove takes a name away; a link itself, never what it points to.
func remove(k *call, f *guest.FileSpec, p place) (*guest.Frame, error) {
	err := as(f.AsCode, func() error {
		dir, name, err := p.parent()
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		if !f.All {
			return removeOne(dir, name)
		}
		return removeTree(k, dir, name)
	})
	if f.All && errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return ok(), nil
}

// removeOne removes a file or an empty folder.
func removeOne(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		if derr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(derr, unix.ENOTDIR) {
			return derr
		}
	}
	return err
}

// hasContent tells a folder that is not empty.
func hasContent(err error) bool {
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)
}

// level is a folder on the way down.
type level struct {
	dev, ino uint64
	name     string // in the folder above
}

// removeTree removes a folder with its content. Code may have made it ten
// thousand levels deep, so it keeps one descriptor and no stack: it goes down
// by name and up by "..", and stops if ".." is not where it came from, which
// means that somebody moved the tree meanwhile.
func removeTree(k *call, dir int, name string) error {
	err := removeOne(dir, name)
	if !hasContent(err) {
		return err
	}
	top, err := identify(dir, "")
	if err != nil {
		return err
	}
	stack := []level{top}
	at, err := unix.Dup(dir)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	next := name
	for {
		if k.isCanceled() {
			return errCanceled
		}
		if next != "" {
			down, l, err := enter(at, next)
			if err != nil {
				return err
			}
			unix.Close(at)
			at = down
			stack = append(stack, l)
		}
		if next, err = empty(at); err != nil {
			return err
		}
		if next != "" {
			continue
		}
		last := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at, err = leave(at, stack[len(stack)-1]); err != nil {
			return err
		}
		err := unix.Unlinkat(at, last.name, unix.AT_REMOVEDIR)
		if hasContent(err) { // the code still fills it
			next = last.name
			continue
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if len(stack) == 1 {
			return nil
		}
	}
}

func identify(fd int, name string) (level, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return level{dev: st.Dev, ino: st.Ino, name: name}, err
}

// enter opens a folder below at.
func enter(at int, name string) (int, level, error) {
	fd, err := openat2(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return -1, level{}, err
	}
	l, err := identify(fd, name)
	if err != nil {
		unix.Close(fd)
		return -1, level{}, err
	}
	return fd, l, nil
}

// leave goes up to the folder it came from and closes at.
func leave(at int, to level) (int, error) {
	up, err := unix.Openat(at, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return at, err
	}
	l, err := identify(up, "")
	if err == nil && (l.dev != to.dev || l.ino != to.ino) {
		err = special("the folder was moved while it was removed", guest.ErrPermission)
	}
	if err != nil {
		unix.Close(up)
		return at, err
	}
	unix.Close(at)
	return up, nil
}

// empty removes everything in a folder but folders that have content, and
// returns the name of one of those, or "".
func empty(at int) (string, error) {
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	d := os.NewFile(uintptr(fd), "dir")
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			err := removeOne(at, name)
			if hasContent(err) {
				return name, nil
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return "", err
			}
		}
		if isEOF(err) || (err == nil && len(names) == 0) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
}
