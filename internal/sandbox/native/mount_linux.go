package native

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// mounts are detached: they hang in no tree of the host, and vanish with the last descriptor when the server dies.
type mounts struct {
	targets []string
	fds     []int
}

func (m *mounts) add(target string, fd int, err error) error {
	if err != nil {
		return fmt.Errorf("mount for %s: %w", target, err)
	}
	m.targets = append(m.targets, target)
	m.fds = append(m.fds, fd)
	return nil
}

func (m *mounts) close() {
	for _, fd := range m.fds {
		_ = unix.Close(fd) // the child has its own copies or is going to be killed
	}
}

// buildMounts makes the mounts that need rights outside the sandbox, owned by the ids of userns. The first is the root.
func buildMounts(spec sandbox.Spec, userns int) (*mounts, error) {
	m := &mounts{}
	fd, err := clone(unix.AT_FDCWD, spec.RootFS, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, userns)
	if err := m.add("/", fd, err); err != nil {
		return m, err
	}
	fd, err = deviceFolder(userns)
	if err := m.add("/dev", fd, err); err != nil {
		return m, err
	}
	if spec.Workspace == nil {
		return m, nil
	}
	disk := int(spec.Workspace.Mount().Fd())
	for _, part := range sandbox.WorkspaceFolders() {
		fd, err := clone(disk, part, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME, userns)
		if err := m.add("/"+part, fd, err); err != nil {
			return m, err
		}
	}
	return m, nil
}

// clone makes a detached copy of the mount at path. On disk the files keep the ids that the sandbox sees; the mount
// shifts them, so that nothing has to be changed when a workspace meets another id range.
func clone(dir int, path string, attr uint64, userns int) (int, error) {
	fd, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone %s: %w", path, err)
	}
	if err := shift(fd, attr, userns); err != nil {
		_ = unix.Close(fd) // the other error counts
		return -1, fmt.Errorf("id-mapped mount of %s (its file system must support that): %w", path, err)
	}
	return fd, nil
}

// shift gives a detached mount the ids of userns and attributes, and takes it out of any peer group.
func shift(fd int, attr uint64, userns int) error {
	a := unix.MountAttr{Attr_set: attr | unix.MOUNT_ATTR_IDMAP, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(userns)}
	if attr&unix.MOUNT_ATTR_NOATIME != 0 {
		a.Attr_clr = unix.MOUNT_ATTR__ATIME // the modes exclude each other
	}
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &a)
}

var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

var deviceLinks = [][2]string{
	{"/proc/self/fd", "fd"},
	{"/proc/self/fd/0", "stdin"},
	{"/proc/self/fd/1", "stdout"},
	{"/proc/self/fd/2", "stderr"},
	{"pts/ptmx", "ptmx"},
}

// deviceFolder is a read-only /dev of its own for each sandbox: a shared one would be a place for locks and watches that
// two tenants could both see. Nodes need a privileged maker; a sandbox cannot make its own.
func deviceFolder(userns int) (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }() // a context without data
	for _, o := range [][2]string{{"size", "4096"}, {"nr_inodes", "32"}, {"mode", "0755"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("set %s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, err
	}
	err = fillDevices(fd)
	if err == nil {
		err = shift(fd, unix.MOUNT_ATTR_RDONLY, userns)
	}
	if errors.Is(err, unix.EINVAL) {
		// Before Linux 6.3 a tmpfs cannot be shifted. The nodes then belong to nobody inside, and work.
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if err != nil {
		_ = unix.Close(fd) // the other error counts
		return -1, err
	}
	return fd, nil
}

func fillDevices(dir int) error {
	for _, d := range devices {
		if err := unix.Mknodat(dir, d.name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make device %s: %w", d.name, err)
		}
		// The server's umask must not decide what code may write to.
		if err := unix.Fchmodat(dir, d.name, 0o666, 0); err != nil {
			return fmt.Errorf("mode of device %s: %w", d.name, err)
		}
	}
	for _, l := range deviceLinks {
		if err := unix.Symlinkat(l[0], dir, l[1]); err != nil {
			return fmt.Errorf("make link %s: %w", l[1], err)
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := unix.Mkdirat(dir, name, 0o755); err != nil {
			return fmt.Errorf("make folder %s: %w", name, err)
		}
	}
	return nil
}
