package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Version is the build of runsc that this code was tested with; tools/runsc/go.mod pins the same one.
const Version = "v0.0.0-20260905035102-160fafc42237"

// ErrNoRunsc is the answer where there is no runsc.
var ErrNoRunsc = errors.New("runsc not found: run make runsc, or set sandbox.runsc to its path")

// Find returns the absolute path of runsc: the given one, else the one beside this program, else the first in PATH.
func Find(path string) (string, error) {
	if path != "" {
		abs, err := filepath.Abs(path)
		if err == nil {
			err = executable(abs)
		}
		if err != nil {
			return "", fmt.Errorf("sandbox.runsc %s: %w", path, err)
		}
		return abs, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "runsc"); executable(beside) == nil {
			return beside, nil
		}
	}
	found, err := exec.LookPath("runsc")
	if err != nil {
		return "", ErrNoRunsc
	}
	return filepath.Abs(found)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return errors.New("is no program")
	}
	return nil
}

// versionLimit is how long runsc may take to say its version.
const versionLimit = 5 * time.Second

// VersionOf asks a runsc for its version.
func VersionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	version, ok := strings.CutPrefix(first, "runsc version ")
	if !ok {
		return "", fmt.Errorf("version of %s: it answers %.80q", path, first)
	}
	return version, nil
}
