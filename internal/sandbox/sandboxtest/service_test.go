package sandboxtest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

const unitFile = "../../../deploy/airlock.service"

// granted reads one list of capabilities of the unit.
func granted(t *testing.T, key string) []string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if list, found := strings.CutPrefix(strings.TrimSpace(line), key+"="); found {
			return strings.Fields(list)
		}
	}
	t.Fatalf("%s has no %s", unitFile, key)
	return nil
}

func TestServiceUnitGrantsExactlyWhatSandboxesNeed(t *testing.T) {
	t.Parallel()
	var want []string
	for _, r := range sandbox.Rights() {
		want = append(want, r.Name)
	}
	for _, key := range []string{"AmbientCapabilities", "CapabilityBoundingSet"} {
		if got := granted(t, key); !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

// serviceUser is nobody on this machine.
const serviceUser = 61_987

// asService is this program run again as the user of the unit, with its capabilities and no others.
func asService(t *testing.T, dir string, capabilities []string, args ...string) *exec.Cmd {
	t.Helper()
	set := "-all"
	for _, name := range capabilities {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	id := strconv.Itoa(serviceUser)
	cmd := exec.CommandContext(t.Context(), "setpriv", slices.Concat([]string{
		"--reuid", id, "--regid", id, "--clear-groups", "--no-new-privs",
		"--inh-caps=" + set, "--ambient-caps=" + set, "--bounding-set=" + set, "/proc/self/exe",
	}, args)...)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[slices.Index(cmd.Args, "/proc/self/exe")] = self // the other one would be setpriv
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	return cmd
}

func serviceFolder(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("only root can become the service user")
	}
	dir, err := os.MkdirTemp("", "airlock-service-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, serviceUser, serviceUser); err != nil {
		t.Fatal(err)
	}
	return dir
}

// asServiceOnGvisor are the rules and rows whose outcome may depend on who the server is. All of them take minutes there.
const asServiceOnGvisor = "/^(OutcomesAreDifferent|CellsKeepState|FileComesBackAsItWent|GuestWritesWithTheRightsAskedFor|FrozenSandboxDoesNothing|" +
	"WorkspaceOutlivesItsSandbox|LimitsAreInForce|UsageIsCounted|CloseDestroysTheLiving|SweepLeavesNeighboursAlone|" +
	"CheckpointKeepsVariablesAndProcesses|T24|T27|T51)"

// The whole suite and every attempt, as the user of deploy/airlock.service.
func TestAsTheServiceUser(t *testing.T) {
	for name, part := range map[string]struct {
		tests string
		least int
	}{"native": {"", 60}, "gvisor": {asServiceOnGvisor, 14}} {
		t.Run(name, func(t *testing.T) {
			needDriver(t, name)
			cmd := asService(t, serviceFolder(t), granted(t, "AmbientCapabilities"), "-test.v", "-test.run", "^(TestConformance|TestThreats)$/^"+name+"$"+part.tests)
			out, err := cmd.CombinedOutput()
			passed := strings.Count(string(out), "\n        --- PASS: ")
			if err != nil || passed < part.least {
				t.Fatalf("as the service user: %v, %d rules and rows passed:\n%s", err, passed, out)
			}
			t.Logf("%d rules and rows passed as uid %d", passed, serviceUser)
		})
	}
}

func TestMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	dir := serviceFolder(t)
	for _, missing := range []string{"CAP_MKNOD", "CAP_SYS_ADMIN"} {
		have := slices.DeleteFunc(granted(t, "AmbientCapabilities"), func(name string) bool { return name == missing })
		out, err := asService(t, dir, have, "-test.run", "^TestConformance$").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "needs "+missing+" to") {
			t.Errorf("without %s: %v\n%s", missing, err, out)
		}
	}
}
