package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/bin"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// Options of New.
type Options struct {
	// Runsc is the path of the program; if empty, it is looked for beside this one and in PATH.
	Runsc string
	// Platform is "systrap" or "kvm"; if empty, systrap.
	Platform string
}

// Driver implements sandbox.Driver.
type Driver struct {
	host     sandbox.Host
	runsc    *os.File // a path descriptor: sandboxes keep the build they began with
	platform string
	folder   string // holds a copy of the guest program, for the file tree of the jails
	cgroups  *sandbox.Cgroups
	ranges   *sandbox.Ranges
	guest    *os.File // sealed, executable
	filter   []byte
	spawn    *spawn.Spawner
	fleet    spawn.Fleet
}

// New prepares a driver. It fails when this host can certainly not run one; what can only be tried, Probe tries.
func New(host sandbox.Host, o Options) (*Driver, error) {
	if err := host.Validate(); err != nil {
		return nil, err
	}
	if err := sandbox.RequireRights("gvisor"); err != nil {
		return nil, err
	}
	if o.Platform == "" {
		o.Platform = "systrap"
	}
	if o.Platform != "systrap" && o.Platform != "kvm" {
		return nil, fmt.Errorf("unknown platform %q of gVisor, want systrap or kvm", o.Platform)
	}
	path, err := Find(o.Runsc)
	if err != nil {
		return nil, err
	}
	d := &Driver{host: host, platform: o.Platform}
	if d.cgroups, err = sandbox.NewCgroups(host); err != nil {
		return nil, err
	}
	if err := d.prepare(path); err != nil {
		return nil, errors.Join(err, d.release())
	}
	d.spawn = spawn.New(d.guest)
	return d, nil
}

func (d *Driver) prepare(runsc string) (err error) {
	if d.ranges, err = sandbox.NewRanges(d.host); err != nil {
		return err
	}
	if d.filter, err = native.HostFilter(); err != nil {
		return err
	}
	if d.guest, err = bin.Open(); err != nil {
		return err
	}
	if d.runsc, err = os.Open(runsc); err != nil {
		return fmt.Errorf("open runsc: %w", err)
	}
	if d.folder, err = os.MkdirTemp(d.host.RunDir, d.host.Prefix()+"guest-"); err != nil {
		return fmt.Errorf("folder of the guest program: %w", err)
	}
	return d.copyGuest()
}

// copyGuest makes a file of the guest program. The sentry executes it by a path, and needs it again after a restore, when
// the process that it came from is gone.
func (d *Driver) copyGuest() error {
	if err := os.Chmod(d.folder, 0o755); err != nil {
		return fmt.Errorf("folder of the guest program: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(d.folder, "guest"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("copy guest program: %w", err)
	}
	_, err = io.Copy(f, io.NewSectionReader(d.guest, 0, 1<<30))
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return fmt.Errorf("copy guest program: %w", err)
	}
	return nil
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "gvisor" }

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	return d.fleet.Create(ctx, spec, d.create)
}

// Sweep implements sandbox.Driver.
func (d *Driver) Sweep(ctx context.Context) error {
	if busy := len(d.fleet.Live()); busy > 0 {
		return fmt.Errorf("sweep: %d sandboxes are alive", busy)
	}
	err := errors.Join(d.cgroups.Sweep(ctx), d.host.SweepRunDir(filepath.Base(d.folder)))
	return err
}

// Close implements sandbox.Driver.
func (d *Driver) Close(ctx context.Context) error {
	first, err := d.fleet.Close(ctx)
	if !first {
		return nil
	}
	// Last: with this thread the kernel would kill whatever it started.
	d.spawn.Stop()
	return errors.Join(err, d.release())
}

// release gives back what prepare took, as far as it came.
func (d *Driver) release() error {
	var errs []error
	for _, f := range []*os.File{d.guest, d.runsc} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if d.folder != "" {
		errs = append(errs, os.RemoveAll(d.folder))
	}
	return errors.Join(append(errs, d.cgroups.Close())...)
}
