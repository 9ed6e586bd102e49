package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/sandboxtest/leftover"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

func TestMain(m *testing.M) {
	_ = leftover.Remove() // of killed runs; see there
	goleak.VerifyTestMain(m)
}

var instances atomic.Int64

// testDriver belongs to a host of its own. Nothing may be left of it at the end.
func testDriver(t *testing.T, change func(*sandbox.Host)) *Driver {
	t.Helper()
	h := sandbox.Host{ID: fmt.Sprintf("unit%dn%d", os.Getpid(), instances.Add(1)), RunDir: t.TempDir(), LeaseDir: t.TempDir()}
	if change != nil {
		change(&h)
	}
	d, err := New(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		for _, base := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu"} {
			if left, _ := filepath.Glob(filepath.Join(base, h.Prefix()+"*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
	return d
}

// bareRoot has the mount points and nothing else: the guest needs no file of it.
func bareRoot(t *testing.T, folders ...string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(root, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var mountPoints = []string{"proc", "dev", "tmp", "workspace", "files"}

func bareSpec(t *testing.T, id string) sandbox.Spec {
	t.Helper()
	return sandbox.Spec{ID: id, RootFS: bareRoot(t, mountPoints...), Limits: sandbox.Limits{
		MemoryBytes: 256 << 20, DiskBytes: 16 << 20, Inodes: 500, Processes: 50, OpenFiles: 200, FileBytes: 8 << 20,
	}}
}

// guestOf is the process of the only living sandbox.
func guestOf(t *testing.T, d *Driver) *spawn.Instance {
	t.Helper()
	live := d.fleet.Live()
	if len(live) != 1 {
		t.Fatalf("%d sandboxes live, want 1", len(live))
	}
	return live[0]
}

func proc(t *testing.T, i *spawn.Instance, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(i.Proc.Pid), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// line is the first line with this beginning, its words joined by one space.
func line(text, start string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, start) {
			return strings.Join(strings.Fields(l), " ")
		}
	}
	return ""
}

func TestWallsStandBeforeTheFirstCommand(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	sb, err := d.Create(t.Context(), bareSpec(t, "walls"))
	if err != nil {
		t.Fatal(err)
	}
	i := guestOf(t, d)
	limits := proc(t, i, "limits")
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", i.Proc.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatal("the guest has no thread", err)
	}
	for _, want := range []string{
		"Seccomp: 2", "NoNewPrivs: 1", "CapEff: 00000000000000e3", "CapPrm: 00000000000000e3", "CapInh: 0000000000000000",
		"CapBnd: 0000000000000000", "CapAmb: 0000000000000000", "Groups:", fmt.Sprintf("Uid: %[1]d %[1]d %[1]d %[1]d", i.Lease.First),
	} {
		for _, thread := range threads {
			status := proc(t, i, filepath.Join("task", filepath.Base(thread), "status"))
			if got := line(status, want[:strings.Index(want, ":")+1]); got != want {
				t.Errorf("status %q, want %q", got, want)
			}
		}
	}
	for name, want := range map[string]string{
		"Max file size": "8388608 8388608 bytes", "Max core file size": "1 1 bytes", "Max processes": "50 50 processes",
		"Max open files": "200 200 files", "Max locked memory": "65536 65536 bytes", "Max realtime priority": "0 0",
	} {
		if got := line(limits, name); got != name+" "+want {
			t.Errorf("limit %q, want %q", got, want)
		}
	}
	group := d.host.Prefix() + "walls"
	for l := range strings.Lines(proc(t, i, "cgroup")) {
		for _, c := range []string{":memory:", ":pids:", ":cpu:", "0::"} {
			if strings.Contains(l, c) && !strings.HasSuffix(strings.TrimSpace(l), "/"+group) {
				t.Errorf("not joined: %s", l)
			}
		}
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSandboxSeesOnlyItsOwnMounts(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	if _, err := d.Create(t.Context(), bareSpec(t, "mounts")); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for l := range strings.Lines(proc(t, guestOf(t, d), "mountinfo")) {
		f := strings.Fields(l)
		got[f[4]] = f[5]
	}
	for path, options := range map[string][]string{
		"/": {"ro", "nosuid", "nodev"}, "/dev": {"ro", "nosuid", "noexec"}, "/dev/shm": {"rw", "nosuid", "nodev"},
		"/proc": {"rw", "nosuid", "nodev", "noexec"}, "/proc/sys": {"ro"}, "/workspace": {"rw", "nosuid", "nodev"},
		"/tmp": {"rw", "nosuid", "nodev"}, "/files": {"rw", "nosuid", "nodev"},
	} {
		have := strings.Split(got[path], ",")
		for _, o := range options {
			if !slices.Contains(have, o) {
				t.Errorf("%s is mounted %v, want %s", path, have, o)
			}
		}
		delete(got, path)
	}
	for path := range got {
		if path != "/dev/pts" && !strings.HasPrefix(path, "/proc/") {
			t.Errorf("%s is mounted", path)
		}
	}
}

func TestSandboxHasNamespacesOfItsOwn(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	if _, err := d.Create(t.Context(), bareSpec(t, "ns")); err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(guestOf(t, d).Proc.Pid)
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.Readlink("/proc/" + pid + "/ns/" + ns)
		if err != nil || theirs == ours {
			t.Errorf("%s namespace is %s, ours %s, %v", ns, theirs, ours, err)
		}
	}
	files, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		target, err := os.Readlink("/proc/" + pid + "/fd/" + f.Name())
		if err != nil {
			continue // closed meanwhile
		}
		// Its own pipes and poller, /dev/null, the socket, /proc: nothing of ours.
		if strings.HasPrefix(target, "/") && target != "/dev/null" && !strings.HasPrefix(target, "/proc/") {
			t.Errorf("the guest holds %s", target)
		}
	}
}

func TestUnusableRootFailsWithItsReasonAndLeavesNothing(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	for name, c := range map[string]struct{ root, reason string }{
		"missing":          {filepath.Join(t.TempDir(), "none"), "no such file"},
		"no mount points":  {bareRoot(t), "/proc"},
		"one mount absent": {bareRoot(t, "proc", "dev", "tmp", "workspace"), "/files"},
	} {
		spec := bareSpec(t, "broken")
		spec.RootFS = c.root
		_, err := d.Create(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: got %v, want a word about %s", name, err, c.reason)
		}
		if live := d.fleet.Live(); len(live) != 0 {
			t.Errorf("%s: %d sandboxes live on", name, len(live))
		}
	}
	// The name, the cgroups and the id range are free again.
	if _, err := d.Create(t.Context(), bareSpec(t, "broken")); err != nil {
		t.Error(err)
	}
}

func TestNoRangeMeansNoSandbox(t *testing.T) {
	t.Parallel()
	d := testDriver(t, func(h *sandbox.Host) { h.Ranges = 1 })
	first, err := d.Create(t.Context(), bareSpec(t, "first"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), bareSpec(t, "second")); !errors.Is(err, sandbox.ErrCapacity) {
		t.Errorf("got %v, want ErrCapacity", err)
	}
	if err := first.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), bareSpec(t, "third")); err != nil {
		t.Error(err)
	}
}

func TestNoCgroupMeansNoSandbox(t *testing.T) {
	t.Parallel()
	d, err := New(sandbox.Host{
		ID: fmt.Sprintf("unit%dn%d", os.Getpid(), instances.Add(1)), RunDir: t.TempDir(), LeaseDir: t.TempDir(), CgroupParent: "/there/is/none",
	})
	if err != nil { // on v2, where the group must pass its limits on
		if !strings.Contains(err.Error(), "sandbox.cgroup_parent") {
			t.Errorf("got %v, want the name of the setting", err)
		}
		return
	}
	if _, err := d.Create(t.Context(), bareSpec(t, "first")); !errors.Is(err, sandbox.ErrCapacity) {
		t.Errorf("got %v, want ErrCapacity", err)
	}
	if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestIDInUseIsRefusedAndUnharmed(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	sb, err := d.Create(t.Context(), bareSpec(t, "same"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), bareSpec(t, "same")); err == nil {
		t.Error("two sandboxes share an id")
	}
	if err := sb.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCanceledCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Create(ctx, bareSpec(t, "late")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestCloseEndsEverySandbox(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	var all []*sandbox.Sandbox
	for n := range 3 {
		sb, err := d.Create(t.Context(), bareSpec(t, fmt.Sprint("s", n)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sb)
	}
	if err := d.Sweep(t.Context()); err == nil {
		t.Error("a sweep under living sandboxes was allowed")
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sb := range all {
		<-sb.Done()
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Create(t.Context(), bareSpec(t, "after")); !errors.Is(err, spawn.ErrClosed) {
		t.Errorf("got %v, want spawn.ErrClosed", err)
	}
}

func TestGuestThatIsKilledEndsTheSandboxAndIsLogged(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 1)
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		lines <- string(p)
		return len(p), nil
	}), nil))
	d := testDriver(t, func(h *sandbox.Host) { h.Log = log })
	sb, err := d.Create(t.Context(), bareSpec(t, "killed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := guestOf(t, d).Proc.Kill(); err != nil {
		t.Fatal(err)
	}
	<-sb.Done()
	if got := sb.ExitReason(); got != sandbox.ExitCrash {
		t.Errorf("reason %q, want crash", got)
	}
	if err := sb.Ping(t.Context()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("ping: %v, want ErrGone", err)
	}
	if got := <-lines; !strings.Contains(got, "sandbox_id=killed") || !strings.Contains(got, "signal: killed") {
		t.Errorf("logged %q", got)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFrozenSandboxCanBeDestroyed(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	sb, err := d.Create(t.Context(), bareSpec(t, "frozen"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sb.Freeze(t.Context()), sb.Freeze(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestProbeTriesASandbox(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	caps, err := d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if caps.Driver != "native" || !caps.MemoryLimit || !caps.ProcessLimit || !caps.CPULimit || !caps.Seccomp {
		t.Errorf("capabilities %+v", caps)
	}
	if left, _ := os.ReadDir(d.host.RunDir); len(left) > 0 {
		t.Errorf("the probe left %v", left)
	}
}

func TestSweepEmptiesTheInstancesFoldersOnly(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	mine, other := filepath.Join(d.host.RunDir, d.host.Prefix()+"old"), filepath.Join(d.host.RunDir, "airlock-other-old")
	for _, dir := range []string{mine, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mine); err == nil {
		t.Error("our folder is left")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("a neighbour's folder is gone")
	}
}

// Another start at once would need as much again.
func TestStartWithoutMemoryIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	d := testDriver(t, nil)
	spec := bareSpec(t, "little")
	spec.Limits = spec.Limits.WithDefaults()
	spec.Limits.MemoryBytes = 64 << 10 // no caller may ask for so little
	_, err := d.create(t.Context(), spec)
	if !errors.Is(err, sandbox.ErrCapacity) || errors.Is(err, sandbox.ErrCutOff) {
		t.Errorf("with too little memory to start: %v, want ErrCapacity", err)
	}
}
