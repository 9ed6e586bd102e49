package setup

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// Run turns the calling process, which must be the first one of fresh namespaces, into a confined one. It must run on the
// main thread, locked, before the program has made any file descriptor of its own. The failure has been told to the other
// end of fd when it returns one; the process must then end.
//
// The process starts without an id of its namespace, which is mapped by the time the setup arrives, and with the
// capabilities it needs.
//
// The steps are in the only order that works: mounts need capabilities and /proc of the old root, pivot_root needs the
// mounts, limits and capabilities come after the last privileged step, the system call filter last because it refuses
// the steps before it.
func Run(fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := walls.Socket(fd)
	err := confine(s)
	if werr := walls.WriteStatus(s, err); err == nil {
		err = werr
	}
	return err
}

func confine(s walls.Socket) error {
	// Whatever the server leaked by mistake ends here, before anything else runs.
	if err := unix.CloseRange(uint(s)+1, ^uint(0), 0); err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	// Until this is 0 code of the same user namespace could read our memory; there is none yet.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set dumpable: %w", err)
	}
	var c Config
	fds, err := s.Receive(&c)
	if err == nil && len(fds) != len(c.Mounts) {
		err = fmt.Errorf("got %d mounts, want %d", len(fds), len(c.Mounts))
	}
	if err != nil {
		return err
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"cores", walls.KeepCores},
		{"ids", walls.BecomeRoot},
		{"mounts", func() error { return mountAll(c, fds) }},
		{"host name", func() error { return unix.Sethostname([]byte(c.Hostname)) }},
		{"loopback", loopbackUp},
		{"limits", func() error { return walls.SetRlimits(c.Rlimits) }},
		{"capabilities", walls.DropCapabilities},
		{"seccomp", func() error { return walls.LoadFilter(c.Seccomp) }},
	}
	for _, step := range steps {
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// loopbackUp makes 127.0.0.1 and ::1 work; there is no other device.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }() // nothing was sent over it
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}
