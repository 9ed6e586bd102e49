package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

// options are the flags.
type options struct {
	live, cycles, rounds int
	gvisorLive, idle     int
	crowd                int
	out, binary, rootfs  string
	runsc, drivers       string
}

func main() {
	var o options
	flag.IntVar(&o.live, "live", 100, "how many containers live at once; the budget is 500")
	flag.IntVar(&o.gvisorLive, "gvisor-live", 40, "the same for the gvisor driver; the budget is 200")
	flag.StringVar(&o.drivers, "drivers", "native,gvisor", "the drivers to measure")
	flag.StringVar(&o.runsc, "runsc", filepath.Join("bin", "runsc"), "gVisor's program, see make runsc; empty leaves its rows out")
	flag.IntVar(&o.idle, "idle", 200, "how many workspaces are packed in the row about idle containers; the budget is 100,000")
	flag.IntVar(&o.crowd, "crowd", 200_000, "how many files of 20,000 users in 50 apps lie on the server that is compared with an empty one")
	flag.IntVar(&o.cycles, "cycles", 500, "how often a sandbox is made and destroyed in the leak row; the budget is 10,000")
	flag.IntVar(&o.rounds, "rounds", 30, "how often each interleaved candidate runs")
	flag.StringVar(&o.out, "out", filepath.Join("bench", "results", "latest.json"), "where the results go")
	flag.StringVar(&o.binary, "binary", filepath.Join("bin", "airlock"), "the built server; empty leaves its rows out")
	flag.StringVar(&o.rootfs, "rootfs", os.Getenv("AIRLOCK_TEST_ROOTFS"), "folder of a root file system; default: the smallest of the store")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) // nothing could be measured; a missed budget is a row
	}
}

// run measures everything it can and fails only when nothing could be: a
// missed budget is a row that says so.
func run(ctx context.Context, o options) (err error) {
	if o.rootfs == "" {
		if o.rootfs, err = smallestRootFS(); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "airlock-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(os.Stdout, "root file system %s, load %s\n", o.rootfs, loadAverage())
	l, err := openLab(ctx, driverName, dir, o.rootfs, drivers.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close(context.WithoutCancel(ctx))) }()
	var results, late []result
	if strings.Contains(o.drivers, "native") {
		results = sandboxRows(ctx, l, o)
	}
	if o.runsc != "" && strings.Contains(o.drivers, "gvisor") {
		g, err := openLab(ctx, "gvisor", dir, o.rootfs, drivers.Options{Runsc: o.runsc})
		if err != nil {
			results = append(results, failed("gvisor rows", err))
		} else {
			results = append(results, gvisorRows(ctx, g, o)...)
			if o.binary != "" {
				late = serverRows(ctx, g, o)
			}
			if err := g.close(context.WithoutCancel(ctx)); err != nil {
				results = append(results, failed("close the gvisor driver", err))
			}
		}
	}
	if o.binary != "" {
		results = append(append(results, serverRows(ctx, l, o)...), late...)
		results = append(results, crowdRows(ctx, l, o)...)
	}
	fmt.Fprintf(os.Stdout, "load afterwards %s\n\n", loadAverage())
	if err := printTable(os.Stdout, results); err != nil {
		return err
	}
	return writeResults(o.out, results)
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

func smallestRootFS() (string, error) {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		data = filepath.Join(home, ".local", "share")
	}
	store := &rootfs.Store{Dir: filepath.Join(data, "airlock", "rootfs")}
	images, err := store.List()
	if err != nil {
		return "", err
	}
	var smallest *rootfs.Image
	for _, image := range images {
		// An image of unknown size is no candidate unless it is the only one.
		if smallest == nil || image.Size > 0 && (smallest.Size == 0 || image.Size < smallest.Size) {
			smallest = image
		}
	}
	if smallest == nil {
		return "", fmt.Errorf("no root file system in %s, run: airlock rootfs build --profile min", store.Dir)
	}
	return smallest.Path, nil
}
