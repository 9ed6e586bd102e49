package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CgroupMode says where this host keeps its limits.
type CgroupMode string

// The modes. Hybrid is v1 with a v2 hierarchy beside it, which kills and freezes at once even without controllers.
const (
	CgroupV1     CgroupMode = "v1"
	CgroupHybrid CgroupMode = "hybrid"
	CgroupV2     CgroupMode = "v2"
)

// required are the controllers that a sandbox cannot be without. Pure v1 also needs cpuacct and freezer.
var required = []string{"memory", "pids", "cpu"}

// Cgroups makes the control groups of one Host below the groups in which the server itself runs. It uses plain file
// operations: the libraries for it join every hierarchy of the host, also those without a limit of ours, and each join
// is paid at every start.
type Cgroups struct {
	prefix string
	mode   CgroupMode
	v1     map[string]string // controller -> folder under which groups are made
	v2     string            // the same on the v2 hierarchy; empty on pure v1
	tree   v2Tree            // how settleV2 came to v2; unused unless mode is CgroupV2
	swap   bool              // memory and swap can be limited together
	socket bool              // v1 counts socket buffers apart, and has to be told to
}

// NewCgroups finds the hierarchies. It fails when a limit that sandboxes need cannot be set on this host.
func NewCgroups(host Host) (*Cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	c := &Cgroups{prefix: host.Prefix(), v1: map[string]string{}}
	c.locate(parseCgroupMounts(mounts), parseOwnCgroups(own), host.CgroupParent)
	c.tree.chosen, c.tree.write = host.CgroupParent != "", writeFile
	if err := c.settle(); err != nil {
		return nil, err
	}
	return c, nil
}

// Mode says which kind of hierarchy carries the limits.
func (c *Cgroups) Mode() CgroupMode { return c.mode }

// SwapLimited tells whether memory and swap are limited together.
func (c *Cgroups) SwapLimited() bool { return c.swap }

type cgroupMount struct {
	v2          bool
	controllers []string
	root, point string
}

// parseCgroupMounts reads the cgroup lines of a mountinfo file.
func parseCgroupMounts(mountinfo []byte) []cgroupMount {
	var out []cgroupMount
	for s := bufio.NewScanner(bytes.NewReader(mountinfo)); s.Scan(); {
		left, right, found := strings.Cut(s.Text(), " - ")
		fields, tail := strings.Fields(left), strings.Fields(right)
		if !found || len(fields) < 5 || len(tail) < 3 {
			continue
		}
		m := cgroupMount{root: fields[3], point: fields[4], v2: tail[0] == "cgroup2"}
		if tail[0] == "cgroup" {
			m.controllers = strings.Split(tail[2], ",")
		} else if !m.v2 {
			continue
		}
		out = append(out, m)
	}
	return out
}

// parseOwnCgroups reads a /proc/PID/cgroup file into controller -> path; the v2 path has the key "".
func parseOwnCgroups(file []byte) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(string(file)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			out[name] = parts[2]
		}
	}
	return out
}

func (c *Cgroups) locate(mounts []cgroupMount, own map[string]string, parent string) {
	for _, m := range mounts {
		names := m.controllers
		if m.v2 {
			names = []string{""}
		}
		for _, name := range names {
			path, known := own[name]
			if !known {
				continue
			}
			if m.v2 {
				path = aboveLeaf(path)
			}
			if parent != "" {
				path = parent
			}
			rel, err := filepath.Rel(m.root, path)
			if err != nil || strings.HasPrefix(rel, "..") {
				rel = "." // the mount shows a part of the hierarchy that we are not in: use its top
			}
			dir := filepath.Join(m.point, rel)
			switch {
			case m.v2 && c.v2 == "":
				c.v2, c.tree.top = dir, m.point
			case !m.v2 && c.v1[name] == "":
				c.v1[name] = dir
			}
		}
	}
}

// settle decides the mode and checks that every limit has a place.
func (c *Cgroups) settle() error {
	var missing []string
	for _, name := range required {
		if c.v1[name] == "" {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0 && c.v2 == "":
		c.mode = CgroupV1
		if c.v1["cpuacct"] == "" || c.v1["freezer"] == "" {
			return errors.New("this host has neither a cgroup2 mount nor the v1 controllers cpuacct and freezer")
		}
	case len(missing) == 0:
		c.mode = CgroupHybrid
	case len(missing) == len(required) && c.v2 != "":
		c.mode = CgroupV2
		c.swap = true
		return c.settleV2()
	case c.v2 == "":
		return fmt.Errorf("this host has no cgroup controller for %s: mount cgroup2 on /sys/fs/cgroup", strings.Join(missing, ", "))
	default:
		return fmt.Errorf("cgroup controllers %s are neither all on v1 nor all on v2", strings.Join(missing, ", "))
	}
	_, err := os.Stat(filepath.Join(c.v1["memory"], "memory.memsw.limit_in_bytes"))
	c.swap = err == nil
	_, err = os.Stat(filepath.Join(c.v1["memory"], socketLimit))
	c.socket = err == nil
	if !c.swap && swapInUse() {
		return errors.New("swap is on but not accounted to cgroups, so memory could not be limited: boot with swapaccount=1 or run swapoff -a")
	}
	return nil
}

// socketLimit is a file of v1: the buffers of all sockets, which no other limit there counts. v2 counts them as memory.
const socketLimit = "memory.kmem.tcp.limit_in_bytes"

func swapInUse() bool {
	var info unix.Sysinfo_t
	return unix.Sysinfo(&info) != nil || info.Totalswap > 0
}

// writeFile writes a control file in one call, which is what the kernel's parsers want, and never creates one.
func writeFile(dir, name, value string) error {
	path := filepath.Join(dir, name)
	var fd int
	err := uninterrupted(func() (err error) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	err = uninterrupted(func() error {
		_, err := unix.Write(fd, []byte(value))
		return err
	})
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return &os.PathError{Op: "write " + value + " to", Path: path, Err: err}
	}
	return nil
}

// uninterrupted makes a system call again that a signal has ended, one of the Go scheduler's for example. The kernel does not
// go on by itself with a memory limit, for which it may have to reclaim first.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
