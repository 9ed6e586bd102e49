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

func TestDiskIsJudgedByTheLevelsOfTheSettings(t *testing.T) {
	t.Parallel()
	usual, late := Options{Crowded: 0.85, Full: 0.95}, Options{Crowded: 0.96, Full: 0.98}
	tests := []struct {
		name             string
		o                Options
		free, inodesFree int64
		want             Status
		means            string
	}{
		{"half empty", usual, 50, 50, OK, ""},
		{"crowded", usual, 15, 50, Warn, "at 85 % new uploads"},
		{"full", usual, 5, 50, Fail, "at 95 % only reads"},
		{"inodes count too", usual, 50, 4, Fail, "at 95 %"},
		{"set higher", late, 5, 50, OK, ""},
		{"crowded by its setting", late, 3, 50, Warn, "at 96 %"},
		{"full by its setting", late, 2, 50, Fail, "at 98 %"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := judgeDisk(tt.o, "/", 100, tt.free, 100, tt.inodesFree); got.Status != tt.want || !strings.HasPrefix(got.Means, tt.means) {
				t.Errorf("%s: %s, want %s: %s", got.Status, got.Means, tt.want, tt.means)
			}
		})
	}
}

func TestDiskThatFillsUpNamesWhoFillsIt(t *testing.T) {
	t.Parallel()
	o := Options{Crowded: 0.85, Full: 0.95, Largest: func(context.Context) (string, error) { return "office 3 GiB", nil }}
	if c := nameLargest(t.Context(), o, judgeDisk(o, "/", 100, 15, 100, 50)); !strings.Contains(c.Means, "largest apps: office 3 GiB") {
		t.Errorf("means %q", c.Means)
	}
	if c := nameLargest(t.Context(), o, judgeDisk(o, "/", 100, 50, 100, 50)); strings.Contains(c.Means, "office") {
		t.Errorf("a disk with room: %q", c.Means)
	}
	o.Largest = func(context.Context) (string, error) { return "", errors.New("no database") }
	if c := nameLargest(t.Context(), o, judgeDisk(o, "/", 100, 5, 100, 50)); c.Status != Fail || !strings.Contains(c.Means, "no database") {
		t.Errorf("%+v", c)
	}
}

func TestMemoryKeepsTheReserveOfTheSettings(t *testing.T) {
	t.Parallel()
	quarter := Options{Reserve: func(total int64) int64 { return total / 4 }}
	if got := judgeMemory(quarter, 4<<30, 1<<30+1); got.Status != OK || !strings.Contains(got.Found, "1.0 GiB kept") {
		t.Errorf("above the reserve: %+v", got)
	}
	if got := judgeMemory(quarter, 4<<30, 1<<30); got.Status != Warn {
		t.Errorf("at the reserve: %+v", got)
	}
	if got := judgeMemory(Options{}, 4<<30, 1); got.Status != OK {
		t.Errorf("without a reserve: %+v", got)
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
