package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Position of the state word in an ext4 super block; bit 0 says cleanly unmounted, bit 1 errors seen.
const (
	stateOffset = 1024 + 0x3a
	stateClean  = 1
)

// isClean tells whether the file system says that it needs no repair.
func isClean(image *os.File) (bool, error) {
	var word [2]byte
	if _, err := image.ReadAt(word[:], stateOffset); err != nil {
		return false, fmt.Errorf("read super block: %w", err)
	}
	return binary.LittleEndian.Uint16(word[:]) == stateClean, nil
}

// Exit code bits of e2fsck that say that the file system is in order: repaired; repaired, and would ask for a reboot if it
// were mounted.
const fsckMended = 1 | 2

// fsckLeft says that errors were left. Other bits tell of trouble of the program itself, which may pass, except that a
// lost super block is among them.
const fsckLeft = 4

// repair mends an image. What e2fsck would ask a person about is answered with yes: nobody is there to ask, and the other
// answer is a workspace that can never be used again. ErrDamaged if that does not help either.
func repair(ctx context.Context, image *os.File) error {
	code, out, err := fsck(ctx, image, "-p")
	if err == nil && code&^fsckMended != 0 {
		code, out, err = fsck(ctx, image, "-f", "-y")
	}
	if err != nil {
		return err
	}
	if code&^fsckMended == 0 {
		return nil
	}
	if code&fsckLeft != 0 || bytes.Contains(out, []byte("superblock could not be read")) {
		return fmt.Errorf("%w: e2fsck: exit code %d: %s", ErrDamaged, code, out)
	}
	return fmt.Errorf("e2fsck: exit code %d: %s", code, out)
}

// fsck returns the exit code and the end of what was printed; an error if the program did not come to an end.
func fsck(ctx context.Context, image *os.File, options ...string) (int, []byte, error) {
	cmd := exec.CommandContext(ctx, "e2fsck", append(options, image.Name())...)
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	out = bytes.TrimSpace(out[max(0, len(out)-1000):])
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), out, nil
	}
	if err != nil {
		return 0, out, fmt.Errorf("e2fsck (package e2fsprogs): %w: %s", err, out)
	}
	return 0, out, nil
}
