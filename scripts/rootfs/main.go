//go:build linux

// Command rootfs makes the root file system of the demo while the compiler is still at work on airlock: on a fresh machine
// each takes minutes, and this program has little to compile. AIRLOCK_ROOTFS is the folder of root file systems.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "root file system:", err)
		os.Exit(1) // the end of the program
	}
}

func build(ctx context.Context) error {
	dir := os.Getenv("AIRLOCK_ROOTFS")
	if dir == "" {
		return errors.New("AIRLOCK_ROOTFS: not set")
	}
	var phase rootfs.Phase
	_, err := (&rootfs.Store{Dir: dir}).Build(ctx, rootfs.BuildOptions{Progress: func(p rootfs.Progress) {
		if p.Phase != phase {
			phase = p.Phase
			fmt.Fprintf(os.Stderr, "  root file system: %s …\n", phase)
		}
	}})
	return err
}
