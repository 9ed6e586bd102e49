package native

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// destroyLimit is how long the kernel gets to end what it was told to kill.
const destroyLimit = 10 * time.Second

// instance implements sandbox.Instance.
type instance struct {
	d      *Driver
	id     string
	lease  *sandbox.IDRange
	cgroup *sandbox.Cgroup
	proc   *os.Process
	stderr spawn.LastWords

	oomSeen   atomic.Int64 // the counter as the last command read it
	oomAtExit atomic.Int64 // how far it was beyond that when the guest ended by SIGKILL
	killed    atomic.Bool  // we asked for the end
	exited    chan struct{}

	mu        sync.Mutex // held during Destroy
	destroyed bool
}

// watch reaps the guest. It is the only place that waits for the process.
func (i *instance) watch() {
	state, err := i.proc.Wait()
	if err == nil {
		if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signal() == syscall.SIGKILL {
			i.oomAtExit.Store(i.cgroup.OOMKills() - i.oomSeen.Load())
		}
	}
	close(i.exited)
	if !i.killed.Load() {
		i.stderr.Wait()
		// The guest's last words are the only trace of a crash; they go to the operator, never to a caller.
		i.d.host.Logger().Warn("sandbox guest ended by itself", "sandbox_id", i.id, "state", fmt.Sprint(state), "stderr", i.stderr.Tail())
	}
}

// Exited implements sandbox.Instance.
func (i *instance) Exited() (<-chan struct{}, func() bool) {
	return i.exited, func() bool { return i.oomAtExit.Load() > 0 }
}

func (i *instance) oomCount() int64 {
	n := i.cgroup.OOMKills()
	i.oomSeen.Store(n)
	return n
}

// SetFrozen implements sandbox.Instance.
func (i *instance) SetFrozen(ctx context.Context, frozen bool) error {
	var err error
	if frozen {
		err = i.cgroup.Freeze(ctx)
	} else {
		err = i.cgroup.Thaw()
	}
	if err != nil {
		return fmt.Errorf("freeze sandbox %s: %w", i.id, err)
	}
	return nil
}

// Usage implements sandbox.Instance.
func (i *instance) Usage(context.Context) (sandbox.Usage, error) {
	u, err := i.cgroup.Usage()
	if err != nil {
		return u, fmt.Errorf("usage of sandbox %s: %w", i.id, err)
	}
	return u, nil
}

// Destroy implements sandbox.Instance. Every step can be repeated, so that a destroy that failed half way can be tried
// again.
func (i *instance) Destroy(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.destroyed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, destroyLimit)
	defer cancel()
	if err := i.kill(ctx); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", i.id, err)
	}
	if i.cgroup != nil {
		if err := i.cgroup.Remove(ctx); err != nil {
			return fmt.Errorf("destroy sandbox %s: %w", i.id, err)
		}
	}
	if i.lease != nil {
		i.lease.Release()
	}
	i.d.forget(i)
	i.destroyed = true
	return nil
}

// kill ends everything inside and waits for it. The guest is the first process of its PID namespace: when it has been
// reaped, the kernel has killed and reaped all others, whatever they ignored.
func (i *instance) kill(ctx context.Context) error {
	if i.proc == nil {
		return nil
	}
	// The group dies at once where the kernel can do that; the signal to the guest is what counts everywhere, and
	// an error of either shows as a process that does not end.
	i.killed.Store(true)
	_ = i.cgroup.Kill()
	_ = i.proc.Kill()
	select {
	case <-i.exited:
	case <-ctx.Done():
		return fmt.Errorf("guest does not end: %w", context.Cause(ctx))
	}
	i.stderr.Wait()
	return nil
}
