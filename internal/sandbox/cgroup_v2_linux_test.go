package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// fakeV2 knows the one rule of the kernel that matters here: a group with processes, other than the top one, passes
// nothing on. Folders are real, control files are not. What it
// cannot show is run on a real v2 kernel by make test-v2.
type fakeV2 struct {
	top    string
	server string   // group of the server
	others []string // groups that hold processes of others, below top
	log    []string // what was written, below top
}

func (f *fakeV2) write(dir, file, value string) error {
	rel, _ := filepath.Rel(f.top, dir)
	fail := func(err error) error { return &os.PathError{Op: "write", Path: filepath.Join(dir, file), Err: err} }
	if _, err := os.Stat(dir); err != nil {
		return fail(unix.ENOENT)
	}
	switch file {
	case "cgroup.procs":
		f.server = rel
	case "cgroup.subtree_control":
		held := f.server == rel || slices.Contains(f.others, rel)
		if rel != "." && held && strings.HasPrefix(value, "+") {
			return fail(unix.EBUSY)
		}
	}
	f.log = append(f.log, rel+" "+file+" "+value)
	return nil
}

func settleFakeV2(t *testing.T, f *fakeV2, parent string) (*Cgroups, error) {
	t.Helper()
	f.top = t.TempDir()
	for _, dir := range append([]string{f.server}, f.others...) {
		if err := os.MkdirAll(filepath.Join(f.top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join("/", f.server)
	c := &Cgroups{prefix: "airlock-t-", v1: map[string]string{}}
	c.tree.write, c.tree.chosen = f.write, parent != ""
	c.locate([]cgroupMount{{v2: true, root: "/", point: f.top}}, map[string]string{"": own}, parent)
	return c, c.settle()
}

const on, off = " cgroup.subtree_control +memory +pids +cpu", " cgroup.subtree_control -memory -pids -cpu"

func TestV2ServiceKeepsItsGroupAndGivesItBack(t *testing.T) {
	t.Parallel()
	f := &fakeV2{server: "system.slice/airlock.service"}
	c, err := settleFakeV2(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	const own, leaf = "system.slice/airlock.service", "system.slice/airlock.service/airlock-t-.server"
	if c.mode != CgroupV2 || c.v2 != filepath.Join(f.top, own) {
		t.Errorf("%s groups go below %s", c.mode, c.v2)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{leaf + " cgroup.procs 0", own + on, own + off, own + " cgroup.procs 0"}
	if d := cmp.Diff(want, f.log); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
	if _, err := os.Stat(filepath.Join(f.top, leaf)); err == nil {
		t.Error("the leaf is left")
	}
}

// A second driver of one server, as `doctor --attack` and tests have them, finds the server in the leaf of the first.
func TestV2DriversOfOneServerGoSideBySide(t *testing.T) {
	t.Parallel()
	f := &fakeV2{server: "service/airlock-first-.server"}
	c, err := settleFakeV2(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.v2 != filepath.Join(f.top, "service") || c.tree.moved {
		t.Errorf("groups go below %s, moved %t", c.v2, c.tree.moved)
	}
	if d := cmp.Diff([]string{"service" + on}, f.log); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
}

func TestV2GroupIsNotGivenBackUnderANeighbour(t *testing.T) {
	t.Parallel()
	f := &fakeV2{server: "service"}
	c, err := settleFakeV2(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.v2, "airlock-other-s1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(f.log, "service"+off) {
		t.Error("the limits of a neighbour's sandbox were taken away")
	}
}

func TestV2LoginSessionUsesAFreshGroupAtTheTop(t *testing.T) {
	t.Parallel()
	const session = "user.slice/user-0.slice/session-1.scope"
	f := &fakeV2{server: session, others: []string{session}}
	c, err := settleFakeV2(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.v2 != filepath.Join(f.top, "airlock-t-.sandboxes") {
		t.Errorf("groups go below %s", c.v2)
	}
	if f.server != session {
		t.Errorf("the server is left in %s", f.server)
	}
	if entries, _ := os.ReadDir(filepath.Join(f.top, session)); len(entries) > 0 {
		t.Errorf("left in the session: %v", entries)
	}
	want := []string{session + "/airlock-t-.server cgroup.procs 0", session + " cgroup.procs 0", "." + on, "airlock-t-.sandboxes" + on}
	if d := cmp.Diff(want, f.log); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.v2); err == nil {
		t.Error("the fresh group is left")
	}
}

func TestV2ChosenGroupIsUsedWithoutAMove(t *testing.T) {
	t.Parallel()
	f := &fakeV2{server: "session", others: []string{"session", "airlock/boxes/x"}}
	c, err := settleFakeV2(t, f, "/airlock/boxes")
	if err != nil {
		t.Fatal(err)
	}
	if c.v2 != filepath.Join(f.top, "airlock/boxes") || f.server != "session" {
		t.Errorf("groups go below %s, the server is in %s", c.v2, f.server)
	}
	if d := cmp.Diff([]string{"." + on, "airlock" + on, "airlock/boxes" + on}, f.log); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
}

func TestV2RefusalNamesBothRemedies(t *testing.T) {
	t.Parallel()
	f := &fakeV2{server: "session", others: []string{"session", "busy"}}
	_, err := settleFakeV2(t, f, "/busy")
	if err == nil {
		t.Fatal("a group with processes was accepted")
	}
	for _, want := range []string{"systemd-run -p Delegate=yes", "sandbox.cgroup_parent", "busy"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if f.server != "session" {
		t.Errorf("the server is left in %s", f.server)
	}
}

func TestV2SweepFindsWhatARunInASessionLeft(t *testing.T) {
	t.Parallel()
	f := &fakeV2{server: "service"}
	c, err := settleFakeV2(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(f.top, "airlock-t-.sandboxes", "airlock-t-s1")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the group is left")
	}
	if f.server != "service/airlock-t-.server" {
		t.Errorf("the server is in %s", f.server)
	}
}
