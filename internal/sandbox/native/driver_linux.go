package native

import (
	"context"
	"errors"
	"os"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/bin"
	"github.com/airlock-sandbox/airlock/internal/sandbox/seccomp"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// Driver implements sandbox.Driver.
type Driver struct {
	host    sandbox.Host
	cgroups *sandbox.Cgroups
	ranges  *sandbox.Ranges
	guest   *os.File // sealed, executable
	filter  []byte
	spawn   *spawn.Spawner
	fleet   spawn.Fleet
}

// New prepares a driver. It fails when this host can certainly not run one; what can only be tried, Probe tries.
func New(host sandbox.Host) (*Driver, error) {
	if err := host.Validate(); err != nil {
		return nil, err
	}
	if err := sandbox.RequireRights("native"); err != nil {
		return nil, err
	}
	d := &Driver{host: host}
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
	if d.filter, err = seccomp.Host(); err != nil {
		return err
	}
	d.guest, err = bin.Open()
	return err
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "native" }

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	return d.fleet.Create(ctx, spec, d.create)
}

// Sweep implements sandbox.Driver.
func (d *Driver) Sweep(ctx context.Context) error {
	return d.fleet.Sweep(ctx, d.host, d.cgroups)
}

// Close implements sandbox.Driver.
func (d *Driver) Close(ctx context.Context) error {
	first, err := d.fleet.Close(ctx)
	if !first {
		return nil
	}
	// Last: with this thread the kernel would kill whatever it started.
	d.spawn.Stop()
	return errors.Join(err, d.guest.Close(), d.cgroups.Close())
}
