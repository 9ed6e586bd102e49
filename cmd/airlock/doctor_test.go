//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/host"
)

func TestDoctorNamesTheLineToTypeForWhatIsMissing(t *testing.T) {
	t.Parallel()
	report := host.Report{Checks: []host.Check{
		{Name: "kernel", Status: host.OK, Found: "Linux 6.1"},
		{Name: "landlock", Status: host.Warn, Found: "not present", Means: "a second lock is missing", Remedy: "add it"},
		{Name: "guest", Status: host.Fail, Found: "not built", Means: "nothing runs", Remedy: "make build"},
	}}
	var out bytes.Buffer
	if err := writeReport(&out, report, false, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok    kernel", "warn  landlock", "-> add it", "fail  guest", "nothing runs", "-> make build", "1 ok, 1 warnings, 1 failed: code cannot be run safely here"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

// The store is empty, so that this fails on any machine, and in the same way.
func TestDoctorExitsWithAnErrorWhenNothingCouldRun(t *testing.T) {
	t.Parallel()
	cmd := newDoctorCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs([]string{"--json", "--rootfs", t.TempDir(), "--data", t.TempDir()})
	if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, errUnsafe) {
		t.Errorf("error %v, want errUnsafe", err)
	}
	var report host.Report
	if err := json.Unmarshal(out.Bytes()[:bytes.LastIndexByte(out.Bytes(), '}')+1], &report); err != nil {
		t.Fatalf("the report is no JSON: %v:\n%s", err, out.String())
	}
	if report.Safe || report.At.IsZero() || len(report.Checks) < 15 {
		t.Errorf("safe %t, at %v, %d checks", report.Safe, report.At, len(report.Checks))
	}
	for _, c := range report.Checks {
		if c.Name == "root file system" && (c.Status != host.Fail || c.Remedy != "airlock rootfs build --profile office") {
			t.Errorf("an empty store is %+v", c)
		}
	}
}

// Servers lease ranges from 0x70000000 on by locks in a folder of the host. The doctor has neither in common with them.
func TestDoctorKeepsOutOfTheServersFoldersAndRanges(t *testing.T) {
	t.Parallel()
	h := doctorHost("/run-of-the-doctor")
	for _, dir := range []string{h.RunDir, h.LeaseDir} {
		if !strings.HasPrefix(dir, "/run-of-the-doctor") {
			t.Errorf("it uses %q", dir)
		}
	}
	const servers, ranges = 0x7000_0000, 4096
	if end := uint64(servers + ranges*sandbox.RangeSize); uint64(h.FirstUID) < end {
		t.Errorf("its ranges begin at %#x, those of servers end at %#x", h.FirstUID, end)
	}
	if err := h.Validate(); err != nil {
		t.Error(err)
	}
}

// What the doctor warns of must be what a server with the same settings does.
func TestDoctorGoesByTheSettingsOfTheServer(t *testing.T) {
	t.Setenv("AIRLOCK_CONFIG", "")
	data := t.TempDir()
	o, err := hostOptions(attackOptions{data: data})
	if err != nil {
		t.Fatal(err)
	}
	if o.Crowded != 0.85 || o.Full != 0.95 || o.Data != data {
		t.Errorf("without settings: %+v", o)
	}
	for _, total := range []int64{1 << 30, 4 << 30, 64 << 30} {
		if got := o.Reserve(total); got != admission.ReserveFor(total) {
			t.Errorf("of %d bytes it keeps %d, the server %d", total, got, admission.ReserveFor(total))
		}
	}
	config := filepath.Join(t.TempDir(), "airlock.yaml")
	if err := os.WriteFile(config, []byte("disk: {full_percent: 98}\nsandbox: {cgroup_parent: /airlock, memory_reserve: 5}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AIRLOCK_DISK_CROWDED_PERCENT", "97")
	if o, err = hostOptions(attackOptions{data: data, config: config}); err != nil {
		t.Fatal(err)
	}
	if o.Crowded != 0.97 || o.Full != 0.98 || o.Reserve(4<<30) != 5 || o.CgroupParent != "/airlock" {
		t.Errorf("with settings: crowded %g, full %g, reserve %d, parent %s", o.Crowded, o.Full, o.Reserve(4<<30), o.CgroupParent)
	}
}

func TestDoctorRefusesSettingsThatDoNotExist(t *testing.T) {
	t.Setenv("AIRLOCK_DISC_FULL_PERCENT", "98")
	if _, err := hostOptions(attackOptions{data: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "AIRLOCK_DISC_FULL_PERCENT") {
		t.Errorf("got %v", err)
	}
}
