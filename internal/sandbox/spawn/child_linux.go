package spawn

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/vfork"
)

// namespaces are all that the kernel offers except time, whose clocks the guest shares with the host on purpose.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// start runs the program behind a descriptor in new namespaces, as the leader of a session, with files as its descriptors
// 0 to 3. It must run on the thread whose end shall be the child's. All files must be close-on-exec and have numbers above
// 3. A full fork would cost a third of the start of a sandbox, and more as the server grows. Nobody can write the child's id
// maps before it executes: it keeps its capabilities over that by the ambient set, which an empty bounding set does not
// touch, and takes its ids when the maps are there.
func start(program int, c Child, files [4]int) (int, error) {
	carried, bounding := c.Caps, uint32(0)
	if c.Inherit {
		bounding = carried
	}
	var s vfork.Steps
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	caps := [2]unix.CapUserData{{Effective: carried, Permitted: carried, Inheritable: carried}}
	s.Call(unix.SYS_SETSID)
	s.Call(unix.SYS_CAPSET, vfork.Pointer(&s, &header), vfork.Pointer(&s, &caps))
	for n := range uintptr(32) {
		if carried>>n&1 != 0 {
			s.Call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, n)
		}
	}
	for n := range capabilities() {
		if bounding>>n&1 == 0 {
			s.Call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, n)
		}
	}
	s.Call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	s.Call(unix.SYS_CHDIR, s.String("/"))
	for n, fd := range files {
		s.Call(unix.SYS_DUP3, uintptr(fd), uintptr(n), 0)
	}
	s.Call(unix.SYS_EXECVEAT, uintptr(program), s.String(""), s.Strings(c.Args), s.Strings(c.Env), unix.AT_EMPTY_PATH)
	pid, err := s.Start(namespaces, c.Cgroup)
	if err != nil {
		return 0, fmt.Errorf("make child: %w", err)
	}
	return pid, nil
}

// capabilities is how many this kernel knows. One that may not be asked counts as knowing more than any: dropping those fails
// then, and no child starts with a bounding set that nobody has seen.
var capabilities = sync.OnceValue(func() uintptr {
	const most = 64
	for n := uintptr(unix.CAP_SETPCAP + 1); n < most; n++ {
		if err := unix.Prctl(unix.PR_CAPBSET_READ, n, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			return n
		}
	}
	return most
})
