package spawn

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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

// DeviceFolder is a read-only /dev of its own for each sandbox: a shared one would be a place for locks and watches that
// two tenants could both see. Nodes need a privileged maker; a sandbox cannot make its own.
func DeviceFolder(userns int) (int, error) {
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
		err = Shift(fd, unix.MOUNT_ATTR_RDONLY, userns)
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
