package walls

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// The identity of the code inside; the guest keeps 0.
const codeID = 1000

// Pivot makes the mount behind fd the root of the process and lets the old one go.
func Pivot(fd int) error {
	if err := move(fd, "/"); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	if err := unix.Fchdir(fd); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	// "." is now the old root, stacked over the new one.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	return unix.Close(fd)
}

// MountScratch gives a sandbox without a workspace the same folders on a tmpfs, mounted below base, which ends in "/".
func MountScratch(size Tmpfs, base string) error {
	fd, err := NewTmpfs(size, "0755", 0)
	if err != nil {
		return err
	}
	folders := []struct {
		name string
		mode uint32
		id   int
	}{
		{"workspace", 0o755, codeID},
		{"tmp", 0o1777, 0},
		{"files", 0o755, 0},
		{"files/input", 0o755, 0},
		{"files/output", 0o755, codeID},
	}
	for _, f := range folders {
		if err := unix.Mkdirat(fd, f.name, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", f.name, err)
		}
		if err := unix.Fchmodat(fd, f.name, f.mode, 0); err != nil {
			return fmt.Errorf("mode of %s: %w", f.name, err)
		}
		if err := unix.Fchownat(fd, f.name, f.id, f.id, 0); err != nil {
			return fmt.Errorf("own %s: %w", f.name, err)
		}
	}
	return hangFolders(fd, base)
}

// hangFolders mounts the folders of a file system at those of the same name below base. Before Linux 6.15 only what hangs
// in the tree can be cloned, so the file system hangs at one of them meanwhile.
func hangFolders(fd int, base string) error {
	last := base + "workspace"
	if err := Attach(fd, last); err != nil {
		return err
	}
	for _, name := range []string{"tmp", "files"} {
		if err := Bind(last+"/"+name, base+name); err != nil {
			return err
		}
	}
	own, err := unix.OpenTree(unix.AT_FDCWD, last+"/workspace", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone %s: %w", last, err)
	}
	if err := unix.Unmount(last, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("take the file system down: %w", err)
	}
	return Attach(own, last)
}

// Bind shows source at path too.
func Bind(source, path string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone %s: %w", source, err)
	}
	return Attach(fd, path)
}

// NewTmpfs makes a detached tmpfs with both limits.
func NewTmpfs(size Tmpfs, mode string, attr int) (int, error) {
	return NewMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|attr,
		"size", strconv.FormatInt(size.Bytes, 10), "nr_inodes", strconv.FormatInt(size.Inodes, 10), "mode", mode)
}

// NewMount makes a detached mount of a new file system; options are key, value, key, value.
func NewMount(fstype string, attr int, options ...string) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", fstype, err)
	}
	defer func() { _ = unix.Close(fs) }() // a context without data
	for i := 0; i < len(options); i += 2 {
		if err := unix.FsconfigSetString(fs, options[i], options[i+1]); err != nil {
			return -1, fmt.Errorf("set %s of %s: %w", options[i], fstype, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create %s: %w", fstype, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", fstype, err)
	}
	return fd, nil
}

// Attach moves the mount behind fd to path and closes fd, also on failure.
func Attach(fd int, path string) error {
	err := move(fd, path)
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

func move(fd int, path string) error {
	return unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
