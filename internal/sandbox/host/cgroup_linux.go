package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Cgroups says where the hierarchies of this machine are mounted.
type Cgroups struct {
	// Unified is the mount point of the v2 hierarchy, empty without one.
	Unified string
	// V1 maps a controller to its own hierarchy.
	V1 map[string]string
	// Controllers are those the v2 root offers.
	Controllers []string
}

// Mode is v1, hybrid, v2 or none.
func (c Cgroups) Mode() string {
	switch {
	case len(c.V1) > 0 && c.Unified != "":
		return "hybrid"
	case len(c.V1) > 0:
		return "v1"
	case c.Unified != "":
		return "v2"
	}
	return "none"
}

// needed are the controllers without which a limit would not hold.
var needed = []string{"memory", "pids", "cpu"}

// FindCgroups reads the mount table of this process.
func FindCgroups() (Cgroups, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Cgroups{}, err
	}
	c := parseCgroups(string(b))
	if c.Unified != "" {
		c.Controllers = strings.Fields(readTrim(filepath.Join(c.Unified, "cgroup.controllers")))
	}
	return c, nil
}

func parseCgroups(mountinfo string) Cgroups {
	c := Cgroups{V1: map[string]string{}}
	for line := range strings.Lines(mountinfo) {
		left, right, found := strings.Cut(line, " - ")
		mount, super := strings.Fields(left), strings.Fields(right)
		if !found || len(mount) < 5 || len(super) < 3 {
			continue
		}
		switch super[0] {
		case "cgroup2":
			c.Unified = mount[4]
		case "cgroup":
			for option := range strings.SplitSeq(super[2], ",") {
				if slices.Contains([]string{"memory", "pids", "cpu", "cpuacct", "freezer", "blkio", "cpuset", "devices"}, option) {
					c.V1[option] = mount[4]
				}
			}
		}
	}
	return c
}

func probeCgroups(context.Context, Options) Check {
	c, err := FindCgroups()
	if err != nil {
		return fail(err.Error(), "limits cannot be set", "")
	}
	const unsafe = "memory, processes and CPU of a sandbox could not be limited; airlock refuses to run without"
	const remedy = "run airlock outside a container, or start the container with: docker run --privileged --cgroupns=host"
	var missing []string
	for _, name := range needed {
		if !c.usable(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fail(c.Mode()+", without a writable "+strings.Join(missing, ", "), unsafe, remedy)
	}
	return ok(c.Mode() + ", with memory, pids and cpu")
}

// usable tries to make a group, the one proof that counts: read-only mounts
// and missing rights look the same as good ones otherwise.
func (c Cgroups) usable(controller string) bool {
	root, inV1 := c.V1[controller]
	if !inV1 {
		if c.Unified == "" || !slices.Contains(c.Controllers, controller) {
			return false
		}
		return c.tryUnified(tryGroup) == nil
	}
	return tryGroup(filepath.Join(root, ownPath(readTrim(ownCgroups), root, controller))) == nil
}

// tryUnified tries it where the driver would: in the group of this process,
// and at the top, where the driver goes when the own group has others in it.
func (c Cgroups) tryUnified(try func(dir string) error) error {
	err := try(filepath.Join(c.Unified, ownPath(readTrim(ownCgroups), c.Unified, "")))
	if err == nil {
		return nil
	}
	return try(c.Unified)
}

func tryGroup(parent string) error {
	probe := filepath.Join(parent, fmt.Sprintf("airlock-doctor-%d", os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return err
	}
	return os.Remove(probe)
}

// ownCgroups says in which group of each hierarchy this process is.
const ownCgroups = "/proc/self/cgroup"

// ownPath finds in the text of ownCgroups the group of this process in the
// hierarchy of controller, which for v2 is "". It is the top one when it cannot
// be told, as inside a container that sees a part of the hierarchy.
func ownPath(own, root, controller string) string {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !slices.Contains(strings.Split(parts[1], ","), controller) {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, parts[2])); err == nil {
			return parts[2]
		}
	}
	return "/"
}

func probeCgroupKill(context.Context, Options) Check {
	c, err := FindCgroups()
	if err != nil {
		return fail(err.Error(), "", "")
	}
	const weaker = "a sandbox is ended through its first process instead, which is a little slower"
	const remedy = "mount -t cgroup2 none /sys/fs/cgroup/unified"
	if c.Unified == "" {
		return warn("no v2 hierarchy is mounted", weaker, remedy)
	}
	switch err := c.tryUnified(tryKill); {
	case errors.Is(err, errNoKill):
		return warn(err.Error(), weaker, "install Linux 5.14 or newer")
	case err != nil:
		return warn("no group can be made below "+c.Unified+": "+err.Error(), weaker, "")
	}
	return ok("cgroup.kill and cgroup.freeze below " + c.Unified)
}

var errNoKill = errors.New("the groups have no cgroup.kill")

func tryKill(parent string) error {
	probe := filepath.Join(parent, fmt.Sprintf("airlock-doctor-kill-%d", os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return err
	}
	// Removal of an empty group that nobody joined does not fail.
	defer func() { _ = os.Remove(probe) }()
	if err := unix.Access(filepath.Join(probe, "cgroup.kill"), unix.W_OK); err != nil {
		return errNoKill
	}
	return nil
}
