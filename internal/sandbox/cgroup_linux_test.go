package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/sandbox/sandboxtest/leftover"
)

const hybridMounts = `30 24 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /part /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/pids rw,relatime shared:9 master:1 - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

func locate(mounts, own, parent string) (*Cgroups, error) {
	c := &Cgroups{prefix: "airlock-t-", v1: map[string]string{}}
	c.locate(parseCgroupMounts([]byte(mounts)), parseOwnCgroups([]byte(own)), parent)
	return c, c.settle()
}

func TestCgroupsAreFoundBelowTheServersOwn(t *testing.T) {
	t.Parallel()
	c, err := locate(hybridMounts, "4:memory:/part/server\n3:pids:/server\n1:cpu,cpuacct:/\n0::/server\n", "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
		"memory": "/sys/fs/cgroup/memory/server", "pids": "/sys/fs/cgroup/pids/server",
	}
	got := map[string]string{}
	for name := range want {
		got[name] = c.v1[name]
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Error(d)
	}
	if c.v2 != "/sys/fs/cgroup/unified/server" || c.mode != CgroupHybrid {
		t.Errorf("v2 at %q, mode %s", c.v2, c.mode)
	}
}

func TestCgroupOfAHiddenPartUsesTheTopOfTheMount(t *testing.T) {
	t.Parallel()
	c, err := locate(hybridMounts, "4:memory:/elsewhere\n3:pids:/\n1:cpu,cpuacct:/\n0::/\n", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.v1["memory"]; got != "/sys/fs/cgroup/memory" {
		t.Errorf("memory at %q", got)
	}
}

func TestHostsWithoutALimitAreRefused(t *testing.T) {
	t.Parallel()
	const own = "4:memory:/\n3:pids:/\n1:cpu,cpuacct:/\n0::/\n"
	for _, name := range []string{"memory", "pids", "cpu"} {
		var lines []string
		for line := range strings.Lines(hybridMounts) {
			if !strings.Contains(line, "rw,"+name) {
				lines = append(lines, line)
			}
		}
		if _, err := locate(strings.Join(lines, ""), own, ""); err == nil {
			t.Errorf("a host without the %s controller was accepted", name)
		}
	}
	if _, err := locate("", own, ""); err == nil {
		t.Error("a host without cgroups was accepted")
	}
}

func TestV2SetsTheSameLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{
		"memory.max": "268435456", "memory.swap.max": "0", "memory.oom.group": "0", "pids.max": "164", "cpu.max": "50000 100000",
	}
	for name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &Cgroup{owner: &Cgroups{mode: CgroupV2}, v2: dir}
	l := Limits{MemoryBytes: 256 << 20, Processes: 100, CPUs: 0.5}
	if err := g.limitV2(l); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "memory.swap.max")); err != nil {
		t.Fatal(err)
	}
	if err := g.limitV2(l); err == nil {
		t.Error("a limit that cannot be written was passed over")
	}
}

func TestMain(m *testing.M) {
	_ = leftover.Remove() // of killed runs; see there
	os.Exit(m.Run())
}

var instances atomic.Int64

// hostCgroups works on the real hierarchies of the machine.
func hostCgroups(t *testing.T) *Cgroups {
	t.Helper()
	c, err := NewCgroups(Host{ID: fmt.Sprintf("unit%dn%d", os.Getpid(), instances.Add(1))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Sweep(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if left := c.leftOver(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return c
}

func inGroup(t *testing.T, g *Cgroup, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: g.FD() >= 0, CgroupFD: max(0, g.FD())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestCgroupCarriesEveryLimit(t *testing.T) {
	t.Parallel()
	c := hostCgroups(t)
	g, err := c.Create(t.Context(), "limits", Limits{MemoryBytes: 256 << 20, Processes: 100, CPUs: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		filepath.Join(g.v2, "memory.max"): "268435456", filepath.Join(g.v2, "pids.max"): "164", filepath.Join(g.v2, "cpu.max"): "50000 100000",
	}
	if c.mode != CgroupV2 {
		want = map[string]string{
			filepath.Join(g.dir("memory"), "memory.limit_in_bytes"): "268435456",
			filepath.Join(g.dir("pids"), "pids.max"):                "164",
			filepath.Join(g.dir("cpu"), "cpu.cfs_quota_us"):         "50000",
			filepath.Join(g.dir("cpu"), "cpu.cfs_period_us"):        "100000",
		}
		if c.socket {
			want[filepath.Join(g.dir("memory"), socketLimit)] = "33554432"
		}
		if c.swap {
			want[filepath.Join(g.dir("memory"), "memory.memsw.limit_in_bytes")] = "268435456"
		}
	}
	for path, value := range want {
		got, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(got)) != value {
			t.Errorf("%s: %q %v, want %s", path, got, err, value)
		}
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCgroupThatExistsIsNotShared(t *testing.T) {
	t.Parallel()
	c := hostCgroups(t)
	if _, err := c.Create(t.Context(), "twice", DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), "twice", DefaultLimits()); !errors.Is(err, ErrCapacity) {
		t.Errorf("got %v, want ErrCapacity", err)
	}
}

func TestCgroupFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	c := hostCgroups(t)
	// The kernel refuses the number only after all folders have been made.
	_, err := c.Create(t.Context(), "broken", Limits{MemoryBytes: 256 << 20, Processes: -1000, CPUs: 1})
	if !errors.Is(err, ErrCapacity) {
		t.Errorf("got %v, want ErrCapacity", err)
	}
	if left := c.leftOver(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFrozenGroupStandsStillAndDies(t *testing.T) {
	t.Parallel()
	c := hostCgroups(t)
	g, err := c.Create(t.Context(), "frozen", DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	cmd := inGroup(t, g, "sh", "-c", "while :; do :; done")
	if err := g.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	after, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if after.CPU != before.CPU {
		t.Errorf("a frozen group used %d us", after.CPU-before.CPU)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The folder stands for a group that waits for a device: it never reports that it stands still. Its time is not ours.
func TestGroupThatDoesNotStandStillRunsOn(t *testing.T) {
	t.Parallel()
	for mode, g := range map[string]*Cgroup{
		"v2": {owner: &Cgroups{}, v2: t.TempDir()},
		"v1": {owner: &Cgroups{v1: map[string]string{"freezer": t.TempDir()}}},
	} {
		order, report, running := filepath.Join(g.v2, "cgroup.freeze"), filepath.Join(g.v2, "cgroup.events"), "0"
		if mode == "v1" {
			order, report, running = filepath.Join(g.dir("freezer"), "freezer.state"), filepath.Join(g.dir("freezer"), "x"), "THAWED"
		}
		for _, path := range []string{order, report} {
			if err := os.WriteFile(path, []byte("frozen 0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			if err := g.Freeze(t.Context()); !errors.Is(err, errStillRuns) || time.Since(start) != freezeLimit {
				t.Errorf("%s: got %v after %s", mode, err, time.Since(start))
			}
		})
		if got, err := os.ReadFile(order); err != nil || !strings.HasPrefix(string(got), running) {
			t.Errorf("%s: left at %q, %v", mode, got, err)
		}
	}
}

func TestSweepTakesOnlyTheInstancesOwn(t *testing.T) {
	t.Parallel()
	mine := hostCgroups(t)
	other := *mine
	other.prefix = fmt.Sprintf("airlock-other%dn0-", os.Getpid())
	g, err := mine.Create(t.Context(), "old", DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Create(t.Context(), "old", DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = foreign.Remove(context.WithoutCancel(t.Context())) })
	cmd := inGroup(t, g, "sleep", "1000")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	if err := mine.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	<-ended
	if _, err := os.Stat(foreign.dirs[0]); err != nil {
		t.Errorf("a neighbour's group is gone: %v", err)
	}
	for _, dir := range g.dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestCallThatASignalEndsIsMadeAgain(t *testing.T) {
	t.Parallel()
	answers := []error{syscall.EINTR, &os.PathError{Op: "write", Err: syscall.EINTR}, syscall.ENOSPC, nil}
	calls := 0
	err := uninterrupted(func() error {
		calls++
		return answers[calls-1]
	})
	if !errors.Is(err, syscall.ENOSPC) || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
