//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
	"github.com/airlock-sandbox/airlock/internal/sandbox/host"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/server"
)

// errUnsafe ends `airlock doctor` with exit code 1; the report has said why.
var errUnsafe = errors.New("serving would be unsafe or impossible on this machine: see the failed checks")

func newDoctorCommand() *cobra.Command {
	var o attackOptions
	var attacking bool
	var part string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what isolation and limits this machine gives and lacks",
		Long: "doctor tries everything that a sandbox needs, names what is missing, what that means and the line to type.\n" +
			"It makes what it needs for that and takes it away again; a server may run meanwhile. Exit code 0: code can be run safely here; 1: it cannot.\n\n" +
			"With --attack it makes every attempt of the threat model on this very machine, in sandboxes of its own, and writes a dated report.\n" +
			"That takes a few minutes, one core and 1 GiB of memory and disk. Exit code 1 if something that must hold does not.",
		Example: "  sudo airlock doctor\n  sudo airlock doctor --json | jq '.checks[] | select(.status != \"ok\")'\n  sudo airlock doctor --attack --out reports",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.images == "" {
				o.images = filepath.Join(dataHome(), "rootfs")
			}
			switch {
			case part != "":
				return attack.PlayPart(cmd.Context(), attackFactory(o.driver, o.runsc, o.images), part)
			case attacking:
				return runAttack(cmd, o)
			}
			options, err := hostOptions(o)
			if err != nil {
				return usageError(cmd, err)
			}
			report := host.Run(cmd.Context(), options)
			if err := writeReport(cmd.OutOrStdout(), report, o.json, ownRights().advice(os.Args)); err != nil {
				return err
			}
			if !report.Safe {
				return errUnsafe
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	cmd.Flags().StringVar(&o.data, "data", dataHome(), "data folder whose disk is looked at")
	cmd.Flags().StringVar(&o.config, "config", "", "settings file of the server (default $AIRLOCK_CONFIG)")
	cmd.Flags().StringVar(&o.images, "rootfs", "", "folder of root file systems (default $XDG_DATA_HOME/airlock/rootfs)")
	cmd.Flags().StringVar(&o.driver, "driver", "auto", "sandbox driver to test: auto, native or gvisor")
	cmd.Flags().StringVar(&o.runsc, "runsc", os.Getenv("AIRLOCK_SANDBOX_RUNSC"), "gVisor's program (default: beside airlock, else in PATH)")
	cmd.Flags().BoolVar(&attacking, "attack", false, "make every attempt of the threat model here and write a dated report")
	cmd.Flags().IntSliceVar(&o.rows, "rows", nil, "rows of the threat model to try with --attack (default all)")
	cmd.Flags().StringVar(&o.out, "out", ".", "folder for the report of --attack")
	cmd.Flags().StringVar(&part, "attack-part", "", "play a part of an attempt; used by --attack itself")
	// The flag is there; marking it cannot fail.
	_ = cmd.Flags().MarkHidden("attack-part")
	return cmd
}

// dataHome is $XDG_DATA_HOME/airlock with the fallback of that standard.
func dataHome() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "airlock")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(string(filepath.Separator), "var", "lib", "airlock")
	}
	return filepath.Join(home, ".local", "share", "airlock")
}

// hostOptions is what a server with the same settings would go by.
func hostOptions(o attackOptions) (host.Options, error) {
	cfg, err := server.LoadConfig(server.LoadOptions{Env: os.Environ(), File: o.config, Flags: map[string]string{"data": o.data}})
	if err != nil {
		return host.Options{}, err
	}
	all := host.Options{
		Data: o.data, RootFS: o.images, Runsc: o.runsc, CgroupParent: cfg.Sandbox.CgroupParent, Reserve: cfg.Sandbox.Reserve,
		Largest:  func(ctx context.Context) (string, error) { return largestApps(ctx, &cfg) },
		SelfTest: func(ctx context.Context) error { return sandboxSelfTest(ctx, o) },
		TryGVisor: func(ctx context.Context) error {
			gvisor := o
			gvisor.driver = "gvisor"
			return sandboxSelfTest(ctx, gvisor)
		},
	}
	all.Crowded, all.Full = cfg.Disk.Levels()
	return all, nil
}

// largestApps names the apps that keep most in a data folder, in one line.
func largestApps(ctx context.Context, cfg *server.Config) (string, error) {
	all, err := server.LargestApps(ctx, cfg)
	var words []string
	for _, a := range all[:min(len(all), 5)] {
		words = append(words, a.Name+" "+byteCount(a.Bytes))
	}
	return strings.Join(words, ", "), err
}

// writeReport shows what was found; advice is what to do first where something failed.
func writeReport(w io.Writer, r host.Report, asJSON bool, advice string) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	var b strings.Builder
	counts := map[host.Status]int{}
	for _, c := range r.Checks {
		counts[c.Status]++
		fmt.Fprintf(&b, "%-4s  %-18s  %s\n", c.Status, c.Name, c.Found)
		if c.Status == host.OK {
			continue
		}
		if c.Means != "" {
			fmt.Fprintf(&b, "      %-18s  %s\n", "", c.Means)
		}
		if c.Remedy != "" {
			fmt.Fprintf(&b, "      %-18s  -> %s\n", "", c.Remedy)
		}
	}
	verdict := "code can be run safely here"
	if !r.Safe {
		verdict = "code cannot be run safely here"
	}
	fmt.Fprintf(&b, "\n%d ok, %d warnings, %d failed: %s\n", counts[host.OK], counts[host.Warn], counts[host.Fail], verdict)
	if !r.Safe && advice != "" {
		fmt.Fprintln(&b, advice)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sandboxSelfTest makes one sandbox, the way serving would, and runs a
// command in it. The smallest root file system present is the quickest.
func sandboxSelfTest(ctx context.Context, o attackOptions) (err error) {
	image, err := smallestImage(o.images)
	if err != nil {
		return err
	}
	run, err := os.MkdirTemp("", "airlock-doctor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(run)) }()
	d, err := drivers.New(ctx, o.driver, drivers.Options{Host: doctorHost(run), Runsc: o.runsc})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(context.WithoutCancel(ctx))) }()
	if _, err := d.Probe(ctx); err != nil {
		return err
	}
	sb, err := d.Create(ctx, sandbox.Spec{ID: "selftest", RootFS: image.Path, Limits: selfTestLimits().WithDefaults()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Destroy(context.WithoutCancel(ctx))) }()
	var out bytes.Buffer
	res, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"/bin/echo", "ready"}, Stdout: &out, Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	if res.Code != 0 || out.String() != "ready\n" {
		return fmt.Errorf("echo in a sandbox ended with code %d and said %q", res.Code, out.String())
	}
	return nil
}

// doctorHost keeps everything below a folder that goes again. Its id ranges are no server's, because the locks that keep
// ranges apart lie in a folder of the host that only a server may make.
func doctorHost(run string) sandbox.Host {
	return sandbox.Host{
		ID: fmt.Sprintf("doctor%d", os.Getpid()), RunDir: run, LeaseDir: filepath.Join(run, "ids"), FirstUID: 3 << 30,
	}
}

func selfTestLimits() sandbox.Limits {
	return sandbox.Limits{MemoryBytes: 128 << 20, DiskBytes: 16 << 20, Inodes: 1000, Wall: 10 * time.Second}
}

func smallestImage(dir string) (*rootfs.Image, error) {
	store := &rootfs.Store{Dir: dir}
	images, err := store.List()
	if err != nil {
		return nil, err
	}
	var smallest *rootfs.Image
	for _, image := range images {
		// An image of unknown size is no candidate unless it is the only one.
		if smallest == nil || image.Size > 0 && (smallest.Size == 0 || image.Size < smallest.Size) {
			smallest = image
		}
	}
	if smallest == nil {
		return nil, errors.New("no root file system in " + dir)
	}
	return smallest, nil
}
