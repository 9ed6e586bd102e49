package spawn

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// SelfTest makes a sandbox on an empty root, in which only the guest runs, and tries what needs no program in it.
func SelfTest(ctx context.Context, host sandbox.Host, create func(context.Context, sandbox.Spec) (*sandbox.Sandbox, error)) (err error) {
	root, err := os.MkdirTemp(host.RunDir, host.Prefix()+"probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	for _, dir := range []string{"proc", "dev", "tmp", "workspace", "files"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	limits := sandbox.DefaultLimits()
	limits.MemoryBytes, limits.DiskBytes, limits.Inodes = 256<<20, 16<<20, 1024
	sb, err := create(ctx, sandbox.Spec{ID: "probe-" + filepath.Base(root)[len(host.Prefix()+"probe-"):], RootFS: root, Limits: limits})
	if err != nil {
		return err
	}
	return errors.Join(exercise(ctx, sb), sb.Destroy(ctx))
}

func exercise(ctx context.Context, sb *sandbox.Sandbox) error {
	if err := sb.Ping(ctx); err != nil {
		return err
	}
	if err := sb.Freeze(ctx); err != nil {
		return err
	}
	if err := sb.Thaw(ctx); err != nil {
		return err
	}
	_, err := sb.Usage(ctx)
	return err
}
