// Package bin holds the guest binary of this build, embedded, and hands it out
// as a sealed memory file that can be executed without a path on any disk.
//
// It refuses to know what the guest does. The folder holds the binaries that
// `make guest` writes; without them Open answers ErrNotBuilt.
package bin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

//go:embed *
var files embed.FS

// ErrNotBuilt is the error of a build that was made without a guest for this architecture.
var ErrNotBuilt = errors.New("guest not built, run make build")

// seals make the memory file immutable: neither the server nor anything that
// gets hold of the descriptor can change what later sandboxes execute.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// Open returns a new sealed memory file with the guest of this architecture,
// readable and executable by every user. The caller closes it; one file serves
// any number of sandboxes.
func Open() (*os.File, error) {
	data, err := files.ReadFile("guest_linux_" + runtime.GOARCH)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, fmt.Errorf("read embedded guest: %w", err)
	}
	fd, err := unix.MemfdCreate("airlock-guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "airlock-guest")
	if err := fill(f, data); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func fill(f *os.File, data []byte) error {
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write memory file: %w", err)
	}
	if err := f.Chmod(0o555); err != nil {
		return fmt.Errorf("chmod memory file: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memory file: %w", err)
	}
	return nil
}
