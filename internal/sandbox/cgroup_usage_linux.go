package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CPU is the processor time of all processes of the group so far, in microseconds: of living ones, reaped ones and those
// that nobody waited for. It comes from v2 where that is present, which counts in microseconds, too.
func (g *Cgroup) CPU() (int64, error) {
	if g.v2 != "" {
		return counter(filepath.Join(g.v2, "cpu.stat"), "usage_usec")
	}
	n, err := counter(filepath.Join(g.dir("cpuacct"), "cpuacct.usage"), "")
	return n / 1000, err
}

// WatchPeak begins to look for the most memory in use; peak, called once, ends that and tells it in bytes. On v1 the mark
// of the group is set back, on v2 from Linux 6.12 on a mark of our own; before that the peak is that of the group's life.
func (g *Cgroup) WatchPeak() (peak func() (int64, error)) {
	if g.owner.mode != CgroupV2 {
		// What cannot be set back shows a peak of before, which is true of the sandbox.
		_ = writeFile(g.dir("memory"), "memory.max_usage_in_bytes", "0")
		return func() (int64, error) { return counter(filepath.Join(g.dir("memory"), "memory.max_usage_in_bytes"), "") }
	}
	path := filepath.Join(g.v2, "memory.peak")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return func() (int64, error) { return counter(path, "") }
	}
	_, _ = f.WriteString("reset") // refused before 6.12
	return func() (int64, error) {
		defer f.Close() // read only, so far as data goes
		var b [32]byte
		n, err := f.ReadAt(b[:], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		return strconv.ParseInt(strings.TrimSpace(string(b[:n])), 10, 64)
	}
}

// Usage reads the counters.
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
	cpu, err := g.CPU()
	if u.CPU = cpu; err != nil {
		errs = append(errs, err)
	}
	if g.owner.mode == CgroupV2 {
		read(&u.Throttled, g.v2, "cpu.stat", "throttled_usec")
		read(&u.Memory, g.v2, "memory.current", "")
		read(&u.Reclaimable, g.v2, "memory.stat", "inactive_file")
		read(&u.MemoryPeak, g.v2, "memory.peak", "")
		read(&u.OOMKills, g.v2, "memory.events", "oom_kill")
		read(&u.Processes, g.v2, "pids.current", "")
		read(&u.ProcessesMax, g.v2, "pids.events", "max")
		return u, errors.Join(errs...)
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
