// Package drivers picks a sandbox driver by its name in the settings. It is the only place that knows all of them.
package drivers

import (
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native"
)

// Options is what every driver needs.
type Options struct {
	// Host names the server instance.
	Host sandbox.Host
	// Runsc is the path of gVisor's program; if empty, it is looked for.
	Runsc string
	// Platform of gVisor: "systrap", "kvm" or "auto"; if empty, systrap.
	Platform string
}

// New makes the driver called name: "native", or "auto", which takes the strongest one present.
func New(name string, o Options) (sandbox.Driver, error) {
	switch name {
	case "native", "auto":
		return native.New(o.Host)
	case "gvisor":
		return gvisor.New(o.Host, gvisor.Options{Runsc: o.Runsc, Platform: o.Platform})
	default:
		return nil, fmt.Errorf("unknown sandbox driver %q, want auto or native", name)
	}
}
