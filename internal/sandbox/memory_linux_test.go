package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func files(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const meminfo = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"

// The tightest limit above the sandboxes counts, wherever it is, and the cache in a group is free.
func TestMemoryIsThatOfTheMachineOrOfATighterGroup(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		v2               bool
		groups           map[string]string
		total, available int64 // KiB
	}{
		{"no group", false, nil, 1000, 600},
		{"v1 without a limit", false, map[string]string{
			"top/memory.limit_in_bytes": "9223372036854771712\n", "top/a/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1000, 600},
		{"v1, the parent is limited", false, map[string]string{
			"top/memory.limit_in_bytes": "409600\n", "top/memory.usage_in_bytes": "307200\n", "top/memory.stat": "cache 1\ntotal_inactive_file 102400\n",
			"top/a/memory.limit_in_bytes": "9223372036854771712\n",
		}, 400, 200},
		{"v1, more in use than allowed", false, map[string]string{
			"top/a/memory.limit_in_bytes": "409600\n", "top/a/memory.usage_in_bytes": "512000\n", "top/a/memory.stat": "total_inactive_file 0\n",
		}, 400, 0},
		{"v2, own and parent", true, map[string]string{
			"top/cgroup.procs": "", "top/a/memory.max": "819200\n", "top/a/memory.current": "102400\n", "top/a/memory.stat": "inactive_file 0\n",
			"top/a/b/memory.max": "max\n",
		}, 800, 600},
	} {
		dir := t.TempDir()
		files(t, dir, tt.groups)
		files(t, dir, map[string]string{"proc/meminfo": meminfo})
		m := &Memory{v2: tt.v2, proc: filepath.Join(dir, "proc")}
		if tt.groups != nil {
			m.group = filepath.Join(dir, "top", "a")
			if tt.v2 {
				m.group = filepath.Join(dir, "top", "a", "b")
			}
		}
		total, available, err := m.Read()
		if err != nil || total != tt.total<<10 || available != tt.available<<10 {
			t.Errorf("%s: %d KiB, %d KiB, %v; want %d, %d", tt.name, total>>10, available>>10, err, tt.total, tt.available)
		}
	}
}

func TestMemoryOfThisHostIsRead(t *testing.T) {
	t.Parallel()
	m, err := NewMemory(Host{})
	if err != nil {
		t.Fatal(err)
	}
	total, available, err := m.Read()
	if err != nil || available <= 0 || available > total {
		t.Errorf("total %d, available %d, %v", total, available, err)
	}
	if p, err := m.Pressure(); err != nil || p < 0 || p > 100 {
		t.Errorf("pressure %g, %v", p, err)
	}
}

// A real group with a limit, as a server inside one has it.
func TestMemoryOfARealLimitedGroup(t *testing.T) {
	t.Parallel()
	c, err := NewCgroups(Host{ID: fmt.Sprintf("mem%d", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l := DefaultLimits()
	l.MemoryBytes = 64 << 20
	g, err := c.Create(t.Context(), "limited", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	})
	m := &Memory{group: g.v2, v2: true}
	if c.mode != CgroupV2 {
		m = &Memory{group: g.dir("memory")}
	}
	total, available, err := m.Read()
	if err != nil || total != 64<<20 || available > total || available < total-8<<20 {
		t.Errorf("total %d, available %d, %v", total, available, err)
	}
}

func TestPressureIsThatOfSomeWorkInTenSeconds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := &Memory{proc: dir}
	if p, err := m.Pressure(); p != 0 || err != nil {
		t.Errorf("a kernel without it: %g, %v", p, err)
	}
	files(t, dir, map[string]string{"pressure/memory": "some avg10=12.34 avg60=1.00 avg300=0.04 total=20311831\nfull avg10=5.00 avg60=0 avg300=0 total=1\n"})
	if p, err := m.Pressure(); p != 12.34 || err != nil {
		t.Errorf("got %g, %v", p, err)
	}
	files(t, dir, map[string]string{"pressure/memory": "nonsense\n"})
	if _, err := m.Pressure(); err == nil {
		t.Error("nonsense is read")
	}
}
