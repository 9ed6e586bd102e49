package native

import (
	"context"
	"errors"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// Driver implements sandbox.Driver.
type Driver struct{ host sandbox.Host }

// New prepares a driver; it fails when this host can certainly not run it.
func New(host sandbox.Host) (*Driver, error) { return &Driver{host: host}, nil }

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "native" }

// Probe implements sandbox.Driver.
func (d *Driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{}, errors.New("not written yet")
}

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	return nil, errors.New("not written yet")
}

// Sweep implements sandbox.Driver.
func (d *Driver) Sweep(ctx context.Context) error { return nil }

// Close implements sandbox.Driver.
func (d *Driver) Close(ctx context.Context) error { return nil }
