package spawn

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// Mounts are detached: they hang in no tree of the host, and vanish with the last descriptor when the server dies.
type Mounts struct {
	// Targets are the paths inside, FDs the mounts, in the same order.
	Targets []string
	FDs     []int
}

// Add notes a mount, or says for which path it failed.
func (m *Mounts) Add(target string, fd int, err error) error {
	if err != nil {
		return fmt.Errorf("mount for %s: %w", target, err)
	}
	m.Targets = append(m.Targets, target)
	m.FDs = append(m.FDs, fd)
	return nil
}

// AddFiles adds the root file system of a spec at root and the folders of its workspace below base, owned by the ids of
// userns.
func (m *Mounts) AddFiles(spec sandbox.Spec, root, base string, userns int) error {
	fd, err := Clone(unix.AT_FDCWD, spec.RootFS, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, userns)
	if err := m.Add(root, fd, err); err != nil {
		return err
	}
	if spec.Workspace == nil {
		return nil
	}
	fds, err := spec.Workspace.Folders()
	if err != nil {
		return err
	}
	for n, part := range sandbox.WorkspaceFolders() {
		// All of them are noted first, so that Close finds them.
		m.Targets, m.FDs = append(m.Targets, base+part), append(m.FDs, fds[n])
	}
	for n, fd := range fds {
		if err := Shift(fd, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME, userns); err != nil {
			return fmt.Errorf("id-mapped mount of %s: %w", sandbox.WorkspaceFolders()[n], err)
		}
	}
	return nil
}

// Close lets go of all mounts.
func (m *Mounts) Close() {
	for _, fd := range m.FDs {
		_ = unix.Close(fd) // the child has its own copies or is going to be killed
	}
}

// Clone makes a detached copy of the mount at path. On disk the files keep the ids that the sandbox sees; the mount
// shifts them, so that nothing has to be changed when a workspace meets another id range.
func Clone(dir int, path string, attr uint64, userns int) (int, error) {
	fd, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone %s: %w", path, err)
	}
	if err := Shift(fd, attr, userns); err != nil {
		_ = unix.Close(fd) // the other error counts
		return -1, fmt.Errorf("id-mapped mount of %s (its file system must support that): %w", path, err)
	}
	return fd, nil
}

// Shift gives a detached mount the ids of userns and attributes, and takes it out of any peer group.
func Shift(fd int, attr uint64, userns int) error {
	a := unix.MountAttr{Attr_set: attr | unix.MOUNT_ATTR_IDMAP, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(userns)}
	if attr&unix.MOUNT_ATTR_NOATIME != 0 {
		a.Attr_clr = unix.MOUNT_ATTR__ATIME // the modes exclude each other
	}
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &a)
}

// CloneFile makes a detached mount of one open file, with its own owner.
func CloneFile(f *os.File, attr uint64) (int, error) {
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("clone %s: %w", f.Name(), err)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}); err != nil {
		_ = unix.Close(fd) // the other error counts
		return -1, fmt.Errorf("mount of %s: %w", f.Name(), err)
	}
	return fd, nil
}
