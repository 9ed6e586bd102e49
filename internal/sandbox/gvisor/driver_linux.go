package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/bin"
	"github.com/airlock-sandbox/airlock/internal/sandbox/seccomp"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
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
	version  func() (string, error)
	folder   *os.File // a detached mount with a copy of the guest program, for the file tree of the jails
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
	if o.Platform == "" {
		o.Platform = "systrap"
	}
	if o.Platform != "systrap" && o.Platform != "kvm" {
		return nil, fmt.Errorf("unknown platform %q of gVisor, want systrap or kvm", o.Platform)
	}
	// Before the rights: where there is no runsc, nobody counts on this driver.
	path, err := Find(o.Runsc)
	if err != nil {
		return nil, err
	}
	if err = sandbox.RequireRights("gvisor"); err != nil {
		return nil, err
	}
	d := &Driver{host: host, platform: o.Platform}
	d.version = sync.OnceValues(func() (string, error) { return VersionOf(context.Background(), path) }) //nolint:forbidigo // asked once for all; VersionOf has a limit of its own
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
	if d.filter, err = seccomp.Host(); err != nil {
		return err
	}
	if d.guest, err = bin.Open(); err != nil {
		return err
	}
	if d.runsc, err = os.Open(runsc); err != nil {
		return fmt.Errorf("open runsc: %w", err)
	}
	return d.copyGuest()
}

// copyGuest makes a file of the guest program. The sentry executes it by a path, and needs it again after a restore, when
// the process that it came from is gone. The file system hangs in no tree of the host and ends with the last sandbox.
func (d *Driver) copyGuest() error {
	info, err := d.guest.Stat()
	if err != nil {
		return fmt.Errorf("copy guest program: %w", err)
	}
	fd, err := walls.NewTmpfs(walls.Tmpfs{Bytes: info.Size() + 1<<20, Inodes: 4}, "0755", 0)
	if err != nil {
		return fmt.Errorf("copy guest program: %w", err)
	}
	d.folder = os.NewFile(uintptr(fd), "guest program")
	out, err := unix.Openat(fd, "guest", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o755)
	if err != nil {
		return fmt.Errorf("copy guest program: %w", err)
	}
	f := os.NewFile(uintptr(out), "guest")
	_, err = io.Copy(f, io.NewSectionReader(d.guest, 0, info.Size()))
	// The server's umask must not decide who may execute it, nor its start how old it is: a restored sentry compares.
	if err = errors.Join(err, f.Chmod(0o755), unix.Futimes(out, make([]unix.Timeval, 2)), f.Close()); err != nil {
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
	return errors.Join(err, d.release())
}

// release gives back what prepare took, as far as it came.
func (d *Driver) release() error {
	var errs []error
	for _, f := range []*os.File{d.guest, d.runsc, d.folder} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(append(errs, d.cgroups.Close())...)
}
