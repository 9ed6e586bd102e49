// Package drivers picks a sandbox driver by its name in the settings. It is the only place that knows all of them.
package drivers

import (
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native"
)

// Options is what every driver needs.
type Options struct {
	// Host names the server instance.
	Host sandbox.Host
}

// New makes the driver called name: "native", or "auto", which takes the strongest one present.
func New(name string, o Options) (sandbox.Driver, error) {
	switch name {
	case "native", "auto":
		return native.New(o.Host)
	default:
		return nil, fmt.Errorf("unknown sandbox driver %q, want auto or native", name)
	}
}
