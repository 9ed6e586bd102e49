package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Places in which no sandbox can be made: serve refuses, and doctor names what is in the way and the exact remedy. What a
// user without rights is told is tested in rights_test.go.
func TestPlacesWithoutSandboxesNameTheRemedy(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("only root can make such a place")
	}
	for name, place := range map[string]struct {
		unshare      []string
		first, check string
		want         []string
	}{
		"a container host with a masked /proc": {
			[]string{"--mount", "--propagation", "private"},
			"mount -t tmpfs none /proc/fs", "proc",
			[]string{"covered: /proc/fs", "-> docker run --security-opt systempaths=unconfined"},
		},
		"a user that may have no user namespace": {
			[]string{"--user", "--map-root-user"},
			"echo 0 > /proc/sys/user/max_user_namespaces", "user namespaces",
			[]string{"-> sysctl -w user.max_user_namespaces="},
		},
	} {
		data := t.TempDir()
		inside := func(command string) (string, error) {
			script := place.first + " && exec airlock " + command
			cmd := exec.CommandContext(t.Context(), "unshare", append(place.unshare, "sh", "-c", script)...)
			cmd.Env = append(os.Environ(), "AIRLOCK_ROOTFS=", "XDG_DATA_HOME="+data)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		report, err := inside("doctor --driver native")
		if code := exitCode(t, err); code != 1 || !strings.Contains(report, "\nfail  "+place.check+" ") {
			t.Errorf("%s: doctor ended with %d: %s", name, code, report)
		}
		for _, want := range place.want {
			if !strings.Contains(report, want) {
				t.Errorf("%s: the report lacks %q:\n%s", name, want, report)
			}
		}
		said, err := inside("serve --listen 127.0.0.1:0 --upstream script --data " + data)
		if code := exitCode(t, err); code != 1 || !strings.Contains(said, "airlock doctor") || strings.Contains(said, "airlock ready") {
			t.Errorf("%s: serve ended with %d: %s", name, code, said)
		}
	}
}
