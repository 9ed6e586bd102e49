package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// GuestFolder is where the guest program lies inside. Code may look and may not write.
const GuestFolder = "/dev/airlock"

// Confine takes the last steps inside gVisor, where namespaces, capabilities and most limits are the sentry's affair and
// are in place. It reads its message from descriptor 0 and answers on 1. Whoever writes the number of a thread to the
// result moves it, and what it starts, into the group of the code.
func Confine() (group *os.File, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	group, err = confine(walls.Socket(0))
	if werr := walls.WriteStatus(walls.Socket(1), err); err == nil {
		err = werr
	}
	return group, err
}

func confine(s walls.Socket) (*os.File, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set dumpable: %w", err)
	}
	body, err := walls.ReadFrame(s)
	if err != nil {
		return nil, fmt.Errorf("read setup: %w", err)
	}
	var c Inside
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("decode setup: %w", err)
	}
	group, err := limitProcesses(c.Processes)
	if err != nil {
		return nil, fmt.Errorf("process limit: %w", err)
	}
	err = tidyMounts(c.Shm)
	if err == nil {
		err = emptyBoundingSet()
	}
	if err == nil {
		err = walls.DropCapabilities()
	}
	if err == nil {
		err = walls.LoadFilter(c.Seccomp)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

// limitProcesses makes the group of the code. The sentry knows RLIMIT_NPROC and does not enforce it; its own control
// groups it does. The mount goes again, the open file keeps what it needs of it.
func limitProcesses(most int) (group *os.File, err error) {
	const mounted = "/dev/shm"
	if err := unix.Mount("cgroup", mounted, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "pids"); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(mounted, unix.MNT_DETACH)) }()
	const code = mounted + "/code"
	if err := os.Mkdir(code, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(code+"/pids.max", []byte(strconv.Itoa(most)), 0o600); err != nil {
		return nil, err
	}
	return os.OpenFile(code+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
}

// tidyMounts makes the file tree what it is in the native driver. runsc adds /sys and device nodes that nobody asked for,
// and knows no limit on the files of a tmpfs in its configuration.
func tidyMounts(shm walls.Tmpfs) error {
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount /sys: %w", err)
	}
	for _, node := range []string{"/dev/fuse", "/dev/net", "/dev/char"} {
		if err := os.RemoveAll(node); err != nil {
			return fmt.Errorf("remove device: %w", err)
		}
	}
	data := fmt.Sprintf("size=%d,nr_inodes=%d,mode=1777", shm.Bytes, shm.Inodes)
	if err := unix.Mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	const remount = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID
	for path, flags := range map[string]uintptr{"/": remount | unix.MS_NODEV, "/dev": remount | unix.MS_NOEXEC} {
		if err := unix.Mount("", path, "", flags, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	return nil
}

// emptyBoundingSet makes sure that no program ever gets a capability again. In the native driver this happens before the
// process has a second thread.
func emptyBoundingSet() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil || has == 0 {
			continue // not a capability of this kernel, or not ours
		}
		if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	return nil
}
