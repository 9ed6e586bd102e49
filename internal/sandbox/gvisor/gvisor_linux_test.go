package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/sandboxtest/leftover"
)

func TestMain(m *testing.M) {
	_ = leftover.Remove() // of killed runs; see there
	goleak.VerifyTestMain(m)
}

const runsc = "../../../bin/runsc"

func needRunsc(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(runsc); err == nil {
		return
	}
	if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "gvisor") {
		t.Fatal("gvisor is required: run make runsc")
	}
	t.Skip("gvisor is not built: run make runsc")
}

var instances atomic.Int64

func testDriver(t *testing.T) *Driver {
	t.Helper()
	needRunsc(t)
	h := sandbox.Host{ID: fmt.Sprintf("gunit%dn%d", os.Getpid(), instances.Add(1)), RunDir: t.TempDir(), LeaseDir: t.TempDir()}
	d, err := New(h, Options{Runsc: runsc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(h.RunDir); len(left) > 0 {
			t.Errorf("left in the run folder: %v", left)
		}
	})
	return d
}

// bareSpec is a sandbox on an empty root, in which only the guest runs.
func bareSpec(t *testing.T, id string) sandbox.Spec {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"proc", "dev", "tmp", "workspace", "files"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return sandbox.Spec{ID: id, RootFS: root, Limits: sandbox.Limits{MemoryBytes: 256 << 20, DiskBytes: 16 << 20, Inodes: 500, Processes: 50}}
}

// processes are the pids in the only living sandbox's group.
func processes(t *testing.T, d *Driver) []string {
	t.Helper()
	group := d.host.Prefix() + d.fleet.Live()[0].ID
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, dir := range all {
		if b, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil && bytes.Contains(b, []byte(group)) {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

func TestNoProcessOfASandboxIsAUserOfTheHost(t *testing.T) {
	d := testDriver(t)
	sb, err := d.Create(t.Context(), bareSpec(t, "ids"))
	if err != nil {
		t.Fatal(err)
	}
	first := uint64(d.fleet.Live()[0].Lease.First)
	pids := processes(t, d)
	if len(pids) < 3 {
		t.Fatalf("launcher, sentry and gofer are %v", pids)
	}
	for _, pid := range pids {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			continue // a stub of the sentry that has ended
		}
		for line := range strings.Lines(string(status)) {
			name, ids, _ := strings.Cut(line, ":")
			if name != "Uid" && name != "Gid" {
				continue
			}
			for id := range strings.FieldsSeq(ids) {
				n, err := strconv.ParseUint(id, 10, 64)
				if err != nil || n < first || n >= first+sandbox.RangeSize {
					t.Errorf("process %s has the %s %s, want one from %d on", pid, name, id, first)
				}
			}
		}
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
			ours, err := os.Readlink("/proc/self/ns/" + ns)
			theirs, err2 := os.Readlink("/proc/" + pid + "/ns/" + ns)
			if err != nil || err2 == nil && ours == theirs {
				t.Errorf("process %s shares our %s namespace, %v", pid, ns, err)
			}
		}
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHostHasNoMountOfASandbox(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	d := testDriver(t)
	if _, err := d.Create(t.Context(), bareSpec(t, "mounts")); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(after)) {
		if !bytes.Contains(before, []byte(line)) && (strings.Contains(line, d.host.ID) || strings.Contains(line, "null-netns")) {
			t.Errorf("the host got %s", line)
		}
	}
}

// The server's death kills the launcher, by the parent-death signal that package spawn sets; this is what follows.
func TestEverythingEndsWithTheLauncher(t *testing.T) {
	d := testDriver(t)
	sb, err := d.Create(t.Context(), bareSpec(t, "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	pids := processes(t, d)
	if err := d.fleet.Live()[0].Proc.Kill(); err != nil {
		t.Fatal(err)
	}
	<-sb.Done()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for left := pids; len(left) > 0; left = processes(t, d) {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("processes %v live on", left)
		}
	}
	if got := sb.ExitReason(); got != sandbox.ExitCrash {
		t.Errorf("it ended by %q, want crash", got)
	}
}

func TestSandboxEndsWithItsSentry(t *testing.T) {
	d := testDriver(t)
	sb, err := d.Create(t.Context(), bareSpec(t, "sentry"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range processes(t, d) {
		argv, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil || !bytes.HasPrefix(argv, []byte("runsc-sandbox")) {
			continue
		}
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(n, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		break
	}
	select {
	case <-sb.Done():
	case <-time.After(10 * time.Second):
		t.Error("the sandbox lives on without a sentry")
	}
}

func TestPinnedVersionIsTheTestedOne(t *testing.T) {
	t.Parallel()
	pin, err := os.ReadFile("../../../tools/runsc/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pin), "gvisor.dev/gvisor "+Version+" ") {
		t.Errorf("tools/runsc/go.mod does not pin %s", Version)
	}
	needRunsc(t)
	got, err := VersionOf(t.Context(), runsc)
	if err != nil || got != Version {
		t.Errorf("bin/runsc is %q, %v, want %s: run make runsc", got, err, Version)
	}
}

func TestRunscIsFoundOrTheSettingIsNamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Find(""); err == nil || !strings.Contains(err.Error(), "make runsc") {
		t.Errorf("without one: %v", err)
	}
	for name, path := range map[string]string{"missing": filepath.Join(dir, "none"), "folder": dir} {
		if _, err := Find(path); err == nil || !strings.Contains(err.Error(), "sandbox.runsc") {
			t.Errorf("%s: %v", name, err)
		}
	}
	program := filepath.Join(dir, "runsc")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho something else\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(""); err != nil || got != program {
		t.Errorf("in PATH: %q, %v", got, err)
	}
	if _, err := VersionOf(t.Context(), program); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("version of another program: %v", err)
	}
}

// Another start at once would need as much again.
func TestStartWithoutMemoryIsNotTriedAgain(t *testing.T) {
	d := testDriver(t)
	spec := bareSpec(t, "little")
	spec.Limits = spec.Limits.WithDefaults()
	spec.Limits.MemoryBytes = 64 << 10 // no caller may ask for so little
	_, err := d.create(t.Context(), spec)
	if !errors.Is(err, sandbox.ErrCapacity) || errors.Is(err, sandbox.ErrCutOff) {
		t.Errorf("with too little memory to start: %v, want ErrCapacity", err)
	}
}

// An answer that came too late is not taken for that of the next order.
func TestFreezeThatNobodyWaitedForCanBeUndone(t *testing.T) {
	d := testDriver(t)
	sb, err := d.Create(t.Context(), bareSpec(t, "late"))
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for range 2 {
		if err := sb.Freeze(late); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("freeze without any time: %v", err)
		}
	}
	for range 2 {
		if err := errors.Join(sb.Thaw(t.Context()), sb.Ping(t.Context())); err != nil {
			t.Errorf("thaw after that: %v", err)
		}
	}
	if err := errors.Join(sb.Freeze(t.Context()), sb.Thaw(t.Context()), sb.Ping(t.Context())); err != nil {
		t.Error(err)
	}
}
