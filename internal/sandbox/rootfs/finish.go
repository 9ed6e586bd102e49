package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mountPoints exist in every tree: a driver mounts over them and the tree is read-only by then.
var mountPoints = []string{"workspace", "files", "skills", "mnt/session", "proc", "dev", "tmp", "sys"}

// volatileDirs hold nothing that belongs to an image: a driver mounts over most of them.
var volatileDirs = []string{"dev", "proc", "sys", "tmp", "run"}

// leftovers are what a build leaves, and what describes the building host. An imported tree may keep things there.
var leftovers = append([]string{
	"var/tmp", "var/log", "var/cache/apt", "var/lib/apt/lists", "var/cache/debconf", "root",
	"usr/share/man", "usr/share/info", "usr/share/locale",
}, volatileDirs...)

const sandboxUser = "sandbox"

// written are the files that are the same in every image, whatever host built it.
var written = map[string]string{
	"etc/hosts":       "127.0.0.1\tlocalhost " + sandboxUser + "\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	"etc/hostname":    sandboxUser + "\n",
	"etc/resolv.conf": "",
	"etc/machine-id":  "",
}

// links are names that people and models use and Debian does not; they are made where the target is there.
var links = map[string]string{"usr/bin/fd": "fdfind", "usr/bin/python": "python3"}

// finish turns a Debian tree, or an imported one, into one that a sandbox can start from. All of it goes through
// os.Root: an imported tree may have links anywhere. The contents of the emptied folders go.
func finish(tree string, emptied []string) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return fmt.Errorf("open tree: %w", err)
	}
	defer root.Close()
	for _, dir := range emptied {
		if err := emptyDir(root, dir); err != nil {
			return fmt.Errorf("empty /%s: %w", dir, err)
		}
	}
	for _, dir := range mountPoints {
		if err := mountPoint(root, dir); err != nil {
			return fmt.Errorf("make /%s: %w", dir, err)
		}
	}
	if err := root.Chmod("tmp", 0o777|fs.ModeSticky); err != nil {
		return fmt.Errorf("make /tmp: %w", err)
	}
	if err := root.MkdirAll("etc", 0o755); err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	for name, text := range written {
		if err := replaceFile(root, name, text); err != nil {
			return fmt.Errorf("write /%s: %w", name, err)
		}
	}
	for name, target := range links {
		if err := link(root, name, target); err != nil {
			return fmt.Errorf("link /%s: %w", name, err)
		}
	}
	if err := addUser(root); err != nil {
		return err
	}
	return stripTree(tree)
}

// emptyDir removes what is in a folder. A link or file of that name goes too: nothing may be mounted through it.
func emptyDir(root *os.Root, dir string) error {
	info, err := root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return root.Remove(dir)
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := root.RemoveAll(dir + "/" + e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func mountPoint(root *os.Root, dir string) error {
	if info, err := root.Lstat(dir); err == nil && !info.IsDir() {
		if err := root.Remove(dir); err != nil {
			return err
		}
	}
	return root.MkdirAll(dir, 0o755)
}

func replaceFile(root *os.Root, name, text string) error {
	// Removed first: written through, a link would change another file of the tree.
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.WriteFile(name, []byte(text), 0o644)
}

func link(root *os.Root, name, target string) error {
	if _, err := root.Lstat(name); err == nil {
		return nil
	}
	if _, err := root.Lstat(filepath.Join(filepath.Dir(name), target)); err != nil {
		return nil //nolint:nilerr // the program is not in this profile
	}
	return root.Symlink(target, name)
}

// addUser names uid and gid 1000. Another user of that number in an imported tree keeps its line further down: the
// first match decides.
func addUser(root *os.Root) error {
	for _, u := range []struct{ name, line, root string }{
		{"etc/passwd", sandboxUser + ":x:1000:1000:" + sandboxUser + ":/workspace:/bin/bash\n", "root:x:0:0:root:/root:/bin/bash\n"},
		{"etc/group", sandboxUser + ":x:1000:\n", "root:x:0:\n"},
	} {
		old, err := root.ReadFile(u.name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read /%s: %w", u.name, err)
		}
		if strings.Contains("\n"+string(old), "\n"+u.line) {
			continue
		}
		if len(old) == 0 {
			old = []byte(u.root)
		}
		if err := replaceFile(root, u.name, u.line+string(old)); err != nil {
			return fmt.Errorf("write /%s: %w", u.name, err)
		}
	}
	return nil
}

// stripTree removes setuid and setgid bits from files. Threat 8: a driver mounts the tree nosuid as well; this is for
// the day somebody unpacks it elsewhere.
func stripTree(tree string) error {
	return filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walk tree: %w", err)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("walk tree: %w", err)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
			return nil
		}
		if err := os.Chmod(path, info.Mode()&^(fs.ModeSetuid|fs.ModeSetgid)); err != nil {
			return fmt.Errorf("strip tree: %w", err)
		}
		return nil
	})
}

// treeSize sums regular files, each inode once.
func treeSize(tree string) (int64, error) {
	var total int64
	seen := map[inode]bool{}
	err := filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		id, links := inodeOf(info)
		if links > 1 && seen[id] {
			return nil
		}
		seen[id] = true
		total += info.Size()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure tree: %w", err)
	}
	return total, nil
}
