// Package drivers picks a sandbox driver by its name in the settings. It is the only place that knows all of them.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native"
)

// Options is what the drivers need.
type Options struct {
	// Host names the server instance.
	Host sandbox.Host
	// Runsc is the path of gVisor's program; if empty, it is looked for beside this one and in PATH.
	Runsc string
	// Platform of gVisor: "systrap", "kvm", or "auto", which takes kvm if its self-test passes; if empty, systrap.
	Platform string
}

// New makes the driver called name: "native", "gvisor", or "auto", which takes gvisor if it is there and passes its
// self-test, and else native. The log of the host says which and why: as a warning if a runsc is there that does not work,
// because then somebody counts on it.
func New(ctx context.Context, name string, o Options) (sandbox.Driver, error) {
	switch name {
	case "native":
		return native.New(o.Host)
	case "gvisor":
		return newGVisor(ctx, o)
	case "auto":
		d, err := tried(ctx, o)
		log := o.Host.Logger()
		switch {
		case err == nil:
			log.InfoContext(ctx, "sandbox driver chosen", "driver", d.Name(), "reason", "runsc is there and passed its self-test")
			return d, nil
		case errors.Is(err, gvisor.ErrNoRunsc):
			log.InfoContext(ctx, "sandbox driver chosen", "driver", "native", "reason", err.Error())
		default:
			log.WarnContext(ctx, "runsc is there but does not work, so sandboxes share this host's kernel: run airlock doctor",
				"driver", "native", "reason", err.Error())
		}
		return native.New(o.Host)
	default:
		return nil, fmt.Errorf("unknown sandbox driver %q, want auto, native or gvisor", name)
	}
}

// tried is a gvisor driver that has passed its self-test.
func tried(ctx context.Context, o Options) (sandbox.Driver, error) {
	d, err := newGVisor(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := selfTest(ctx, d, o.Host.Logger()); err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// selfTest gives a driver that was too slow a second chance: a machine that has just booted is busy with other things.
func selfTest(ctx context.Context, d sandbox.Driver, log *slog.Logger) error {
	_, err := d.Probe(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		log.InfoContext(ctx, "self-test once more", "driver", d.Name(), "reason", err.Error())
		_, err = d.Probe(ctx)
	}
	return err
}

func newGVisor(ctx context.Context, o Options) (sandbox.Driver, error) {
	if o.Platform != "auto" {
		return gvisor.New(o.Host, gvisor.Options{Runsc: o.Runsc, Platform: o.Platform})
	}
	o.Platform = "kvm"
	d, err := tried(ctx, o)
	if err == nil {
		return d, nil
	}
	o.Host.Logger().InfoContext(ctx, "gVisor runs on systrap", "reason", err.Error())
	return gvisor.New(o.Host, gvisor.Options{Runsc: o.Runsc, Platform: "systrap"})
}
