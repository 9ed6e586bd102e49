package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

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

func options(t *testing.T, runsc string, log *bytes.Buffer) Options {
	t.Helper()
	h := sandbox.Host{ID: "drivers", RunDir: t.TempDir(), LeaseDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(log, nil))}
	return Options{Host: h, Runsc: runsc}
}

func wantDriver(t *testing.T, name string, o Options, want string) {
	t.Helper()
	d, err := New(t.Context(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	if d.Name() != want {
		t.Errorf("%s became %s, want %s", name, d.Name(), want)
	}
	if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestNativeNeedsNoRunsc(t *testing.T) {
	t.Parallel()
	wantDriver(t, "native", options(t, "/no/such/runsc", new(bytes.Buffer)), "native")
}

func TestAutoTakesGVisorWhenItPassesItsSelfTest(t *testing.T) {
	t.Parallel()
	needRunsc(t)
	var log bytes.Buffer
	wantDriver(t, "auto", options(t, runsc, &log), "gvisor")
	if !strings.Contains(log.String(), "passed its self-test") {
		t.Errorf("the log does not say why: %s", log.String())
	}
}

// program is a stand-in for runsc.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAutoFallsBackToNativeAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ runsc, reason string }{
		"missing": {"/no/such/runsc", "no such file"},
		"broken":  {program(t, "no program at all"), "probe sandbox"},
	} {
		var log bytes.Buffer
		wantDriver(t, "auto", options(t, tt.runsc, &log), "native")
		if !strings.Contains(log.String(), tt.reason) || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "driver=native") {
			t.Errorf("%s: the log does not warn and say why: %s", name, log.String())
		}
	}
}

// Who has no runsc and names none does not count on it.
func TestAutoWithoutRunscIsNoWarning(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var log bytes.Buffer
	wantDriver(t, "auto", options(t, "", &log), "native")
	if !strings.Contains(log.String(), "level=INFO") || strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "runsc not found") {
		t.Errorf("the log is %s", log.String())
	}
}

// slow is a driver whose first self-tests end as errs say.
type slow struct {
	sandbox.Driver
	errs []error
}

func (d *slow) Name() string { return "slow" }

func (d *slow) Probe(context.Context) (sandbox.Capabilities, error) {
	if len(d.errs) == 0 {
		return sandbox.Capabilities{}, nil
	}
	err := d.errs[0]
	d.errs = d.errs[1:]
	return sandbox.Capabilities{}, err
}

func TestSelfTestThatTookTooLongIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	late, broken := fmt.Errorf("probe sandbox: %w", context.DeadlineExceeded), errors.New("no kernel")
	for name, tt := range map[string]struct {
		errs []error
		ok   bool
	}{
		"at once":        {nil, true},
		"late once":      {[]error{late}, true},
		"late twice":     {[]error{late, late}, false},
		"late, broken":   {[]error{late, broken}, false},
		"broken at once": {[]error{broken}, false},
	} {
		if err := selfTest(t.Context(), &slow{errs: tt.errs}, slog.New(slog.DiscardHandler)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hanging is a runsc that starts and never does anything, as one does on a platform that does not work: a program without
// libraries, because nothing but runsc is where it runs.
func hanging(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := "package main\n\nimport \"time\"\n\nfunc main() {\n\tfor {\n\t\ttime.Sleep(time.Hour)\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "runsc")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, filepath.Join(dir, "main.go"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a program that hangs: %v\n%s", err, out)
	}
	return path
}

// Who wants gvisor alone is refused and never gets another driver; auto goes on without it.
func TestRunscThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	path := hanging(t)
	o := options(t, path, new(bytes.Buffer))
	o.Host.ID = "hanging"
	d, err := New(t.Context(), "gvisor", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Probe(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not start within 5s") {
		t.Errorf("the self-test of a runsc that hangs: %v", err)
	}
	if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(o.Host.RunDir); err != nil || len(left) > 0 {
		t.Errorf("left in the run folder: %v, %v", left, err)
	}
	var log bytes.Buffer
	wantDriver(t, "auto", options(t, path, &log), "native")
	if !strings.Contains(log.String(), "did not start within 5s") || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "once more") {
		t.Errorf("the log does not warn and say why: %s", log.String())
	}
}

func TestGVisorWithoutRunscNamesTheRemedy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(t.Context(), "gvisor", options(t, "", new(bytes.Buffer)))
	if err == nil || !strings.Contains(err.Error(), "make runsc") || !strings.Contains(err.Error(), "sandbox.runsc") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownDriverNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, err := New(t.Context(), "docker", Options{})
	if err == nil || !strings.Contains(err.Error(), "auto, native or gvisor") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownPlatformNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, err := New(t.Context(), "gvisor", Options{Host: sandbox.Host{ID: "drivers"}, Platform: "ptrace"})
	if err == nil || !strings.Contains(err.Error(), "systrap") {
		t.Errorf("got %v", err)
	}
}
