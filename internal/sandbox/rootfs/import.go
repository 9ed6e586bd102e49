package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ImportOptions says what to import.
type ImportOptions struct {
	// Path is a tar, tar.gz or tar.zst of a root file system, or an OCI layout: a folder or a tar of one.
	Path string
	// Name is the image's short name; empty takes the file's name without its extensions.
	Name string
	// Progress is called from one goroutine; nil means nobody listens.
	Progress func(Progress)
	// Now is used for the date of the image; nil means time.Now.
	Now func() time.Time
}

// Import makes an image from an archive. It needs root. The image needs bash; without python3 there are no Python
// cells. Users, mount points and host names are set as in a built image.
func (s *Store) Import(ctx context.Context, o ImportOptions) (*Image, error) {
	name := o.Name
	if name == "" {
		name = importName(o.Path)
	}
	if !validName.MatchString(name) || len(name) > 60 {
		return nil, fmt.Errorf("%q: %w", name, ErrInvalidName)
	}
	report := o.Progress
	if report == nil {
		report = func(Progress) {}
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("import root file system: %w", ErrNotRoot)
	}
	release, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	return s.inTemp(func(temp string) (*Image, error) {
		img := &Image{Profile: name, BuiltAt: now(o.Now)}
		tree := filepath.Join(temp, treeDir)
		if img.Digest, err = unpackAny(ctx, o.Path, tree, report); err != nil {
			return nil, fmt.Errorf("import %s: %w", name, err)
		}
		report(Progress{Phase: PhaseFinish})
		if err := finish(tree, volatileDirs); err != nil {
			return nil, fmt.Errorf("import %s: %w", name, err)
		}
		report(Progress{Phase: PhaseCheck})
		if err := runInside(ctx, inside{tree: tree, argv: []string{"bash", "-c", "exit 0"}}); err != nil {
			return nil, fmt.Errorf("import %s: bash does not run in it: %w", name, err)
		}
		return s.publish(ctx, temp, img, report)
	})
}

func importName(p string) string {
	base := strings.ToLower(filepath.Base(p))
	for _, ext := range []string{".zst", ".gz", ".tgz", ".tar", ".oci"} {
		base = strings.TrimSuffix(base, ext)
	}
	return base
}

// unpackAny returns the digest of the archive or of the OCI manifest.
func unpackAny(ctx context.Context, from, tree string, report func(Progress)) (string, error) {
	info, err := os.Stat(from)
	if err != nil {
		return "", fmt.Errorf("open archive: %w", err)
	}
	u, err := newUnpacker(tree)
	if err != nil {
		return "", err
	}
	defer u.root.Close()
	if info.IsDir() {
		report(Progress{Phase: PhaseUnpack})
		return unpackLayout(ctx, u, from)
	}
	digest, err := unpackFile(ctx, u, from, info.Size(), report)
	if err != nil {
		return "", err
	}
	if _, err := u.root.Lstat("oci-layout"); errors.Is(err, fs.ErrNotExist) {
		return digest, nil
	}
	// A tar of a layout: what was unpacked is the layout, not the tree.
	layoutDir := tree + ".oci"
	if err := os.Rename(tree, layoutDir); err != nil {
		return "", fmt.Errorf("unpack OCI layout: %w", err)
	}
	inner, err := newUnpacker(tree)
	if err != nil {
		return "", err
	}
	defer inner.root.Close()
	if digest, err = unpackLayout(ctx, inner, layoutDir); err != nil {
		return "", err
	}
	return digest, removeTree(layoutDir)
}

func unpackFile(ctx context.Context, u *unpacker, from string, size int64, report func(Progress)) (string, error) {
	f, err := os.Open(from)
	if err != nil {
		return "", fmt.Errorf("open archive: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	tee := io.TeeReader(&countingReader{r: f, total: size, report: report}, h)
	if err := u.compressed(ctx, tee); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return "", fmt.Errorf("read archive: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// countingReader reports how far an archive has been read, at most once for each MiB.
type countingReader struct {
	r           io.Reader
	done, total int64
	told        int64
	report      func(Progress)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	if c.done-c.told >= 1<<20 || err != nil {
		c.told = c.done
		c.report(Progress{Phase: PhaseUnpack, Done: c.done, Total: c.total})
	}
	return n, err
}
