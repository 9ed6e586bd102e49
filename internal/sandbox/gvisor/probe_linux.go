package gvisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// probeLimit is the time for the self-test. A device such as /dev/kvm proves nothing: a platform that does not work hangs.
const probeLimit = 5 * time.Second

// Probe implements sandbox.Driver. It makes a sandbox on an empty root, in which only the guest runs.
func (d *Driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("gVisor on platform %s did not start within %s: %w", d.platform, probeLimit, context.DeadlineExceeded))
	defer cancel()
	if err := spawn.SelfTest(ctx, d.host, d.Create); err != nil {
		return sandbox.Capabilities{}, fmt.Errorf("probe sandbox: %w", err)
	}
	disk := "tmpfs"
	if _, err := os.Stat("/dev/loop-control"); err == nil {
		disk = "loop-ext4"
	}
	mode := d.cgroups.Mode()
	return sandbox.Capabilities{
		Driver: d.Name(), CgroupMode: string(mode), MemoryLimit: true, SwapLimit: d.cgroups.SwapLimited(), ProcessLimit: true,
		CPULimit: true, DiskLimit: disk, Freeze: true, AtomicKill: mode != sandbox.CgroupV1, Kernel: true, Seccomp: true,
		Snapshot: true, ShareBytes: 40 << 20,
	}, nil
}
