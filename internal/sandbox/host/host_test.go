package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCgroupModeIsReadFromTheMountTable(t *testing.T) {
	t.Parallel()
	const v1 = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
		"31 25 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct\n"
	const v2 = "32 25 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	tests := []struct{ name, table, want string }{
		{"controllers only on v1", v1, "v1"},
		{"both", v1 + v2, "hybrid"},
		{"unified", v2, "v2"},
		{"nothing mounted", "21 1 0:20 / /proc rw - proc proc rw\n", "none"},
		{"a damaged line is passed over", "x\n" + v2, "v2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := parseCgroups(tt.table).Mode(); got != tt.want {
				t.Errorf("mode = %q, want %q", got, tt.want)
			}
		})
	}
	got := parseCgroups(v1 + v2).V1
	want := map[string]string{"memory": "/sys/fs/cgroup/memory", "cpu": "/sys/fs/cgroup/cpu", "cpuacct": "/sys/fs/cgroup/cpu"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("controllers (-want +got):\n%s", diff)
	}
}

func TestKernelVersionSurvivesSuffixes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, release string
		major, minor  int
	}{
		{"plain", "6.1.0", 6, 1},
		{"distribution", "5.15.0-97-generic", 5, 15},
		{"release candidate", "6.12-rc3", 6, 12},
		{"nonsense", "linux", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if major, minor := kernelVersion(tt.release); major != tt.major || minor != tt.minor {
				t.Errorf("kernelVersion(%q) = %d, %d, want %d, %d", tt.release, major, minor, tt.major, tt.minor)
			}
		})
	}
}

func TestDiskFailsWhereOnlyReadsWouldBeServed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		free, inodesFree int64
		want             Status
	}{
		{"half empty", 50, 50, OK},
		{"at 85 percent", 15, 50, Warn},
		{"at 95 percent", 5, 50, Fail},
		{"inodes count too", 50, 4, Fail},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := judgeDisk("/", 100, tt.free, 100, tt.inodesFree); got.Status != tt.want {
				t.Errorf("status = %s, want %s", got.Status, tt.want)
			}
		})
	}
}

func TestDiskThatFillsUpNamesWhoFillsIt(t *testing.T) {
	t.Parallel()
	o := Options{Largest: func(context.Context) (string, error) { return "office 3 GiB", nil }}
	if c := nameLargest(t.Context(), o, judgeDisk("/", 100, 15, 100, 50)); !strings.Contains(c.Means, "largest apps: office 3 GiB") {
		t.Errorf("means %q", c.Means)
	}
	if c := nameLargest(t.Context(), o, judgeDisk("/", 100, 50, 100, 50)); strings.Contains(c.Means, "office") {
		t.Errorf("a disk with room: %q", c.Means)
	}
	o.Largest = func(context.Context) (string, error) { return "", errors.New("no database") }
	if c := nameLargest(t.Context(), o, judgeDisk("/", 100, 5, 100, 50)); c.Status != Fail || !strings.Contains(c.Means, "no database") {
		t.Errorf("%+v", c)
	}
}

func TestMemoryKeepsAReserve(t *testing.T) {
	t.Parallel()
	meminfo := func(available string) string {
		return "MemTotal:       10485760 kB\nMemAvailable:   " + available + " kB\n"
	}
	if got := judgeMemory(meminfo("9000000")); got.Status != OK {
		t.Errorf("with 9 GB free: %+v", got)
	}
	if got := judgeMemory(meminfo("2000000")); got.Status != Warn {
		t.Errorf("below the reserve: %+v", got)
	}
}

func TestReportIsUnsafeWhenTheSelfTestFails(t *testing.T) {
	t.Parallel()
	got := Run(t.Context(), Options{
		Data: t.TempDir(), RootFS: t.TempDir(),
		SelfTest: func(context.Context) error { return errors.New("no sandbox today") },
	})
	if got.Safe {
		t.Error("a failed self-test was reported as safe")
	}
	for _, c := range got.Checks {
		if c.Name == "sandbox self-test" && (c.Status != Fail || !strings.Contains(c.Found, "no sandbox today")) {
			t.Errorf("self-test check = %+v", c)
		}
		if c.Status == Fail && c.Means == "" {
			t.Errorf("check %q failed without saying what it means", c.Name)
		}
	}
}

// A probe that hangs must not hang the report; the scaled-down deadline of
// the context stands for the real one.
func TestHangingProbeFails(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	got := runProbe(ctx, probe{"stuck", func(context.Context, Options) Check {
		<-release
		return Check{}
	}}, Options{})
	if got.Status != Fail || got.Name != "stuck" {
		t.Errorf("hanging probe = %+v", got)
	}
}

func TestOldRootFileSystemIsAWarningWithTheLineToType(t *testing.T) {
	t.Parallel()
	got := probeRootFS(t.Context(), Options{RootFS: t.TempDir()})
	if got.Status != Fail || got.Remedy != "airlock rootfs build --profile office" {
		t.Errorf("empty store = %+v", got)
	}
}
