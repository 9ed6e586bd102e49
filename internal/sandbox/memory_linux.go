package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory reads how much memory the sandboxes of a host can have. The zero value looks at the machine alone.
type Memory struct {
	group string // the group below which sandboxes are made; "" = there is no limit above them
	v2    bool
	proc  string // replaced by tests; "" = /proc
}

// NewMemory finds the groups whose limits hold for the sandboxes of a host, too.
func NewMemory(host Host) (*Memory, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	c := &Cgroups{v1: map[string]string{}}
	c.locate(parseCgroupMounts(mounts), parseOwnCgroups(own), host.CgroupParent)
	if dir := c.v1["memory"]; dir != "" {
		return &Memory{group: dir}, nil
	}
	return &Memory{group: c.v2, v2: true}, nil
}

// Read gives the memory of the machine, or that of the tightest limited group above the sandboxes, and what of it is free
// or is given back at once when it is needed, in bytes.
func (m *Memory) Read() (total, available int64, err error) {
	proc := m.proc
	if proc == "" {
		proc = "/proc"
	}
	b, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return 0, 0, err
	}
	if total, err = memoryLine(b, "MemTotal"); err != nil {
		return 0, 0, err
	}
	if available, err = memoryLine(b, "MemAvailable"); err != nil {
		return 0, 0, err
	}
	for dir := m.group; dir != "" && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		limit, free, err := m.readGroup(dir)
		if errors.Is(err, os.ErrNotExist) {
			break // above the top, or v2 without the controller
		}
		if err != nil {
			return 0, 0, err
		}
		total, available = min(total, limit), min(available, free)
	}
	return total, max(available, 0), nil
}

// readGroup gives the limit of one group and what of it is left.
func (m *Memory) readGroup(dir string) (limit, free int64, err error) {
	limitFile, usage, cache := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if m.v2 {
		limitFile, usage, cache = "memory.max", "memory.current", "inactive_file"
	}
	b, err := os.ReadFile(filepath.Join(dir, limitFile))
	if err != nil {
		if m.v2 && errors.Is(err, os.ErrNotExist) && m.isGroup(dir) {
			return math.MaxInt64, math.MaxInt64, nil // the top has no limit
		}
		return 0, 0, err
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return math.MaxInt64, math.MaxInt64, nil
	}
	if limit, err = strconv.ParseInt(text, 10, 64); err != nil {
		return 0, 0, fmt.Errorf("%s/%s: %w", dir, limitFile, err)
	}
	if limit > 1<<60 {
		return math.MaxInt64, math.MaxInt64, nil // v1 has no word for none
	}
	used, err := counter(filepath.Join(dir, usage), "")
	if err != nil {
		return 0, 0, err
	}
	back, err := counter(filepath.Join(dir, "memory.stat"), cache)
	return limit, limit - used + back, err
}

func (m *Memory) isGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil
}

func memoryLine(meminfo []byte, name string) (int64, error) {
	for line := range bytes.Lines(meminfo) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(string(bytes.TrimSpace(rest)), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", name)
}

// Pressure is the share of the last ten seconds in which some work on the machine waited for memory, in percent. A kernel
// that does not measure it gives 0.
func (m *Memory) Pressure() (float64, error) {
	proc := m.proc
	if proc == "" {
		proc = "/proc"
	}
	b, err := os.ReadFile(filepath.Join(proc, "pressure", "memory"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || fields[0] != "some" {
			continue
		}
		value, ok := strings.CutPrefix(fields[1], "avg10=")
		if !ok {
			break
		}
		return strconv.ParseFloat(value, 64)
	}
	return 0, fmt.Errorf("/proc/pressure/memory: unknown form: %.100s", b)
}
