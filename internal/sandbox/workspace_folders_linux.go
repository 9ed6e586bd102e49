package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Folders makes a detached mount of each of WorkspaceFolders, in that order. The caller closes them. The workspace must
// be attached.
func (w *Workspace) Folders() ([]int, error) {
	mount := w.Mount()
	if mount == nil {
		return nil, fmt.Errorf("workspace %s is not attached", w.ID)
	}
	fds, err := cloneFolders(int(mount.Fd()))
	if errors.Is(err, unix.EINVAL) {
		// Before Linux 6.15 only what hangs in the caller's own tree can be cloned.
		fds, err = foldersOfTree(mount)
	}
	if err != nil {
		return nil, fmt.Errorf("folders of workspace %s: %w", w.ID, err)
	}
	return fds, nil
}

// cloneFolders clones the folders below the one open at dir.
func cloneFolders(dir int) ([]int, error) {
	var fds []int
	for _, name := range WorkspaceFolders() {
		fd, err := unix.OpenTree(dir, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			for _, fd := range fds {
				_ = unix.Close(fd) // the other error counts
			}
			return nil, fmt.Errorf("clone %s: %w", name, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// foldersOfTree does it in a tree that one thread has for a moment and nobody else sees: the thread ends with it.
func foldersOfTree(mount *os.File) ([]int, error) {
	type answer struct {
		fds []int
		err error
	}
	done := make(chan answer)
	go func() {
		// Never unlocked: the thread has another tree from here on and ends with the goroutine.
		runtime.LockOSThread()
		fds, err := inOwnTree(mount)
		done <- answer{fds, err}
	}()
	a := <-done
	return a.fds, a.err
}

// stage is a folder of every host, covered for a moment in a tree of our own.
const stage = "/proc"

func inOwnTree(mount *os.File) ([]int, error) {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("a tree of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	// A second mount of the same file system: the first one stays out of every tree.
	var st unix.Stat_t
	if err := unix.Fstat(int(mount.Fd()), &st); err != nil {
		return nil, err
	}
	again, err := mountExt4("/dev/loop" + strconv.FormatUint(uint64(unix.Minor(st.Dev)), 10))
	if err != nil {
		return nil, err
	}
	defer again.Close()
	if err := unix.MoveMount(int(again.Fd()), "", unix.AT_FDCWD, stage, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("hang the file system into a tree: %w", err)
	}
	fds, err := cloneFolders(int(again.Fd()))
	return fds, errors.Join(err, unix.Unmount(stage, unix.MNT_DETACH))
}
