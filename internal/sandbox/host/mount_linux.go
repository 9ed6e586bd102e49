package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func probeIDMap(ctx context.Context, o Options) Check {
	dir := existingParent(o.RootFS)
	if err := tryIDMap(ctx, dir); err != nil {
		return fail(fmt.Sprintf("%s: %v", dir, err),
			"the root file system cannot be shown to a sandbox under the sandbox's own ids",
			"put the root file systems on ext4, xfs or btrfs: airlock serve --data /path/on/ext4")
	}
	return ok("works below " + dir)
}

// tryIDMap maps a detached copy of the mount at dir through the user
// namespace of a short-lived child. Nothing is attached to the host's tree.
func tryIDMap(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "/bin/cat")
	cmd.SysProcAttr = namespaceAttr()
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	// cat ends at the end of its input; its exit says nothing here.
	defer func() { _ = hold.Close(); _ = cmd.Wait() }()
	userns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer userns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY,
		Userns_fd: uint64(userns.Fd()),
	})
	if err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

// probeProc mounts a fresh /proc in a new user and pid namespace. The kernel
// refuses that where parts of the outer /proc are covered, as in Docker.
func probeProc(ctx context.Context, _ Options) Check {
	const means = "a sandbox cannot have a /proc of its own, so none is made"
	const remedy = "docker run --security-opt systempaths=unconfined --security-opt apparmor=unconfined --security-opt seccomp=unconfined --privileged"
	mount, err := exec.LookPath("mount")
	if err != nil {
		if covered := coveredProc(); len(covered) > 0 {
			return fail("covered: "+strings.Join(covered, " "), means, remedy)
		}
		return ok("not covered (the mount command is missing, so it was not tried)")
	}
	out, err := inNamespaces(ctx, mount, "-n", "-t", "proc", "proc", "/proc")
	if err == nil {
		return ok("a fresh /proc can be mounted in a sandbox")
	}
	found := strings.TrimSpace(string(out))
	if found == "" {
		found = err.Error()
	}
	if covered := coveredProc(); len(covered) > 0 {
		found += "; covered: " + strings.Join(covered, " ")
		return fail(found, means, remedy)
	}
	return fail(found, means, "see the check user namespaces")
}

func coveredProc() []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var covered []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], "/proc/") && fields[4] != "/proc/sys/fs/binfmt_misc" {
			covered = append(covered, fields[4])
		}
	}
	return covered
}

func probeLoop(context.Context, Options) Check {
	const means = "workspaces are disk images on loop devices; without one a disk limit cannot be kept"
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		remedy := "modprobe loop"
		if errors.Is(err, os.ErrPermission) {
			remedy = "run as root; inside Docker: docker run --privileged -v /dev:/dev"
		}
		return fail(err.Error(), means, remedy)
	}
	defer control.Close()
	free, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return fail("no free loop device: "+err.Error(), means, "modprobe -r loop; modprobe loop max_loop=0")
	}
	device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", free), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err.Error(), means, "mount -t devtmpfs none /dev, or inside Docker: docker run --privileged -v /dev:/dev")
	}
	return ok(fmt.Sprintf("%s is free, more are made when needed", device.Name())).closing(device)
}

func (c Check) closing(f *os.File) Check {
	if err := f.Close(); err != nil {
		return warn(c.Found+": "+err.Error(), c.Means, c.Remedy)
	}
	return c
}

// leaseDir is where every airlock process of this machine leases id ranges.
const leaseDir = "/run/airlock"

func probeLeases(context.Context, Options) Check {
	dir := existingParent(leaseDir)
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fail(dir+": "+err.Error(), "two servers could give one id range to two sandboxes",
			"mkdir -p "+leaseDir+" as root, or run as root")
	}
	return ok("leased below " + leaseDir)
}

// existingParent is path, or the nearest folder above it that exists.
func existingParent(path string) string {
	for path != "" && path != "/" && path != "." {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
	return "/"
}
