package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// probeLimit is the time for the self-test; a host on which it takes longer cannot serve.
const probeLimit = 10 * time.Second

// Probe implements sandbox.Driver. It makes a sandbox on an empty root, in which only the guest runs.
func (d *Driver) Probe(ctx context.Context) (caps sandbox.Capabilities, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	root, err := os.MkdirTemp(d.host.RunDir, d.host.Prefix()+"probe-")
	if err != nil {
		return caps, fmt.Errorf("probe sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	for _, dir := range []string{"proc", "dev", "tmp", "workspace", "files"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return caps, fmt.Errorf("probe sandbox: %w", err)
		}
	}
	limits := sandbox.DefaultLimits()
	limits.MemoryBytes, limits.DiskBytes, limits.Inodes = 256<<20, 16<<20, 1024
	sb, err := d.Create(ctx, sandbox.Spec{ID: "probe-" + filepath.Base(root)[len(d.host.Prefix()+"probe-"):], RootFS: root, Limits: limits})
	if err != nil {
		return caps, fmt.Errorf("probe sandbox: %w", err)
	}
	if err := errors.Join(exercise(ctx, sb), sb.Destroy(ctx)); err != nil {
		return caps, fmt.Errorf("probe sandbox: %w", err)
	}
	disk := "tmpfs"
	if _, err := os.Stat("/dev/loop-control"); err == nil {
		disk = "loop-ext4"
	}
	mode := d.cgroups.Mode()
	return sandbox.Capabilities{
		Driver: d.Name(), CgroupMode: string(mode), MemoryLimit: true, SwapLimit: d.cgroups.SwapLimited(), ProcessLimit: true,
		CPULimit: true, DiskLimit: disk, Freeze: true, AtomicKill: mode != sandbox.CgroupV1, Seccomp: true,
	}, nil
}

func exercise(ctx context.Context, sb *sandbox.Sandbox) error {
	if err := sb.Ping(ctx); err != nil {
		return err
	}
	if err := sb.Freeze(ctx); err != nil {
		return err
	}
	if err := sb.Thaw(ctx); err != nil {
		return err
	}
	_, err := sb.Usage(ctx)
	return err
}
