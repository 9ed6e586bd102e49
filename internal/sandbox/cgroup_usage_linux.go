package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage reads the counters. CPU comes from v2 where it is present: it has microseconds and no tick rounding.
func (g *Cgroup) Usage() (Usage, error) {
	var u Usage
	var errs []error
	read := func(dst *int64, dir, file, key string) {
		v, err := counter(filepath.Join(dir, file), key)
		if err != nil {
			errs = append(errs, err)
			return
		}
		*dst = v
	}
	if g.owner.mode == CgroupV2 {
		read(&u.CPU, g.v2, "cpu.stat", "usage_usec")
		read(&u.Throttled, g.v2, "cpu.stat", "throttled_usec")
		read(&u.Memory, g.v2, "memory.current", "")
		read(&u.Reclaimable, g.v2, "memory.stat", "inactive_file")
		read(&u.MemoryPeak, g.v2, "memory.peak", "")
		read(&u.OOMKills, g.v2, "memory.events", "oom_kill")
		read(&u.Processes, g.v2, "pids.current", "")
		read(&u.ProcessesMax, g.v2, "pids.events", "max")
		return u, errors.Join(errs...)
	}
	if g.v2 != "" {
		read(&u.CPU, g.v2, "cpu.stat", "usage_usec")
	} else {
		read(&u.CPU, g.dir("cpuacct"), "cpuacct.usage", "")
		u.CPU /= 1000
	}
	read(&u.Throttled, g.dir("cpu"), "cpu.stat", "throttled_time")
	u.Throttled /= 1000
	read(&u.Memory, g.dir("memory"), "memory.usage_in_bytes", "")
	read(&u.Reclaimable, g.dir("memory"), "memory.stat", "total_inactive_file")
	read(&u.MemoryPeak, g.dir("memory"), "memory.max_usage_in_bytes", "")
	read(&u.OOMKills, g.dir("memory"), "memory.oom_control", "oom_kill")
	read(&u.Processes, g.dir("pids"), "pids.current", "")
	read(&u.ProcessesMax, g.dir("pids"), "pids.events", "max")
	return u, errors.Join(errs...)
}

// OOMKills is the one counter that is read around every command; 0 once the group is gone.
func (g *Cgroup) OOMKills() int64 {
	path := filepath.Join(g.v2, "memory.events")
	if g.owner.mode != CgroupV2 {
		path = filepath.Join(g.dir("memory"), "memory.oom_control")
	}
	n, err := counter(path, "oom_kill")
	if err != nil {
		return 0
	}
	return n
}

// counter reads a number, or the number behind key in a file of "key number" lines.
func counter(path, key string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if key == "" {
		return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	for line := range strings.Lines(string(b)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), " "); found && name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, errors.New(path + " has no " + key)
}
