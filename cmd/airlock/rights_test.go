//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox/host"
)

func TestMissingRightsAreNamedWithTheNextLineToType(t *testing.T) {
	t.Parallel()
	args := []string{"bin/airlock", "serve", "--data", "/srv/my data", "--upstream", "script"}
	for _, tt := range []struct {
		name   string
		rights rights
		want   []string
	}{
		{"a user", rights{1000, []string{"CAP_CHOWN", "CAP_SYS_ADMIN"}}, []string{"need root", "uid 1000", "\nrun: sudo -E bin/airlock serve --data '/srv/my data' --upstream script"}},
		{"root in a container", rights{0, []string{"CAP_SYS_ADMIN", "CAP_MKNOD"}}, []string{"lacks CAP_SYS_ADMIN,", "docker run --privileged"}},
		{"root", rights{0, nil}, nil},
	} {
		got := tt.rights.advice(args)
		if tt.want == nil && got != "" {
			t.Errorf("%s: %s", tt.name, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in: %s", tt.name, want, got)
			}
		}
	}
}

func TestShellReadsAQuotedLineAsItWas(t *testing.T) {
	t.Parallel()
	if got := shellLine([]string{"a", "", "it's $HOME", "--url=http://h:1/x"}); got != `a '' 'it'\''s $HOME' --url=http://h:1/x` {
		t.Errorf("got %s", got)
	}
}

// Most of a report's failed checks follow from one right that is missing: that is what it ends with.
func TestDoctorEndsWithTheMissingRight(t *testing.T) {
	t.Parallel()
	report := host.Report{Checks: []host.Check{{Name: "root", Status: host.Fail, Found: "uid 1000"}}}
	var out bytes.Buffer
	if err := writeReport(&out, report, false, "sandboxes need root\nrun: sudo -E airlock doctor"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "cannot be run safely here\nsandboxes need root\nrun: sudo -E airlock doctor\n") {
		t.Errorf("the report ends otherwise:\n%s", out.String())
	}
}

// A user without rights is told what is missing by every command that serves, and nothing is served.
func TestServingAsAnotherUserNamesTheNextLineToType(t *testing.T) {
	t.Parallel()
	dir := forNobody(t)
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"ask", "hello"}, {"doctor"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "airlock"), args...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=/usr/bin:/bin", "AIRLOCK_UPSTREAM=script"}
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := cmd.CombinedOutput()
		if code := exitCode(t, err); code != 1 || !strings.Contains(string(out), "sandboxes need root") ||
			!strings.Contains(string(out), "\nrun: sudo -E airlock "+strings.Join(args, " ")+"\n") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

const nobody = 65534

// forNobody is a folder of that user with the binary in it: tests have theirs where only their own user gets.
func forNobody(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("airlock")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "airlock-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := save(filepath.Join(dir, "airlock"), func(w io.Writer) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		return errors.Join(err, f.Close())
	}); err != nil {
		t.Fatal(err)
	}
	err = os.Chmod(filepath.Join(dir, "airlock"), 0o755)
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(dir, nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
