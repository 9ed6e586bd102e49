package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// guestThreads is what the process limit allows beyond Limits.Processes. Code inside is held at Limits.Processes by
// RLIMIT_NPROC; the rest lets the guest make a thread, without which its runtime aborts, while a fork bomb runs.
const guestThreads = 64

const cpuPeriod = 100_000 // microseconds

// Cgroup is the group of one sandbox, in every hierarchy that matters. All limits are written before New returns.
type Cgroup struct {
	owner *Cgroups
	name  string
	dirs  []string // all folders made, in order
	v2    string
	fd    *os.File // the v2 folder, for clone into it; nil on pure v1
}

// Create makes the groups and sets the limits. Any failure removes what was made and is ErrCapacity: a sandbox without
// its limits must not start.
func (c *Cgroups) Create(ctx context.Context, id string, l Limits) (*Cgroup, error) {
	g := &Cgroup{owner: c, name: c.prefix + id}
	if err := g.make(l); err != nil {
		g.removeAll(ctx)
		return nil, fmt.Errorf("cgroup of sandbox %s: %w: %w", id, ErrCapacity, err)
	}
	return g, nil
}

func (g *Cgroup) make(l Limits) error {
	c := g.owner
	for _, name := range slices.Concat(required, []string{"cpuacct", "freezer"}) {
		base := c.v1[name]
		if base == "" || c.mode == CgroupV2 || (c.v2 != "" && !slices.Contains(required, name)) {
			continue // the v2 hierarchy counts and freezes better
		}
		dir := filepath.Join(base, g.name)
		if slices.Contains(g.dirs, dir) {
			continue // cpu,cpuacct in one hierarchy
		}
		if err := g.mkdir(dir); err != nil {
			return err
		}
	}
	if c.v2 != "" {
		g.v2 = filepath.Join(c.v2, g.name)
		if err := g.mkdir(g.v2); err != nil {
			return err
		}
		fd, err := os.OpenFile(g.v2, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		g.fd = fd
	}
	if c.mode == CgroupV2 {
		return g.limitV2(l)
	}
	return g.limitV1(l)
}

func (g *Cgroup) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	g.dirs = append(g.dirs, dir)
	return nil
}

// dir is the folder in a v1 hierarchy.
func (g *Cgroup) dir(controller string) string {
	return filepath.Join(g.owner.v1[controller], g.name)
}

type setting struct{ dir, file, value string }

func apply(settings []setting) error {
	for _, s := range settings {
		if err := writeFile(s.dir, s.file, s.value); err != nil {
			return err
		}
	}
	return nil
}

func (g *Cgroup) limitV1(l Limits) error {
	mem := strconv.FormatInt(l.MemoryBytes, 10)
	settings := []setting{{g.dir("memory"), "memory.limit_in_bytes", mem}}
	if g.owner.swap { // only after the first: the kernel wants memsw >= memory at all times
		settings = append(settings, setting{g.dir("memory"), "memory.memsw.limit_in_bytes", mem})
	}
	if g.owner.socket {
		settings = append(settings, setting{g.dir("memory"), socketLimit, strconv.FormatInt(l.MemoryBytes/8, 10)})
	}
	return apply(append(settings,
		setting{g.dir("pids"), "pids.max", strconv.Itoa(l.Processes + guestThreads)},
		setting{g.dir("cpu"), "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)},
		setting{g.dir("cpu"), "cpu.cfs_quota_us", strconv.Itoa(quota(l.CPUs))},
	))
}

func (g *Cgroup) limitV2(l Limits) error {
	return apply([]setting{
		{g.v2, "memory.max", strconv.FormatInt(l.MemoryBytes, 10)},
		{g.v2, "memory.swap.max", "0"},
		// One process is killed, not all: the guest has to live to tell.
		{g.v2, "memory.oom.group", "0"},
		{g.v2, "pids.max", strconv.Itoa(l.Processes + guestThreads)},
		{g.v2, "cpu.max", fmt.Sprintf("%d %d", quota(l.CPUs), cpuPeriod)},
	})
}

// EndTogether makes the memory limit end the whole group at once and not one process of it. Pure v1 and hybrid know no such
// thing: there the processes must notice each other's end.
func (g *Cgroup) EndTogether() error {
	if g.owner.mode != CgroupV2 {
		return nil
	}
	return writeFile(g.v2, "memory.oom.group", "1")
}

// LimitCPUs changes the processor limit of a living group.
func (g *Cgroup) LimitCPUs(cpus float64) error {
	if g.owner.mode == CgroupV2 {
		return writeFile(g.v2, "cpu.max", fmt.Sprintf("%d %d", quota(cpus), cpuPeriod))
	}
	return writeFile(g.dir("cpu"), "cpu.cfs_quota_us", strconv.Itoa(quota(cpus)))
}

// quota is in microseconds of a period; the kernel refuses less than one millisecond.
func quota(cpus float64) int { return max(1000, int(math.Round(cpus*cpuPeriod))) }

// SetBackground gives the group an eighth of the usual share of the processors, or the usual one.
func (g *Cgroup) SetBackground(on bool) error {
	dir, file, weight := g.dir("cpu"), "cpu.shares", 1024
	if g.owner.mode == CgroupV2 {
		dir, file, weight = g.v2, "cpu.weight", 100
	}
	if on {
		weight /= 8
	}
	return writeFile(dir, file, strconv.Itoa(weight))
}

// FD is the v2 folder for clone3, or -1 on pure v1.
func (g *Cgroup) FD() int {
	if g.fd == nil {
		return -1
	}
	return int(g.fd.Fd())
}

// Join puts a process with all its threads into the groups. On v2 and hybrid the v2 group was joined at birth.
func (g *Cgroup) Join(pid int) error {
	for _, dir := range g.dirs {
		if dir == g.v2 {
			continue
		}
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("%w: %w", ErrCapacity, err)
		}
	}
	return nil
}

// freezeLimit is how long a group may take to stand still. One that waits for a device or a dead network disk may never.
const freezeLimit = 5 * time.Second

// Freeze stops everything in the group and returns when it stands still. If it fails the group has been told to run on.
func (g *Cgroup) Freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeLimit, errStillRuns)
	defer cancel()
	if err := g.freeze(ctx); err != nil {
		if terr := g.Thaw(); !errors.Is(terr, os.ErrNotExist) {
			err = errors.Join(err, terr)
		}
		return err
	}
	return nil
}

var errStillRuns = errors.New("the group does not stand still")

func (g *Cgroup) freeze(ctx context.Context) error {
	if g.v2 == "" {
		if err := writeFile(g.dir("freezer"), "freezer.state", "FROZEN"); err != nil {
			return err
		}
		return poll(ctx, func() (bool, error) { return hasLine(filepath.Join(g.dir("freezer"), "freezer.state"), "FROZEN") })
	}
	if err := writeFile(g.v2, "cgroup.freeze", "1"); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) { return hasLine(filepath.Join(g.v2, "cgroup.events"), "frozen 1") })
}

// Thaw continues the group.
func (g *Cgroup) Thaw() error {
	if g.v2 == "" {
		return writeFile(g.dir("freezer"), "freezer.state", "THAWED")
	}
	return writeFile(g.v2, "cgroup.freeze", "0")
}

// Kill ends every process of the group at once. On pure v1 the caller must end the first process of the PID namespace.
func (g *Cgroup) Kill() error {
	if g.v2 == "" {
		err := killListed(g.dirs)
		// A frozen v1 group dies only once it is thawed; gone is as good.
		if terr := g.Thaw(); terr != nil && !errors.Is(terr, os.ErrNotExist) && err == nil {
			err = terr
		}
		return err
	}
	err := writeFile(g.v2, "cgroup.kill", "1")
	if errors.Is(err, os.ErrNotExist) { // before Linux 5.14, or removed already
		return killListed(g.dirs)
	}
	return err
}

// Remove deletes the groups, which must be empty or about to be. Repeatable.
func (g *Cgroup) Remove(ctx context.Context) error {
	if g.fd != nil {
		_ = g.fd.Close() // a path descriptor: nothing can be lost
	}
	for _, dir := range slices.Backward(g.dirs) {
		if err := removeGroup(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

func (g *Cgroup) removeAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// The error that led here is the one to report; Sweep finds the folder by its name.
	_ = g.Remove(ctx)
}

// removeGroup deletes one folder. The kernel says EBUSY for a moment after the last process is gone.
func removeGroup(ctx context.Context, dir string) error {
	return poll(ctx, func() (bool, error) {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return true, nil
		case errors.Is(err, unix.EBUSY):
			return false, nil
		}
		return false, &os.PathError{Op: "rmdir", Path: dir, Err: err}
	})
}

// killListed kills what a group lists until it lists nothing new; for hosts without cgroup.kill.
func killListed(dirs []string) error {
	for _, dir := range dirs {
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone, which is what we want
		}
		for f := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
			}
		}
	}
	return nil
}

// poll calls done with growing pauses until it is true, fails, or ctx ends. Files of a cgroup give no cheap notice.
func poll(ctx context.Context, done func() (bool, error)) error {
	pause := 100 * time.Microsecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

func hasLine(path, want string) (bool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == want {
			return true, nil
		}
	}
	return false, nil
}
