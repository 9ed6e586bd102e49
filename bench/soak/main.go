package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	binary, out, driver string
	seed                uint64
	cycles, containers  int
	workers             int
	life                time.Duration
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == clockMode {
		if err := serveWithClock(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "soak clock server:", err)
			os.Exit(1) // the soak that started it sees that it did not end in order
		}
		return
	}
	var o options
	flag.StringVar(&o.binary, "binary", filepath.Join("bin", "airlock"), "the built server")
	flag.StringVar(&o.out, "out", filepath.Join("bench", "results"), "folder of the report")
	flag.StringVar(&o.driver, "driver", "native", "sandbox driver: native or gvisor")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random choices")
	flag.IntVar(&o.cycles, "cycles", 10_000, "how often a container is made, used and deleted")
	flag.IntVar(&o.containers, "containers", 2_000, "how many containers live through the chaos")
	flag.IntVar(&o.workers, "workers", 48, "how many of them at a time")
	flag.DurationVar(&o.life, "life", 18*time.Minute, "how long the chaos lasts at the least; it ends when all containers have lived")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1) // there are faults, or it could not run
	}
}

// run fails if the soak could not be run or if it found anything.
func run(ctx context.Context, o options) (err error) {
	r := newReport(o)
	w, err := newWorld(ctx, o, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(), r.verdict()) }()
	for _, phase := range []struct {
		name string
		run  func(context.Context, *world) error
	}{
		{"create and destroy", cycles},
		{"life under chaos", lives},
		{"jumping clock", clockJumps},
	} {
		r.begin(phase.name)
		if err := phase.run(ctx, w); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", phase.name, err), r.write())
		}
		r.end(phase.name)
	}
	w.finalChecks(ctx)
	return r.write()
}

// random gives each worker its own choices.
func (o options) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) } //nolint:gosec // choices, no secrets
