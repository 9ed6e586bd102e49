package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// newPrefix begins the names of files that are being made.
const newPrefix = ".new-"

// codeID is the uid and gid of code inside a sandbox. Images carry the ids that the sandbox sees.
const codeID = 1000

// templateVersion changes with the layout below, so that an old template is not used again.
const templateVersion = 1

// template returns the formatted, empty image for these limits, and makes it at first use.
func (w *Workspaces) template(ctx context.Context, l Limits) (string, error) {
	path := filepath.Join(w.Dir, fmt.Sprintf("template.v%d.%d.%d", templateVersion, l.DiskBytes, l.Inodes))
	w.mu.Lock() // two formats of the same file would meet
	defer w.mu.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(w.Dir, newPrefix)
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	err = tmp.Truncate(l.DiskBytes)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = format(ctx, tmp.Name(), l.Inodes)
	}
	if err != nil {
		return "", fmt.Errorf("make workspace template: %w", err)
	}
	return path, os.Rename(tmp.Name(), path)
}

// format writes the file system and its first folders.
//
// There is no journal: an image is written out at the end of a turn, and a crash of the host in between is repaired at
// the next attach. Nothing is reserved for root, whose space would be missing from the limit. The tables are taken as
// zeroed, which a sparse file is; else the kernel would fill the image in the background.
func format(ctx context.Context, image string, inodes int64) error {
	skeleton, err := skeleton(filepath.Dir(image))
	if err != nil {
		return err
	}
	defer os.RemoveAll(skeleton)
	// Before e2fsprogs 1.47 neither an orphan file nor the promise of zeroed tables was known; such an image is as good,
	// and its tables are not filled either, because it is mounted with noinit_itable.
	err = mkfs(ctx, image, inodes, skeleton, "^has_journal,^resize_inode,^orphan_file", ",assume_storage_prezeroed=1")
	if err != nil && !errors.Is(err, unix.ENOSPC) && ctx.Err() == nil {
		if old := mkfs(ctx, image, inodes, skeleton, "^has_journal,^resize_inode", ""); old == nil {
			return nil
		}
	}
	return err
}

func mkfs(ctx context.Context, image string, inodes int64, skeleton, features, extended string) error {
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-N", strconv.FormatInt(inodes, 10), "-O", features,
		"-E", "lazy_itable_init=1,root_owner=0:0,nodiscard"+extended, "-L", "workspace", "-d", skeleton, image)
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		if bytes.Contains(bytes.ToLower(out), []byte(unix.ENOSPC.Error())) {
			err = unix.ENOSPC // the program only prints it
		}
		return fmt.Errorf("mkfs.ext4 (package e2fsprogs): %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// layout are the folders of an empty workspace, the top first. Code owns its home and the parent of its output folders;
// /files/input is for reading only. Code cannot remove or replace any of them.
var layout = []struct {
	name  string
	mode  os.FileMode
	owner int
}{
	{"", 0o755, 0},
	{"workspace", 0o755, codeID},
	{"tmp", 0o777 | os.ModeSticky, 0},
	{"files", 0o755, 0},
	{"files/input", 0o755, 0},
	{"files/output", 0o755, codeID},
}

// skeleton makes the layout in a folder of the host.
func skeleton(dir string) (string, error) {
	root, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return "", err
	}
	for _, f := range layout {
		path := filepath.Join(root, f.name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", errors.Join(err, os.RemoveAll(root))
		}
		if err := errors.Join(os.Chown(path, f.owner, f.owner), os.Chmod(path, f.mode)); err != nil {
			return "", errors.Join(err, os.RemoveAll(root))
		}
	}
	return root, nil
}

// cloneImage copies a sparse file under a new name, which must not exist. Where the file system cannot share blocks,
// only the written parts are copied.
func cloneImage(ctx context.Context, from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.CreateTemp(filepath.Dir(to), newPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(dst.Name()) // the name is free again after the rename
	err = copySparse(ctx, dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	return unix.Renameat2(unix.AT_FDCWD, dst.Name(), unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}

// copySparse shares the blocks of src with dst, or copies what is no hole.
func copySparse(ctx context.Context, dst, src *os.File) error {
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	return eachRun(src, info.Size(), func(at, length int64) error {
		return copyRange(ctx, io.NewOffsetWriter(dst, at), src, at, length)
	})
}
