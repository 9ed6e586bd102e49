package spawn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// DestroyLimit is how long the kernel gets to end what it was told to kill.
const DestroyLimit = 10 * time.Second

// Instance implements sandbox.Instance around the first process of a sandbox. Its maker fills in the fields in the order in
// which the resources are taken; nil is one that was not.
type Instance struct {
	ID string
	// Log takes the last words of a process that ended by itself.
	Log *slog.Logger
	// Together means that the sandbox cannot live on when the memory limit ends any process of it.
	Together bool

	Lease  *sandbox.IDRange
	Cgroup *sandbox.Cgroup
	Proc   *os.Process
	Stderr LastWords

	oomSeen   atomic.Int64 // the counter as the last command read it
	oomAtExit atomic.Int64 // how far it was beyond that when the process was ended
	killed    atomic.Bool  // we asked for the end
	asked     atomic.Bool  // the process was asked to end by itself
	exited    chan struct{}

	forget func() // leaves the fleet

	mu        sync.Mutex // held during Destroy
	destroyed bool
}

// Watch begins to wait for the process. Nobody else may.
func (i *Instance) Watch() {
	i.exited = make(chan struct{})
	go i.watch()
}

func (i *Instance) watch() {
	state, err := i.Proc.Wait()
	if err == nil {
		if ws, ok := state.Sys().(syscall.WaitStatus); ok && (i.Together || ws.Signal() == syscall.SIGKILL) {
			i.oomAtExit.Store(i.Cgroup.OOMKills() - i.oomSeen.Load())
		}
	}
	close(i.exited)
	if !i.killed.Load() && (!i.asked.Load() || err != nil || !state.Success()) {
		i.Stderr.Wait()
		// The guest's last words are the only trace of a crash; they go to the operator, never to a caller.
		i.Log.Warn("sandbox guest ended by itself", "sandbox_id", i.ID, "state", fmt.Sprint(state), "stderr", i.Stderr.Tail())
	}
}

// Exited implements sandbox.Instance.
func (i *Instance) Exited() (<-chan struct{}, func() bool) {
	return i.exited, func() bool { return i.oomAtExit.Load() > 0 }
}

// AskToEnd notes that the process is asked to end by itself when it has done something: if that succeeds it is no crash.
func (i *Instance) AskToEnd() { i.asked.Store(true) }

// OOMCount is how often the memory limit has ended a process.
func (i *Instance) OOMCount() int64 {
	n := i.Cgroup.OOMKills()
	i.oomSeen.Store(n)
	return n
}

// SetFrozen implements sandbox.Instance.
func (i *Instance) SetFrozen(ctx context.Context, frozen bool) error {
	var err error
	if frozen {
		err = i.Cgroup.Freeze(ctx)
	} else {
		err = i.Cgroup.Thaw()
	}
	if err != nil {
		return fmt.Errorf("freeze sandbox %s: %w", i.ID, err)
	}
	return nil
}

// SetBackground implements sandbox.Backgrounder.
func (i *Instance) SetBackground(_ context.Context, on bool) error {
	if err := i.Cgroup.SetBackground(on); err != nil {
		return fmt.Errorf("share of sandbox %s: %w", i.ID, err)
	}
	return nil
}

// Usage implements sandbox.Instance.
func (i *Instance) Usage(context.Context) (sandbox.Usage, error) {
	u, err := i.Cgroup.Usage()
	if err != nil {
		return u, fmt.Errorf("usage of sandbox %s: %w", i.ID, err)
	}
	return u, nil
}

// CPU is read around every call: the processor time of all processes so far, in microseconds.
func (i *Instance) CPU() (int64, error) { return i.Cgroup.CPU() }

// WatchPeak begins to look for the most memory in use during a call.
func (i *Instance) WatchPeak() (peak func() (int64, error)) { return i.Cgroup.WatchPeak() }

// Destroy implements sandbox.Instance. Every step can be repeated, so that a destroy that failed half way can be tried
// again.
func (i *Instance) Destroy(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.destroyed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, DestroyLimit)
	defer cancel()
	if err := i.kill(ctx); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", i.ID, err)
	}
	if i.Cgroup != nil {
		if err := i.Cgroup.Remove(ctx); err != nil {
			return fmt.Errorf("destroy sandbox %s: %w", i.ID, err)
		}
	}
	if i.Lease != nil {
		i.Lease.Release()
	}
	if i.forget != nil {
		i.forget()
	}
	i.destroyed = true
	return nil
}

// kill ends everything inside and waits for it. The guest is the first process of its PID namespace: when it has been
// reaped, the kernel has killed and reaped all others, whatever they ignored.
func (i *Instance) kill(ctx context.Context) error {
	if i.Proc == nil {
		return nil
	}
	// The group dies at once where the kernel can do that; the signal to the guest is what counts everywhere, and
	// an error of either shows as a process that does not end.
	i.killed.Store(true)
	_ = i.Cgroup.Kill()
	_ = i.Proc.Kill()
	select {
	case <-i.exited:
	case <-ctx.Done():
		return fmt.Errorf("guest does not end: %w", context.Cause(ctx))
	}
	i.Stderr.Wait()
	return nil
}

// Abandon destroys what a failed creation has made and says what is known of why: sandbox.ErrCutOff if the process is gone
// without a reason, sandbox.ErrCapacity if it went for want of memory, which is the host's, because the least limit is enough
// for a start; and what it last wrote.
func (i *Instance) Abandon(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DestroyLimit)
	defer cancel()
	if err := i.Destroy(ctx); err != nil {
		cause = fmt.Errorf("%w (and clean-up: %w)", cause, err)
	} else if i.Proc != nil && gone(cause) {
		why := sandbox.ErrCutOff
		if i.oomAtExit.Load() > 0 {
			why = sandbox.ErrCapacity
		}
		cause = fmt.Errorf("%w: %w", why, cause)
	}
	if tail := i.Stderr.Tail(); tail != "" {
		cause = fmt.Errorf("%w; guest wrote: %s", cause, tail)
	}
	return cause
}

// gone tells whether the end of the other side explains a failure. One that hangs is not gone, and one that refused has said so.
func gone(err error) bool {
	if _, refused := errors.AsType[walls.RefusedError](err); refused || errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	for _, e := range []error{sandbox.ErrGone, unix.EPIPE, unix.ECONNRESET, unix.ESRCH} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
