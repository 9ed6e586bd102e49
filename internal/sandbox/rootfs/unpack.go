package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Bounds of an import: far above any useful image, far below a full disk on a machine that can serve.
const (
	maxUnpackedBytes   = 32 << 30
	maxUnpackedEntries = 4 << 20
)

// unpacker writes archives into one tree. Everything goes through os.Root: a link that an earlier entry made is
// followed inside the tree only. Device nodes, sockets and pipes are left out, extended attributes too (file
// capabilities are one).
type unpacker struct {
	root    *os.Root
	entries int
	bytes   int64
	// whiteouts gives names that begin with .wh. the meaning they have in an OCI layer.
	whiteouts bool
	// made holds what the present layer wrote: an opaque folder hides older layers only.
	made map[string]bool
}

func newUnpacker(tree string) (*unpacker, error) {
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, fmt.Errorf("make tree: %w", err)
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return &unpacker{root: root}, nil
}

// layer unpacks one tar stream over what is there.
func (u *unpacker) layer(ctx context.Context, r io.Reader) error {
	u.made = map[string]bool{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := u.entry(h, tr); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	if u.entries++; u.entries > maxUnpackedEntries {
		return fmt.Errorf("more than %d entries: %w", maxUnpackedEntries, ErrUnsafeArchive)
	}
	if name == "." || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if dir, base := path.Split(name); u.whiteouts && strings.HasPrefix(base, ".wh.") {
		return u.whiteout(path.Clean(dir), strings.TrimPrefix(base, ".wh."))
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	u.made[name] = true
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(name, h)
	case tar.TypeReg:
		return u.file(name, h, r)
	case tar.TypeSymlink:
		if err := u.clear(name); err != nil {
			return err
		}
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return u.root.Lchown(name, h.Uid, h.Gid)
	case tar.TypeLink:
		target, err := entryName(h.Linkname)
		if err != nil {
			return err
		}
		if err := u.clear(name); err != nil {
			return err
		}
		return u.root.Link(target, name)
	}
	return nil // a device, a pipe, a socket
}

func (u *unpacker) dir(name string, h *tar.Header) error {
	if info, err := u.root.Lstat(name); err == nil && !info.IsDir() {
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return u.attributes(name, h)
}

func (u *unpacker) file(name string, h *tar.Header, r io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	if u.bytes += h.Size; u.bytes > maxUnpackedBytes {
		return fmt.Errorf("more than %d bytes: %w", int64(maxUnpackedBytes), ErrUnsafeArchive)
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := u.attributes(name, h); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// attributes sets owner and mode of a file or folder; setuid, setgid and the owner's ids beyond the sandbox's range
// are not kept.
func (u *unpacker) attributes(name string, h *tar.Header) error {
	if err := u.root.Lchown(name, sandboxID(h.Uid), sandboxID(h.Gid)); err != nil {
		return err
	}
	return u.root.Chmod(name, fs.FileMode(h.Mode).Perm()|h.FileInfo().Mode()&fs.ModeSticky)
}

// sandboxID: a sandbox maps ids 0 to 65535; any other would belong to nobody inside.
func sandboxID(id int) int {
	if id < 0 || id > 65535 {
		return 0
	}
	return id
}

// clear makes room for an entry that replaces an older one.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return u.root.RemoveAll(name)
	}
	return u.root.Remove(name)
}

// whiteout removes what older layers have: one name, or (.wh..wh..opq) everything in the folder.
func (u *unpacker) whiteout(dir, name string) error {
	if name != ".wh..opq" {
		if name == "" || u.made[path.Join(dir, name)] {
			return nil
		}
		return u.clear(path.Join(dir, name))
	}
	entries, err := fs.ReadDir(u.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if full := path.Join(dir, e.Name()); !u.made[full] {
			if err := u.clear(full); err != nil {
				return err
			}
		}
	}
	return nil
}

// entryName refuses names that leave the tree instead of cutting them: such an archive is broken or hostile.
func entryName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", ErrUnsafeArchive
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", ErrUnsafeArchive
		}
	}
	return path.Clean("./" + name), nil
}
