package setup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

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
	proc, err := walls.NewMount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("a new /proc is refused, which happens where the host's own /proc is masked "+
			"(run the outer container with unmasked paths): %w", err)
	}
	if err := walls.Pivot(fds[0]); err != nil {
		return err
	}
	if err := walls.Attach(proc, "/proc"); err != nil {
		return err
	}
	for i, fd := range fds[1:] {
		if err := walls.Attach(fd, c.Mounts[i+1]); err != nil {
			return err
		}
	}
	if err := mountDev(c.Shm); err != nil {
		return err
	}
	if c.Scratch != nil {
		if err := walls.MountScratch(*c.Scratch, "/"); err != nil {
			return err
		}
	}
	return maskProc()
}

// mountDev completes the /dev that came from outside: terminals and shared memory belong to this user namespace.
func mountDev(shm walls.Tmpfs) error {
	pts, err := walls.NewMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		"mode", "0620", "ptmxmode", "0666", "max", "64")
	if err != nil {
		return err
	}
	if err := walls.Attach(pts, "/dev/pts"); err != nil {
		return err
	}
	fd, err := walls.NewTmpfs(shm, "1777", 0)
	if err != nil {
		return err
	}
	return walls.Attach(fd, "/dev/shm")
}

func maskProc() error {
	for _, path := range maskedFiles {
		if err := cover("/dev/null", path); err != nil {
			return err
		}
	}
	empty, err := walls.NewTmpfs(walls.Tmpfs{Bytes: 4096, Inodes: 2}, "0555", unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	// It is cloned from where it hangs: before Linux 6.15 a mount that hangs nowhere cannot be.
	if err := walls.Attach(empty, maskedFolders[0]); err != nil {
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
	if err := walls.Bind(source, path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
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
	return walls.Attach(fd, path)
}
