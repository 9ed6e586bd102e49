package rootfs

import (
	"context"
	"fmt"
)

// requirementsFile locks a wheels folder: pip's format, every line with at least one --hash.
const requirementsFile = "requirements.txt"

// installWheels runs the tree's pip without a network: a wheel that is missing, or differs from its hash, or needs
// another that is not there, fails the build.
func installWheels(ctx context.Context, tree, wheels string) error {
	err := runInside(ctx, inside{
		tree: tree, root: true, bind: wheels,
		argv: []string{
			"python3", "-m", "pip", "install", "--no-index", "--find-links=/mnt", "--require-hashes", "--only-binary=:all:",
			"--no-cache-dir", "--disable-pip-version-check", "--break-system-packages", "--root-user-action=ignore",
			"--requirement=/mnt/" + requirementsFile,
		},
	})
	if err != nil {
		return fmt.Errorf("pip install: %w", err)
	}
	return nil
}
