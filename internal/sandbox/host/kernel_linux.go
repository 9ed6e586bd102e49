package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

func probes() []probe {
	return []probe{
		{"kernel", probeKernel},
		{"root", probeRoot},
		{"user namespaces", probeUserNamespaces},
		{"cgroups", probeCgroups},
		{"cgroup.kill", probeCgroupKill},
		{"seccomp", probeSeccomp},
		{"landlock", probeLandlock},
		{"id-mapped mounts", probeIDMap},
		{"proc", probeProc},
		{"loop devices", probeLoop},
		{"id range leases", probeLeases},
		{"kvm", probeKVM},
		{"gvisor", probeGVisor},
		{"memory", probeMemory},
		{"disk", probeDisk},
		{"e2fsprogs", probeE2fsprogs},
		{"mmdebstrap", probeMmdebstrap},
		{"guest", probeGuest},
		{"root file system", probeRootFS},
		{"sandbox self-test", probeSelfTest},
	}
}

// The native driver needs mount_setattr with id maps (5.12), cgroup.kill
// (5.14) and close_range; 5.15 is the first long-term kernel with all.
const minMajor, minMinor = 5, 15

func probeKernel(context.Context, Options) Check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fail(err.Error(), "the kernel does not say what it is", "")
	}
	release := unix.ByteSliceToString(u.Release[:])
	major, minor := kernelVersion(release)
	if major < minMajor || major == minMajor && minor < minMinor {
		return fail("Linux "+release, "id-mapped mounts and cgroup.kill need Linux 5.15",
			"install a newer kernel, for example: apt-get install linux-image-amd64")
	}
	return ok("Linux " + release + " " + unix.ByteSliceToString(u.Machine[:]))
}

func kernelVersion(release string) (major, minor int) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	digits := func(s string) int {
		end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
		if end >= 0 {
			s = s[:end]
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0
		}
		return n
	}
	return digits(parts[0]), digits(parts[1])
}

func probeRoot(context.Context, Options) Check {
	who := fmt.Sprintf("uid %d", os.Geteuid())
	missing, err := sandbox.MissingRights()
	if err != nil {
		return fail(err.Error(), "the kernel does not say what this process may do", "")
	}
	if len(missing) == 0 {
		return ok(who + ", with every capability that sandboxes need")
	}
	remedy := "run it as: sudo airlock serve, or as the user of deploy/airlock.service"
	if os.Geteuid() == 0 {
		remedy = "run airlock outside a container, or start the container with: docker run --privileged --cgroupns=host"
	}
	return fail(who+", without "+strings.Join(missing, ", "), "id ranges, loop devices and cgroups of the native driver need them", remedy)
}

// inNamespaces runs a program in fresh user, mount and pid namespaces, the
// way the driver does, and returns its combined output.
func inNamespaces(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = namespaceAttr()
	return cmd.CombinedOutput()
}

func namespaceAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: probeIDBase, Size: 65536}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: probeIDBase, Size: 65536}},
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{},
		Pdeathsig:                  syscall.SIGKILL,
	}
}

// probeIDBase lies far above every range that is leased to sandboxes.
const probeIDBase = 3 << 30

func probeUserNamespaces(ctx context.Context, _ Options) Check {
	out, err := inNamespaces(ctx, "/bin/true")
	if err == nil {
		return ok("a range of 65,536 ids can be mapped")
	}
	found := strings.TrimSpace(err.Error() + " " + string(out))
	const means = "without a user namespace code in a sandbox would be root of this machine"
	for _, knob := range []struct{ path, bad, remedy string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if readTrim(knob.path) == knob.bad {
			return fail(found, means, knob.remedy)
		}
	}
	return fail(found, means, "run as root; inside Docker: docker run --privileged")
}

func probeSeccomp(context.Context, Options) Check {
	const getActionAvail = 2
	for _, action := range []struct {
		name  string
		value uint32
	}{{"kill_process", 0x80000000}, {"errno", 0x00050000}} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, getActionAvail, 0, uintptr(unsafe.Pointer(&action.value)))
		if errno != 0 {
			return fail("no action "+action.name+": "+errno.Error(),
				"system calls could not be filtered, the kernel would stand open to the code",
				"boot a kernel with CONFIG_SECCOMP_FILTER=y")
		}
	}
	return ok("filters with kill_process and errno")
}

func probeLandlock(context.Context, Options) Check {
	const version = 1
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return warn("not present: "+errno.Error(), "a second lock is missing; namespaces and seccomp hold without it",
			"add landlock to the lsm= line of the kernel command line")
	}
	return ok(fmt.Sprintf("ABI %d", abi))
}

func probeKVM(context.Context, Options) Check {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return ok("no /dev/kvm; neither driver needs it")
	}
	return ok("/dev/kvm exists, which proves nothing: it is used only after a timed self-test of the driver that wants it")
}

func probeSelfTest(ctx context.Context, o Options) Check {
	if o.SelfTest == nil {
		return warn("not run", "nothing was proven about the driver as a whole", "")
	}
	if err := o.SelfTest(ctx); err != nil {
		return fail(err.Error(), "no sandbox can be made on this machine as it is",
			"mend the failed checks above, then run: airlock doctor")
	}
	return ok("a sandbox was made, answered and is gone")
}

func readTrim(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
