//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
)

// errNotHeld ends `airlock doctor --attack` with exit code 1; the report has said what.
var errNotHeld = errors.New("an attempt got through or could not be made: see the report")

// attackOptions are the flags of `airlock doctor`.
type attackOptions struct {
	driver, runsc, images, data, config, out string
	rows                                     []int
	json                                     bool
}

// What the attempts need of the machine at the same time, beside what it does already.
const (
	attackMemory = 1 << 30
	attackDisk   = 1 << 30
)

// runAttack makes every attempt of the threat model on this machine and writes the report.
func runAttack(cmd *cobra.Command, o attackOptions) error {
	image, err := smallestImage(o.images)
	if err != nil {
		return fmt.Errorf("%w, run: airlock rootfs build --profile min", err)
	}
	threats, err := chosenThreats(o.rows)
	if err != nil {
		return usageError(cmd, err)
	}
	dir, err := attackFolder(o.data)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty but after a failure that was reported
	if err := roomToAttack(dir); err != nil {
		return err
	}
	names, err := attackDrivers(cmd.Context(), o, doctorHost(dir))
	if err != nil {
		return err
	}
	var reports []attack.Report
	for _, name := range names {
		report, err := attackOne(cmd, attackFactory(name, o.runsc, image.Path), dir, threats)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	return finishAttack(cmd, o, reports)
}

// attackDrivers is what a server with this setting could come to use, found out as the host instance of this doctor.
func attackDrivers(ctx context.Context, o attackOptions, h sandbox.Host) ([]string, error) {
	d, err := drivers.New(ctx, o.driver, drivers.Options{Host: h, Runsc: o.runsc})
	if err != nil {
		return nil, err
	}
	defer d.Close(context.WithoutCancel(ctx))
	return []string{d.Name()}, nil
}

// chosenThreats are the attempts for these rows of the threat model; none means all.
func chosenThreats(rows []int) ([]attack.Threat, error) {
	all := attack.Threats()
	if len(rows) == 0 {
		return all, nil
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(t attack.Threat) bool { return !slices.Contains(rows, t.Row) })
	for _, row := range rows {
		if !slices.ContainsFunc(chosen, func(t attack.Threat) bool { return t.Row == row }) {
			return nil, fmt.Errorf("--rows: there is no attempt for row %d of the threat model", row)
		}
	}
	return chosen, nil
}

func attackOne(cmd *cobra.Command, f attack.Factory, dir string, threats []attack.Threat) (attack.Report, error) {
	show := newNotes(cmd)
	show.line("%d attempts on the %s driver, one after the other, in sandboxes of their own; Ctrl-C ends it cleanly", len(threats), f.Name)
	made := 0
	return attack.Run(cmd.Context(), f, dir, threats, func(r attack.Result) {
		made++
		show.line("%3d/%d  %-10s  %2d %s (%.1f s)", made, len(threats), r.Outcome, r.Row, r.Name, r.Seconds)
	})
}

func attackFactory(driver, runsc, image string) attack.Factory {
	return attack.Factory{
		Name: driver, RootFS: image,
		New: func(h sandbox.Host) (sandbox.Driver, error) {
			return drivers.New(context.Background(), driver, drivers.Options{Host: h, Runsc: runsc})
		},
		Part: func(ctx context.Context, part string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "/proc/self/exe", "doctor", "--attack-part", part, "--driver", driver, "--runsc", runsc, "--rootfs", image)
			cmd.Args[0] = os.Args[0] // a binary of several programs knows by it which one is meant
			return cmd
		},
	}
}

// attackFolder lies where a server would keep its workspaces, because what a disk does is part of the answer.
func attackFolder(data string) (string, error) {
	if st, err := os.Stat(data); err != nil || !st.IsDir() {
		data = ""
	}
	return os.MkdirTemp(data, "airlock-attack-")
}

// roomToAttack refuses to press a machine that is short of something already.
func roomToAttack(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < attackDisk {
		return fmt.Errorf("%s has %s free; the attempts fill disks and want %s", filepath.Dir(dir), byteCount(free), byteCount(attackDisk))
	}
	memory, err := sandbox.NewMemory(sandbox.Host{})
	if err != nil {
		return err
	}
	_, free, err := memory.Read()
	if err == nil && free < attackMemory {
		return fmt.Errorf("%s of memory are available; the attempts use it up and want %s", byteCount(free), byteCount(attackMemory))
	}
	return err
}

func finishAttack(cmd *cobra.Command, o attackOptions, reports []attack.Report) error {
	path, err := writeAttackReport(o.out, reports)
	if err != nil {
		return err
	}
	newNotes(cmd).line("report: %s", path)
	safe := true
	for _, r := range reports {
		safe = safe && r.Safe()
	}
	if o.json {
		err = printJSON(cmd.OutOrStdout(), map[string]any{"safe": safe, "report": path, "drivers": reports})
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), attackSummary(reports))
	}
	if err == nil && !safe {
		err = errNotHeld
	}
	return err
}

func attackSummary(reports []attack.Report) string {
	var b strings.Builder
	for _, r := range reports {
		for _, row := range r.Results {
			if row.Outcome == attack.NotHeld || row.Outcome == attack.NotTried {
				fmt.Fprintf(&b, "%s: row %d %s: %s\n%s\n", r.Driver, row.Row, row.Name, row.Outcome, row.Detail)
			}
		}
		fmt.Fprintf(&b, "%s: %d attempts, %d held, %d got through as documented, %d did not hold, %d could not be tried\n",
			r.Driver, len(r.Results), r.Count(attack.Held), r.Count(attack.Documented), r.Count(attack.NotHeld), r.Count(attack.NotTried))
	}
	return b.String()
}

// writeAttackReport makes a new file with the day in its name; an older report of the same day stays.
func writeAttackReport(dir string, reports []attack.Report) (string, error) {
	day := time.Now().UTC().Format(time.DateOnly)
	var b strings.Builder
	fmt.Fprintf(&b, "# Attack report %s\n\nMade by `airlock doctor --attack`, airlock %s. The rows are those of docs/threat-model.md.\n", day, buildVersion)
	for _, r := range reports {
		b.WriteString("\n" + r.Markdown())
	}
	for n := 1; ; n++ {
		name := "airlock-attack-" + day + ".md"
		if n > 1 {
			name = fmt.Sprintf("airlock-attack-%s (%d).md", day, n)
		}
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("write report: %w", err)
		}
		_, err = f.WriteString(b.String())
		return path, errors.Join(err, f.Close())
	}
}
