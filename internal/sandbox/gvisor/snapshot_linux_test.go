package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A sentry that was taken over writes what it likes into the folder of a checkpoint, which the server then reads.
func TestImageOfAHostileSentryDoesNotHoldTheServerUp(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(path string) error{
		"a file of eight TiB": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<43))
		},
		"two that are too much together": func(path string) error {
			return errors.Join(os.WriteFile(path, make([]byte, 700), 0o600), os.WriteFile(path+"2", make([]byte, 700), 0o600))
		},
		"a pipe":                func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link to a host file": func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a link to an own file": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Symlink(path+"2", path))
		},
		"a folder":               func(path string) error { return os.Mkdir(path, 0o700) },
		"a device without bytes": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	} {
		dir := t.TempDir()
		if err := write(filepath.Join(dir, "pages.img")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := sums(t.Context(), dir, 1000); err == nil {
			t.Errorf("%s was read: %v", name, got)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pages.img"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := sums(t.Context(), dir, 1000); err != nil || got["pages.img"].Size != 1000 {
		t.Errorf("an image as large as it may be: %v, %v", got, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sums(gone, dir, 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
}
