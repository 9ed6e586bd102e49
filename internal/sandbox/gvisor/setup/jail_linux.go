package setup

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// jailSize bounds what runsc may write into its own root: state files and sockets.
var jailSize = walls.Tmpfs{Bytes: 4 << 20, Inodes: 256}

// wholeProc is a /proc that nothing covers: the kernel gives runsc's processes one of their own only while they see such a
// one somewhere.
const wholeProc = "/whole-proc"

// folders of the jail. /tmp is where runsc builds the empty root of its sandbox process.
var folders = []string{
	"/proc", wholeProc, "/dev", "/tmp", Guest, RootFS, Disk + "workspace", Disk + "tmp", Disk + "files", State, Bundle, Image, NewImage,
}

// build makes the file tree of the jail and the root of this process. Nothing of the host's tree stays reachable.
func build(j Jail, fds []int) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The kernel gives a new /proc only while a fully visible one is mounted, hence before the old root goes.
	proc, err := walls.NewMount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("a new /proc is refused, which happens where the host's own /proc is masked "+
			"(run the outer container with unmasked paths): %w", err)
	}
	root, err := walls.NewTmpfs(jailSize, "0755", 0)
	if err != nil {
		return err
	}
	if err := walls.Pivot(root); err != nil {
		return err
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make jail: %w", err)
		}
	}
	if err := os.WriteFile(Runsc, nil, 0o755); err != nil {
		return fmt.Errorf("make jail: %w", err)
	}
	if err := mountProc(proc, j.Memory); err != nil {
		return err
	}
	if err := attachAll(j.Mounts, fds); err != nil {
		return err
	}
	if err := mountPoint(); err != nil {
		return err
	}
	if j.Scratch != nil {
		if err := walls.MountScratch(*j.Scratch, Disk); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path.Join(Bundle, "config.json"), j.Bundle, 0o444); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// mountProc covers what the sandbox shall not know: runsc tells the sentry how much memory there is from /proc/meminfo.
func mountProc(proc int, memory int64) error {
	covered, err := unix.OpenTree(proc, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone /proc: %w", err)
	}
	if err := errors.Join(walls.Attach(proc, wholeProc), walls.Attach(covered, "/proc")); err != nil {
		return err
	}
	const file = "/meminfo"
	if err := os.WriteFile(file, fmt.Appendf(nil, "MemTotal: %d kB\n", memory>>10), 0o444); err != nil {
		return fmt.Errorf("make jail: %w", err)
	}
	if err := unix.Mount(file, "/proc/meminfo", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover /proc/meminfo: %w", err)
	}
	return nil
}

// mountPoint makes a place for the guest program in the root file system, which has none: the gofer mounts it there. What
// code sees at /dev is the sentry's own.
func mountPoint() error {
	dev, err := walls.NewTmpfs(walls.Tmpfs{Bytes: 4096, Inodes: 4}, "0755", 0)
	if err != nil {
		return err
	}
	if err := walls.Attach(dev, RootFS+"/dev"); err != nil {
		return err
	}
	return os.Mkdir(RootFS+GuestFolder, 0o755)
}

func attachAll(targets []string, fds []int) error {
	if len(targets) != len(fds) {
		return fmt.Errorf("got %d mounts, want %d", len(fds), len(targets))
	}
	for i, fd := range fds {
		if err := walls.Attach(fd, targets[i]); err != nil {
			return err
		}
	}
	return nil
}
