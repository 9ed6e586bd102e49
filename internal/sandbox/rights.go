package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Right is a capability that a server needs for its sandboxes, and what for.
type Right struct {
	Name string // as systemd and setpriv call it: CAP_SYS_ADMIN
	For  string
	bit  uint // its number in the kernel
}

// Rights are all that a server must have to make sandboxes. The unit in deploy grants exactly these; root has them.
func Rights() []Right {
	return []Right{
		{"CAP_CHOWN", "the folders of a blank workspace belong to the ids of the code", 0},
		{"CAP_DAC_OVERRIDE", "loop devices, cgroups of v1 and root file systems that root made", 1},
		{"CAP_FOWNER", "the modes of those folders", 3},
		{"CAP_MKNOD", "the device nodes of a sandbox", 27},
		{"CAP_SETGID", "the group ids of a sandbox", 6},
		{"CAP_SETUID", "the user ids of a sandbox", 7},
		{"CAP_SYS_ADMIN", "mounts, loop devices, control groups", 21},
	}
}

// MissingRights names the rights that this process lacks.
func MissingRights() ([]string, error) {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	return lackedRights(string(status))
}

// RequireRights refuses to run a driver without the rights that it needs, and names those missing.
func RequireRights(driver string) error {
	missing, err := MissingRights()
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the %s driver needs %s to set limits and mount workspaces: start the server as root, or as the user of deploy/airlock.service",
			driver, strings.Join(missing, ", "))
	}
	return nil
}

// lackedRights names the rights that the process of a /proc/PID/status file lacks.
func lackedRights(status string) ([]string, error) {
	for line := range strings.Lines(status) {
		hex, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("read capabilities: %w", err)
		}
		var names []string
		for _, r := range Rights() {
			if mask&(1<<r.bit) == 0 {
				names = append(names, r.Name)
			}
		}
		return names, nil
	}
	return nil, errors.New("read capabilities: the kernel shows none")
}
