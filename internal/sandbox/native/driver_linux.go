package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/bin"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// startLimit ends a creation that hangs, whatever the caller's own limit is.
const startLimit = 20 * time.Second

var errClosed = errors.New("sandbox driver is closed")

// Driver implements sandbox.Driver.
type Driver struct {
	host    sandbox.Host
	cgroups *sandbox.Cgroups
	ranges  *sandbox.Ranges
	guest   *os.File // sealed, executable
	filter  []byte
	spawn   *spawn.Spawner

	mu     sync.Mutex // guards the fields below
	closed bool
	live   map[*instance]struct{}
	making sync.WaitGroup
}

// New prepares a driver. It fails when this host can certainly not run one; what can only be tried, Probe tries.
func New(host sandbox.Host) (*Driver, error) {
	if err := host.Validate(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the native driver needs root to set limits and mount workspaces: start the server as root")
	}
	d := &Driver{host: host, live: map[*instance]struct{}{}}
	var err error
	if d.cgroups, err = sandbox.NewCgroups(host); err != nil {
		return nil, err
	}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(err, d.cgroups.Close())
	}
	d.spawn = spawn.New(d.guest)
	return d, nil
}

func (d *Driver) prepare() (err error) {
	if d.ranges, err = sandbox.NewRanges(d.host); err != nil {
		return err
	}
	if d.filter, err = hostFilter(); err != nil {
		return err
	}
	d.guest, err = bin.Open()
	return err
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "native" }

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
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
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.making.Done()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	sb, err := d.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("create sandbox %s: %w", spec.ID, err)
	}
	return sb, nil
}

func (d *Driver) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	d.making.Add(1)
	return nil
}

func (d *Driver) remember(i *instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[i] = struct{}{}
}

func (d *Driver) forget(i *instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, i)
}

// Sweep implements sandbox.Driver.
func (d *Driver) Sweep(ctx context.Context) error {
	d.mu.Lock()
	busy := len(d.live)
	d.mu.Unlock()
	if busy > 0 {
		return fmt.Errorf("sweep: %d sandboxes are alive", busy)
	}
	return errors.Join(d.cgroups.Sweep(ctx), d.host.SweepRunDir())
}

// Close implements sandbox.Driver.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	if again {
		return nil
	}
	d.making.Wait()
	d.mu.Lock()
	var all []*instance
	for i := range d.live {
		all = append(all, i)
	}
	d.mu.Unlock()
	var errs []error
	for _, i := range all {
		errs = append(errs, i.Destroy(ctx))
	}
	// Last: with this thread the kernel would kill whatever it started.
	d.spawn.Stop()
	errs = append(errs, d.guest.Close(), d.cgroups.Close())
	return errors.Join(errs...)
}
