package spawn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// StartLimit ends a creation that hangs, whatever the caller's own limit is.
const StartLimit = 20 * time.Second

// ErrClosed is the answer of Create once Close was called.
var ErrClosed = errors.New("sandbox driver is closed")

// Fleet is all living sandboxes of one driver. The zero value is ready.
type Fleet struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	live   map[*Instance]struct{}
	making sync.WaitGroup
}

// Create is Once, and once more if that was cut off: whoever kills a process of the host does not know what it was about to
// become, and nothing of the caller has run in it. Both together have the time of one.
func (f *Fleet) Create(ctx context.Context, spec sandbox.Spec, create func(context.Context, sandbox.Spec) (*sandbox.Sandbox, error)) (*sandbox.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	sb, err := f.Once(ctx, spec, create)
	if errors.Is(err, sandbox.ErrCutOff) && ctx.Err() == nil {
		return f.Once(ctx, spec, create)
	}
	return sb, err
}

// Once completes and checks a spec and calls create with a time limit. It fails once Close was called, and with
// sandbox.ErrCapacity if the host has run out of something.
func (f *Fleet) Once(ctx context.Context, spec sandbox.Spec, create func(context.Context, sandbox.Spec) (*sandbox.Sandbox, error)) (*sandbox.Sandbox, error) {
	spec.Limits = spec.Limits.WithDefaults()
	if spec.Hostname == "" {
		spec.Hostname = "airlock"
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Workspace != nil && !spec.Workspace.Attached() {
		return nil, fmt.Errorf("sandbox %s: workspace %s is not attached", spec.ID, spec.Workspace.ID)
	}
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.making.Done()
	ctx, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	sb, err := create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("create sandbox %s: %w", spec.ID, sandbox.Full(err))
	}
	return sb, nil
}

func (f *Fleet) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	f.making.Add(1)
	return nil
}

// Add takes an instance in until it is destroyed.
func (f *Fleet) Add(i *Instance) {
	i.forget = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.live, i)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		f.live = map[*Instance]struct{}{}
	}
	f.live[i] = struct{}{}
}

// Live lists the living.
func (f *Fleet) Live() []*Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*Instance
	for i := range f.live {
		all = append(all, i)
	}
	return all
}

// Sweep removes what an earlier run of the same host has left. It refuses while a sandbox of this run lives.
func (f *Fleet) Sweep(ctx context.Context, host sandbox.Host, cgroups *sandbox.Cgroups) error {
	if busy := len(f.Live()); busy > 0 {
		return fmt.Errorf("sweep: %d sandboxes are alive", busy)
	}
	return errors.Join(cgroups.Sweep(ctx), host.SweepRunDir())
}

// Close ends all creations and sandboxes. The first call tells so.
func (f *Fleet) Close(ctx context.Context) (first bool, err error) {
	f.mu.Lock()
	first, f.closed = !f.closed, true
	f.mu.Unlock()
	if !first {
		return false, nil
	}
	f.making.Wait()
	var errs []error
	for _, i := range f.Live() {
		errs = append(errs, i.Destroy(ctx))
	}
	return true, errors.Join(errs...)
}
