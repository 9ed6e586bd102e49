package rootfs

import (
	"bytes"
	"context"
	"fmt"
	"path"
)

// smoke runs an embedded check as the sandbox user on the read-only tree without a network: what it proves holds in a
// sandbox too.
func smoke(ctx context.Context, tree, name string) error {
	program, err := recipes.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	if err := runInside(ctx, inside{tree: tree, argv: []string{"python3", "-"}, stdin: bytes.NewReader(program)}); err != nil {
		return fmt.Errorf("%s: %w", path.Base(name), err)
	}
	return nil
}
