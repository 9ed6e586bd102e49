package serve

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// as runs f with the rights of the code, or with the guest's own. Linux keeps
// file-system ids per thread, so f must do its opening on this goroutine.
func as(code bool, f func() error) error {
	if !code {
		return f()
	}
	runtime.LockOSThread()
	if err := become(guest.CodeUID); err != nil {
		return err // the thread stays locked and dies with its goroutine
	}
	err := f()
	if back := become(0); back != nil {
		return back
	}
	runtime.UnlockOSThread()
	return err
}

// become sets the file-system ids of this thread. Leaving uid 0 takes the
// capabilities that override file permissions, coming back returns them.
func become(id int) error {
	if noFileIDs() {
		return becomeEffective(id)
	}
	// Neither call reports failure; the second of each pair asks.
	_ = unix.Setfsgid(id)
	_ = unix.Setfsuid(id)
	uid, _ := unix.SetfsuidRetUid(-1)
	gid, _ := unix.SetfsgidRetGid(-1)
	if uid != id || gid != id {
		return fmt.Errorf("file-system ids are %d:%d, not %d", uid, gid, id)
	}
	// A change of ids resets this to fs.suid_dumpable, which may be unsafe.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// noFileIDs is true on a kernel (gVisor) without file-system ids.
var noFileIDs = sync.OnceValue(func() bool {
	_, err := unix.SetfsuidRetUid(-1)
	return errors.Is(err, unix.ENOSYS)
})

// becomeEffective sets the effective ids of this thread instead. The real and saved ones stay 0, so that code can neither
// signal nor trace the thread meanwhile.
func becomeEffective(id int) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(id), keep); errno != 0 {
		return fmt.Errorf("effective group %d: %w", id, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(id), keep); errno != 0 {
		return fmt.Errorf("effective user %d: %w", id, errno)
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// place is a path and the way to reach it.
type place struct {
	path   string
	strict bool // no symbolic link anywhere
}

// placeOf checks a path from the host. Where links are refused the path is made
// plain first, which is exact only without links.
func placeOf(f *guest.FileSpec) (place, error) {
	p := string(f.Path)
	if p == "" || strings.IndexByte(p, 0) >= 0 {
		return place{}, unix.EINVAL
	}
	if p[0] != '/' {
		p = guest.Home + "/" + p
	}
	strict := f.NoSymlinks || !f.AsCode
	if strict {
		p = path.Clean(p)
	}
	return place{p, strict}, nil
}

// resolve is how the kernel walks to the place. Threat T18: magic links, such
// as /proc/self/root, are refused to everybody.
func (p place) resolve() uint64 {
	if p.strict {
		return unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS
	}
	return unix.RESOLVE_NO_MAGICLINKS
}

// open opens the place.
func (p place) open(flags int) (int, error) {
	return noProc(openat2(unix.AT_FDCWD, p.path, flags, 0, p.resolve()))
}

// noProc closes what turns out to lie in procfs. Threat T18: whoever opens
// /proc/self there is the guest, to which the kernel shows its own memory map
// and environment whatever its file-system ids, and a link of the code's can
// lead there.
func noProc(fd int, err error) (int, error) {
	if err != nil {
		return -1, err
	}
	var fs unix.Statfs_t
	if err = unix.Fstatfs(fd, &fs); err == nil && fs.Type == unix.PROC_SUPER_MAGIC {
		err = unix.EACCES
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// parent opens the folder that holds the place and returns the last name in it.
func (p place) parent() (int, string, error) {
	dir, name := path.Split(strings.TrimRight(p.path, "/"))
	if name == "" || name == "." || name == ".." {
		return -1, "", unix.EINVAL
	}
	fd, err := noProc(openat2(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0, p.resolve()))
	return fd, name, err
}

func openat2(dir int, name string, flags int, mode uint32, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		// EAGAIN: a rename raced with the walk.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// entryOf describes what stat found.
func entryOf(name string, st *unix.Stat_t) *guest.Entry {
	e := &guest.Entry{
		Path: []byte(name), Size: st.Size, Blocks: st.Blocks * 512,
		Mode: st.Mode & 0o7777, ModTime: st.Mtim.Nano(), Type: guest.TypeOther,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = guest.TypeFile
	case unix.S_IFDIR:
		e.Type = guest.TypeDir
	case unix.S_IFLNK:
		e.Type = guest.TypeSymlink
	}
	return e
}
