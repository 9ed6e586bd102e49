package attack

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

//go:embed bin
var programs embed.FS

// ErrNotBuilt is the error of a build that was made without the hostile program for this architecture.
var ErrNotBuilt = errors.New("probe not built, run make build")

// probeProgram is the hostile program of this build.
func probeProgram() ([]byte, error) {
	data, err := programs.ReadFile("bin/probe_linux_" + runtime.GOARCH)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, fmt.Errorf("read embedded probe: %w", err)
	}
	return data, nil
}

const probePath = guest.Home + "/probe"

// PutProbe puts the hostile program into the workspace, once.
func (b *Box) PutProbe(ctx context.Context) error {
	b.probe.Do(func() {
		var program []byte
		if program, b.probeErr = probeProgram(); b.probeErr != nil {
			return
		}
		b.probeErr = b.Put(ctx, probePath, bytes.NewReader(program), guest.PutOptions{Mode: 0o755})
	})
	return b.probeErr
}
