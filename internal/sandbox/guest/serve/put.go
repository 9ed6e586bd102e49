package serve

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func parentPath(p string) string { return path.Dir(strings.TrimRight(p, "/")) }

// put receives a file into a temporary name beside its own and renames it.
func put(k *call, f *guest.FileSpec, p place) (*guest.Frame, error) {
	t := &target{dir: -1}
	defer t.close()
	err := as(f.AsCode, func() error { return t.find(f, p) })
	if err == nil {
		err = t.promise()
	}
	if err == nil {
		err = as(f.AsCode, t.create)
	}
	if err != nil {
		k.shutInput()
		return nil, err
	}
	n, err := k.copyIn(t.file)
	if err == nil {
		err = as(f.AsCode, t.commit)
	}
	if err != nil {
		k.shutInput()
		_ = as(f.AsCode, t.abandon) // the first error is the one to tell
		return nil, err
	}
	return &guest.Frame{Type: guest.TypeOK, N: n}, nil
}

// target is a file on its way.
type target struct {
	dir        int    // the folder, or -1
	at         string // its path
	name, temp string
	note       string // of the temporary file, see pending.go
	file       *os.File
	mode       uint32
}

// find opens the folder that the file will be in.
func (t *target) find(f *guest.FileSpec, p place) error {
	if f.All {
		if err := mkdirAll(place{parentPath(p.path), p.strict}, 0o755, false); err != nil {
			return err
		}
	}
	var err error
	t.at = parentPath(p.path)
	t.dir, t.name, err = p.parent()
	if err != nil {
		return err
	}
	return t.look(f, p)
}

// create makes the temporary file.
func (t *target) create() error {
	fd, err := openat2(t.dir, t.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		t.temp = ""
		return err
	}
	t.file = os.NewFile(uintptr(fd), "file")
	return nil
}

// look finds what the name is now: its mode is kept, a folder is refused, and
// where the code's own links count the file behind the link is replaced.
func (t *target) look(f *guest.FileSpec, p place) error {
	t.mode = modeOr(f.Mode, 0o644)
	var st unix.Stat_t
	err := unix.Fstatat(t.dir, t.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFREG:
		if f.Mode == 0 {
			t.mode = st.Mode & 0o777
		}
	case unix.S_IFLNK:
		if !p.strict {
			return t.follow(f, p)
		}
	}
	return nil
}

// follow moves the target behind a link. Whatever the code puts in the way
// meanwhile, the write happens with its own rights.
func (t *target) follow(f *guest.FileSpec, p place) error {
	fd, err := p.open(unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	real, err := os.Readlink("/proc/self/fd/" + itoa(fd))
	if err != nil {
		return err
	}
	unix.Close(t.dir)
	behind := place{real, true}
	t.at = parentPath(real)
	t.dir, t.name, err = behind.parent()
	if err != nil {
		return err
	}
	return t.look(f, behind)
}

// commit gives the file its mode and its name.
func (t *target) commit() error {
	if err := unix.Fchmod(int(t.file.Fd()), t.mode); err != nil {
		return err
	}
	// Closing may bring an error of the file system late, for example a quota.
	if err := t.file.Close(); err != nil {
		return err
	}
	if err := unix.Renameat(t.dir, t.temp, t.dir, t.name); err != nil {
		return err
	}
	t.temp = ""
	return nil
}

func (t *target) abandon() error {
	if t.temp == "" {
		return nil
	}
	err := unix.Unlinkat(t.dir, t.temp, 0)
	if err == nil {
		t.temp = ""
	}
	return err
}

func (t *target) close() {
	t.keepPromise()
	if t.file != nil {
		t.file.Close() // a second close after commit changes nothing
	}
	if t.dir >= 0 {
		unix.Close(t.dir)
	}
}

// copyIn writes the host's data to a file until the host says it is all.
func (k *call) copyIn(w *os.File) (int64, error) {
	var n int64
	for {
		f, more := k.receiveData()
		if !more {
			return n, errCanceled
		}
		if f.EOF {
			return n, nil
		}
		if _, err := w.Write(f.Payload); err != nil {
			return n, err
		}
		n += int64(len(f.Payload))
		k.consumed(f)
	}
}
