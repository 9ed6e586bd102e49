package setup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// The identity of the code inside; the guest keeps 0.
const codeID = 1000

// What a fresh /proc shows of the host. Files are covered by /dev/null, folders by an empty read-only tmpfs.
var (
	maskedFiles = []string{
		"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/kallsyms", "/proc/timer_list",
		"/proc/sched_debug", "/proc/latency_stats", "/proc/interrupts", "/proc/cmdline", "/proc/sysrq-trigger",
	}
	maskedFolders   = []string{"/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/bus", "/proc/irq", "/proc/driver"} // every kernel has the first
	readOnlyFolders = []string{"/proc/sys"}
)

// mountAll builds the file tree from detached mounts and makes it the root. fds[0] is the root file system.
func mountAll(c Config, fds []int) error {
	if len(fds) == 0 {
		return errors.New("no root file system")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The kernel gives a new /proc only while a fully visible one is mounted, hence before the old root goes.
	proc, err := NewMount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("a new /proc is refused, which happens where the host's own /proc is masked "+
			"(run the outer container with unmasked paths): %w", err)
	}
	if err := Pivot(fds[0]); err != nil {
		return err
	}
	if err := Attach(proc, "/proc"); err != nil {
		return err
	}
	for i, fd := range fds[1:] {
		if err := Attach(fd, c.Mounts[i+1]); err != nil {
			return err
		}
	}
	if err := mountDev(c.Shm); err != nil {
		return err
	}
	if c.Scratch != nil {
		if err := MountScratch(*c.Scratch, "/"); err != nil {
			return err
		}
	}
	return maskProc()
}

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

// mountDev completes the /dev that came from outside: terminals and shared memory belong to this user namespace.
func mountDev(shm Tmpfs) error {
	pts, err := NewMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		"mode", "0620", "ptmxmode", "0666", "max", "64")
	if err != nil {
		return err
	}
	if err := Attach(pts, "/dev/pts"); err != nil {
		return err
	}
	fd, err := NewTmpfs(shm, "1777", 0)
	if err != nil {
		return err
	}
	return Attach(fd, "/dev/shm")
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
		if err := bind(last+"/"+name, base+name); err != nil {
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

func maskProc() error {
	for _, path := range maskedFiles {
		if err := cover("/dev/null", path); err != nil {
			return err
		}
	}
	empty, err := NewTmpfs(Tmpfs{Bytes: 4096, Inodes: 2}, "0555", unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	// It is cloned from where it hangs: before Linux 6.15 a mount that hangs nowhere cannot be.
	if err := Attach(empty, maskedFolders[0]); err != nil {
		return err
	}
	for _, path := range maskedFolders[1:] {
		if err := cover(maskedFolders[0], path); err != nil {
			return err
		}
	}
	for _, path := range readOnlyFolders {
		if err := readOnly(path); err != nil {
			return err
		}
	}
	return nil
}

// cover hides path behind source; what this kernel does not have needs no cover.
func cover(source, path string) error {
	if err := bind(source, path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// bind shows source at path too.
func bind(source, path string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone %s: %w", source, err)
	}
	return Attach(fd, path)
}

func readOnly(path string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clone %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
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
