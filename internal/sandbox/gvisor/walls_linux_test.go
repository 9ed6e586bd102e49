package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor/setup"
)

// startedBy makes a sandbox with a runsc that says this version, and describes the walls around gofer and sentry.
func startedBy(t *testing.T, version string) (walls map[string]string, byRunsc bool) {
	t.Helper()
	d := testDriver(t)
	d.version = func() (string, error) { return version, nil }
	sb, err := d.Create(t.Context(), bareSpec(t, "walls"))
	if err != nil {
		t.Fatal(err)
	}
	walls = map[string]string{}
	for _, pid := range processes(t, d) {
		cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil {
			continue // a stub of the sentry that has ended
		}
		switch name, _, _ := bytes.Cut(cmdline, []byte{0}); string(name) {
		case "runsc-gofer", "runsc-sandbox":
			walls[string(name)] = describe(t, "/proc/"+pid)
		case "airlock-launch":
			// Who makes the sandbox leaves a note of it.
			notes, err := filepath.Glob("/proc/" + pid + "/root" + setup.State + "/*.state")
			if err != nil {
				t.Fatal(err)
			}
			byRunsc = len(notes) > 0
		}
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	return walls, byRunsc
}

var (
	rights = regexp.MustCompile(`(?m)^(Cap\w+|NoNewPrivs|Seccomp|Seccomp_filters):\s+(\w+)$`)
	depth  = regexp.MustCompile(`(?m)^NSpid:(.*)$`)
	placed = regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ (\S+) (\S+) .*- (\S+)`)
)

// describe is what a process may do and see, without what differs from one sandbox to the next.
func describe(t *testing.T, proc string) string {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(proc + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	status := read("status")
	var lines []string
	for _, m := range rights.FindAllStringSubmatch(status, -1) {
		lines = append(lines, m[1]+" "+m[2])
	}
	lines = append(lines, fmt.Sprint("PID namespaces ", len(strings.Fields(depth.FindStringSubmatch(status)[1]))))
	lines = append(lines, "setgroups "+strings.TrimSpace(read("setgroups")), "ids "+strings.Fields(read("uid_map"))[2])
	var tree []string
	for _, m := range placed.FindAllStringSubmatch(read("mountinfo"), -1) {
		tree = append(tree, strings.Join(m[1:], " "))
	}
	slices.Sort(tree)
	lines = append(lines, tree...)
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		own, err := os.Readlink(proc + "/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		parent, err := os.Readlink("/proc/" + strings.Fields(regexp.MustCompile(`(?m)^PPid:.*$`).FindString(status))[1] + "/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s of its own %t", ns, own != parent))
	}
	return strings.Join(lines, "\n")
}

// The start that is ours must build what runsc builds; a runsc that it was not made for starts itself.
func TestOwnStartHasTheWallsOfRunscAndIsForThePinnedBuildOnly(t *testing.T) {
	ours, byRunsc := startedBy(t, Version)
	if byRunsc {
		t.Error("the pinned build was started by runsc itself")
	}
	theirs, byRunsc := startedBy(t, "release-20991231.0")
	if !byRunsc {
		t.Error("another build was not started by runsc itself")
	}
	if len(ours) != 2 || len(theirs) != 2 {
		t.Fatalf("gofer and sentry are %v and %v", ours, theirs)
	}
	if d := cmp.Diff(theirs, ours); d != "" {
		t.Errorf("walls of runsc's own start and of ours (-theirs +ours):\n%s", d)
	}
}

// What is continued has code in it, which runs before anybody could set another limit.
func TestOnlyWhatIsMadeAnewMayUseEveryProcessor(t *testing.T) {
	l := sandbox.Limits{CPUs: 0.5, Processes: 10}
	if got := (&instance{spec: sandbox.Spec{Limits: l}}).hostLimits().CPUs; got < 1 {
		t.Errorf("the start of runsc has %v processors", got)
	}
	if got := (&instance{spec: sandbox.Spec{Limits: l}, image: "checkpoint"}).hostLimits().CPUs; got != l.CPUs {
		t.Errorf("a checkpoint is continued with %v processors, want its limit of %v", got, l.CPUs)
	}
}

// kinds are what processes of a jail hold: what has no name, and what lies in the jail. The gofer and the sentry see the
// root file system below /root; / is the gofer's folder of its own descriptors.
var kinds = regexp.MustCompile(`^((pipe|socket):\[\d+\]|anon_inode:.+|/memfd:.+ \(deleted\)|/dev/null|/bundle/config\.json|/|/root(/.*)?|/proc(/.*)?)$`)

// A descriptor that was left open would be a way out for whoever takes the sentry over.
func TestNoProcessOfASandboxHoldsADescriptorOfTheServer(t *testing.T) {
	d := testDriver(t)
	sb, err := d.Create(t.Context(), bareSpec(t, "held"))
	if err != nil {
		t.Fatal(err)
	}
	held := func(pid string) (links []string) {
		fds, err := os.ReadDir("/proc/" + pid + "/fd")
		if err != nil {
			return nil // it has ended
		}
		for _, fd := range fds {
			if link, err := os.Readlink("/proc/" + pid + "/fd/" + fd.Name()); err == nil {
				links = append(links, link)
			}
		}
		return links
	}
	ours, n := held("self"), 0
	for _, pid := range processes(t, d) {
		for _, link := range held(pid) {
			n++
			if !kinds.MatchString(link) || strings.HasPrefix(link, "socket:") && slices.Contains(ours, link) {
				t.Errorf("process %s holds %s", pid, link)
			}
		}
	}
	if n < 20 {
		t.Errorf("looked at %d descriptors only", n)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}
