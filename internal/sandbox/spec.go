package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Spec is everything a driver must know to make one sandbox.
type Spec struct {
	// ID is unique among the living sandboxes of one Host; letters, digits, '-' and '_', at most 64. It names cgroups.
	ID string
	// RootFS is the host folder that becomes "/" (read-only). It needs the mount points /proc /dev /tmp /workspace /files
	// /skills /mnt/session.
	RootFS string
	// Workspace must be attached. If nil, a tmpfs of Limits.DiskBytes stands in, which is charged to the memory limit.
	Workspace *Workspace
	Limits    Limits
	// Env is added to the environment of every command inside.
	Env map[string]string
	// Hostname is seen inside; if empty, "airlock".
	Hostname string
	// Preload names the Python modules that the fork server inside imports, in this order; missing ones are skipped. If
	// empty, or with less memory than ForkServerMemory, there is no fork server and every interpreter starts cold:
	// PreloadInForce is what holds.
	Preload []string
}

// ForkServerMemory is the smallest memory limit, in bytes, under which a fork server runs: beside it there must be room
// for the code.
const ForkServerMemory = 512 << 20

// DefaultPreload is what makes first cells slow and is used by most of them.
func DefaultPreload() []string { return []string{"numpy", "pandas", "matplotlib.pyplot", "openpyxl"} }

// PreloadInForce is Preload, unless the limits leave no room for it.
func (s Spec) PreloadInForce() []string {
	if s.Limits.MemoryBytes < ForkServerMemory {
		return nil
	}
	return s.Preload
}

// Limits are in force before the first instruction of a command. A zero field takes the value of DefaultLimits.
type Limits struct {
	MemoryBytes int64   // memory and swap together, page cache of tmpfs included
	CPUs        float64 // 0.5 = half of one core
	Processes   int     // processes and threads, the guest's own included
	DiskBytes   int64   // workspace, /tmp and /files together
	Inodes      int64
	FileBytes   int64 // one file
	OpenFiles   int   // per process
	Wall        time.Duration
	OutputBytes int64 // per command and stream, kept
}

// DefaultLimits are the limits of a container for which nothing else is set.
func DefaultLimits() Limits {
	return Limits{
		MemoryBytes: 2 << 30, CPUs: 1, Processes: 256,
		DiskBytes: 5 << 30, Inodes: 200_000, FileBytes: 2 << 30, OpenFiles: 4096,
		Wall: 300 * time.Second, OutputBytes: 1 << 20,
	}
}

// WithDefaults fills the zero fields.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	l.MemoryBytes = cmp.Or(l.MemoryBytes, d.MemoryBytes)
	l.CPUs = cmp.Or(l.CPUs, d.CPUs)
	l.Processes = cmp.Or(l.Processes, d.Processes)
	l.DiskBytes = cmp.Or(l.DiskBytes, d.DiskBytes)
	l.Inodes = cmp.Or(l.Inodes, d.Inodes)
	l.FileBytes = cmp.Or(l.FileBytes, d.FileBytes)
	l.OpenFiles = cmp.Or(l.OpenFiles, d.OpenFiles)
	l.Wall = cmp.Or(l.Wall, d.Wall)
	l.OutputBytes = cmp.Or(l.OutputBytes, d.OutputBytes)
	return l
}

// The smallest values under which a guest still starts; less is a mistake in the settings, not a wish.
const (
	minMemory    = 32 << 20
	minProcesses = 16
	minDisk      = 4 << 20
	minInodes    = 64
	minOpenFiles = 32
)

// Validate refuses limits under which no sandbox can run; no field may be unlimited.
func (l Limits) Validate() error {
	switch {
	case l.MemoryBytes < minMemory:
		return fmt.Errorf("memory limit %d is below %d bytes", l.MemoryBytes, int64(minMemory))
	case l.CPUs < 0.01 || l.CPUs > 1024:
		return fmt.Errorf("cpu limit %g is not between 0.01 and 1024", l.CPUs)
	case l.Processes < minProcesses:
		return fmt.Errorf("process limit %d is below %d", l.Processes, minProcesses)
	case l.DiskBytes < minDisk:
		return fmt.Errorf("disk limit %d is below %d bytes", l.DiskBytes, int64(minDisk))
	case l.Inodes < minInodes:
		return fmt.Errorf("inode limit %d is below %d", l.Inodes, int64(minInodes))
	case l.FileBytes <= 0:
		return errors.New("file size limit is not positive")
	case l.OpenFiles < minOpenFiles:
		return fmt.Errorf("open file limit %d is below %d", l.OpenFiles, minOpenFiles)
	case l.Wall <= 0:
		return errors.New("time limit is not positive")
	case l.OutputBytes <= 0:
		return errors.New("output limit is not positive")
	}
	return nil
}

// Validate refuses what a driver cannot or must not build.
func (s Spec) Validate() error {
	if err := ValidID(s.ID); err != nil {
		return err
	}
	if !filepath.IsAbs(s.RootFS) {
		return fmt.Errorf("sandbox %s: root file system %q is not an absolute path", s.ID, s.RootFS)
	}
	if len(s.Hostname) > 63 {
		return fmt.Errorf("sandbox %s: host name is longer than 63 bytes", s.ID)
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return fmt.Errorf("sandbox %s: environment variable %q is malformed", s.ID, k)
		}
	}
	if err := s.Limits.Validate(); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.ID, err)
	}
	if err := ValidPreload(s.Preload); err != nil {
		return fmt.Errorf("sandbox %s: %w", s.ID, err)
	}
	return nil
}

// ValidPreload refuses what is no list of Python modules.
func ValidPreload(modules []string) error {
	if len(modules) > 64 {
		return fmt.Errorf("%d modules to preload are more than 64", len(modules))
	}
	for _, m := range modules {
		if !moduleName.MatchString(m) {
			return fmt.Errorf("preload %q is not the name of a Python module", m)
		}
	}
	return nil
}

var moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// ValidID accepts what may become part of a cgroup or file name.
func ValidID(id string) error {
	if id == "" || len(id) > 64 {
		return fmt.Errorf("sandbox id %q is empty or longer than 64 bytes", id)
	}
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
		default:
			return fmt.Errorf("sandbox id %q has a character that is not a letter, digit, '-' or '_'", id)
		}
	}
	return nil
}
