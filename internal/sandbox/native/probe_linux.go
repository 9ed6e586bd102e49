package native

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// probeLimit is the time for the self-test; a host on which it takes longer cannot serve.
const probeLimit = 10 * time.Second

// Probe implements sandbox.Driver. It makes a sandbox on an empty root, in which only the guest runs.
func (d *Driver) Probe(ctx context.Context) (caps sandbox.Capabilities, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := spawn.SelfTest(ctx, d.host, d.Create); err != nil {
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
		ShareBytes: 24 << 20,
	}, nil
}
