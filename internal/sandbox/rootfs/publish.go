package rootfs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// publish completes the manifest of a finished tree in temp and gives the image its name.
func (s *Store) publish(ctx context.Context, temp string, img *Image, report func(Progress)) (*Image, error) {
	report(Progress{Phase: PhasePublish})
	tree := filepath.Join(temp, treeDir)
	var err error
	if img.Packages, err = debianPackages(tree); err != nil {
		return nil, err
	}
	if img.PythonLibraries, err = pythonLibraries(ctx, tree); err != nil {
		return nil, err
	}
	if img.Size, err = treeSize(tree); err != nil {
		return nil, err
	}
	if img.Digest == "" {
		img.Digest = imageDigest(img.RecipeDigest, img.Packages)
	}
	img.Name = img.Profile + "-" + img.Digest[:digestChars]
	raw, err := json.MarshalIndent(img, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write manifest: %w", err)
	}
	// The tree was written without syncs; after the rename it must never be found half empty.
	if err := syncTree(tree); err != nil {
		return nil, err
	}
	final := filepath.Join(s.Dir, img.Name)
	if _, err := os.Lstat(filepath.Join(final, manifestFile)); err == nil {
		// A refresh that found nothing new. The old tree may be in use and is the same: only the date moves.
		return s.redate(img.Name, raw)
	}
	if err := os.WriteFile(filepath.Join(temp, manifestFile), raw, 0o644); err != nil {
		return nil, fmt.Errorf("write manifest: %w", err)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return nil, fmt.Errorf("publish %s: %w", img.Name, err)
	}
	if err := os.Rename(temp, final); err != nil {
		return nil, fmt.Errorf("publish %s: %w", img.Name, err)
	}
	return s.load(img.Name)
}

// redate writes in place: the manifest's inode carries the holders' locks.
func (s *Store) redate(name string, manifest []byte) (*Image, error) {
	if err := os.WriteFile(filepath.Join(s.Dir, name, manifestFile), manifest, 0o644); err != nil {
		return nil, fmt.Errorf("write manifest of %s: %w", name, err)
	}
	return s.load(name)
}

// debianPackages reads dpkg's list; a tree without one (an imported image) has no packages to name.
func debianPackages(tree string) (map[string]string, error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	defer root.Close()
	raw, err := root.ReadFile("var/lib/dpkg/status")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read package list: %w", err)
	}
	packages := map[string]string{}
	var name, status string
	sc := bufio.NewScanner(bytes.NewReader(raw))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		key, value, _ := strings.Cut(sc.Text(), ": ")
		switch key {
		case "Package":
			name = value
		case "Status":
			status = value
		case "Version":
			if status == "install ok installed" {
				packages[name] = value
			}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read package list: %w", err)
	}
	return packages, nil
}

// pythonLibraries asks the image's own Python which of the known libraries it has.
func pythonLibraries(ctx context.Context, tree string) ([]Library, error) {
	known, err := recipes.ReadFile("recipe/libraries.txt")
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	program, err := recipes.ReadFile("recipe/libraries.py")
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	var out bytes.Buffer
	const script = `command -v python3 >/dev/null || exit 0; exec python3 -c "$0"`
	err = runInside(ctx, inside{
		tree: tree, argv: []string{"sh", "-c", script, string(program)}, stdin: bytes.NewReader(known), stdout: &out,
	})
	if err != nil {
		return nil, fmt.Errorf("list python libraries: %w", err)
	}
	var libraries []Library
	for line := range strings.Lines(out.String()) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok {
			libraries = append(libraries, Library{Name: name, Version: version})
		}
	}
	return libraries, nil
}
