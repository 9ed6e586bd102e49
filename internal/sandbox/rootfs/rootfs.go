package rootfs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	// ErrNotFound says that no image has the name.
	ErrNotFound = errors.New("no such root file system")
	// ErrInUse says that a running sandbox still holds the image.
	ErrInUse = errors.New("root file system is in use")
	// ErrInvalidName says that a name could not be a folder of the store.
	ErrInvalidName = errors.New("a root file system name is lower-case letters, digits, dots, dashes and underscores")
	// ErrUnsafeArchive says that an imported archive has an entry that leaves the tree or cannot be kept.
	ErrUnsafeArchive = errors.New("archive entry refused")
	// ErrNotRoot says that building and importing need root: a tree has files of several owners.
	ErrNotRoot = errors.New("needs root: run it again with sudo")
	// ErrNoTool says that a program of the host is missing; the text says how to get it.
	ErrNoTool = errors.New("program missing")
)

// manifestFile lies beside the tree, not in it, so that code cannot tell images apart by it.
const manifestFile = "manifest.json"

// Store is a folder of images. The zero value of Dir is not useful; the folder is made when needed.
type Store struct {
	// Dir holds one folder per image.
	Dir string

	mu    sync.Mutex
	known map[string]manifest // by folder; a server looks at every image each second, and a manifest has hundreds of packages
}

// manifest is a decoded file as it was when info was read.
type manifest struct {
	info fs.FileInfo
	img  Image
}

// Library is one Python library a tool description may promise to the model.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Image is one published tree.
type Image struct {
	// Name is the folder's name, NAME-DIGEST: it stays good for as long as the image exists, so it is what a container
	// stores.
	Name string `json:"name"`
	// Profile is the short name: a recipe (min, base, office) or the name given at import.
	Profile string `json:"profile"`
	// Suite is the Debian release; empty for an imported image.
	Suite string `json:"suite,omitempty"`
	// Digest is hex SHA-256 over the recipe and the package versions, or over the imported archive.
	Digest string `json:"digest"`
	// RecipeDigest is what decides about a rebuild; empty for an imported image.
	RecipeDigest string    `json:"recipe_digest,omitempty"`
	BuiltAt      time.Time `json:"built_at"`
	// Size is the sum of the regular files in bytes.
	Size int64 `json:"size"`
	// Packages maps Debian package names to versions.
	Packages map[string]string `json:"packages,omitempty"`
	// PythonLibraries is sorted by name.
	PythonLibraries []Library `json:"python_libraries,omitempty"`
	// Path is the tree's folder on this host.
	Path string `json:"-"`
}

// List returns all images, the newest of each profile first, profiles in alphabetical order.
func (s *Store) List() ([]*Image, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list root file systems: %w", err)
	}
	var images []*Image
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		img, err := s.load(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // not an image, or removed between the two reads
		}
		if err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b *Image) int {
		return cmp.Or(cmp.Compare(a.Profile, b.Profile), b.BuiltAt.Compare(a.BuiltAt), cmp.Compare(a.Name, b.Name))
	})
	return images, nil
}

// Get finds an image by its full name, or the newest one of a profile.
func (s *Store) Get(name string) (*Image, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%q: %w", name, ErrInvalidName)
	}
	images, err := s.List()
	if err != nil {
		return nil, err
	}
	// The full name wins: a profile that happens to be called like an image must not shadow it.
	for _, img := range images {
		if img.Name == name {
			return img, nil
		}
	}
	for _, img := range images {
		if img.Profile == name {
			return img, nil
		}
	}
	return nil, fmt.Errorf("%q: %w", name, ErrNotFound)
}

// Default is the newest office image, else the largest one.
func (s *Store) Default() (*Image, error) {
	images, err := s.List()
	if err != nil {
		return nil, err
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("in %s: %w", s.Dir, ErrNotFound)
	}
	for _, img := range images {
		if img.Profile == defaultProfile {
			return img, nil
		}
	}
	return slices.MaxFunc(images, func(a, b *Image) int { return cmp.Compare(a.Size, b.Size) }), nil
}

// Remove deletes an image by its full name or, if only one has it, by its profile. An image that a sandbox holds
// stays and the error is [ErrInUse].
func (s *Store) Remove(name string) error {
	img, err := s.only(name)
	if err != nil {
		return err
	}
	release, err := lockManifest(filepath.Join(s.Dir, img.Name, manifestFile), true)
	if err != nil {
		return fmt.Errorf("remove %s: %w", img.Name, err)
	}
	defer release()
	trash, err := os.MkdirTemp(s.Dir, tempPrefix)
	if err != nil {
		return fmt.Errorf("remove %s: %w", img.Name, err)
	}
	// Renamed first: nobody sees a half deleted tree under the image's name.
	if err := os.Rename(filepath.Join(s.Dir, img.Name), filepath.Join(trash, img.Name)); err != nil {
		return fmt.Errorf("remove %s: %w", img.Name, errors.Join(err, os.Remove(trash)))
	}
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove %s: %w", img.Name, err)
	}
	return nil
}

// only resolves a name for a destructive operation: a profile with several images is ambiguous.
func (s *Store) only(name string) (*Image, error) {
	img, err := s.Get(name)
	if err != nil || img.Name == name {
		return img, err
	}
	images, err := s.List()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, other := range images {
		if other.Profile == name {
			names = append(names, other.Name)
		}
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("%q names several images (%s): %w", name, strings.Join(names, ", "), ErrInvalidName)
	}
	return img, nil
}

// Hold keeps the image from being removed until release is called or the process ends. Holds are shared: any number
// of sandboxes and servers may hold one image.
func (i *Image) Hold() (release func(), err error) {
	release, err = lockManifest(filepath.Join(filepath.Dir(i.Path), manifestFile), false)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", i.Name, err)
	}
	return release, nil
}

// load decodes a manifest, again only after it was written. Who gets the image may not change its lists.
func (s *Store) load(name string) (*Image, error) {
	path := filepath.Join(s.Dir, name, manifestFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", name, err)
	}
	s.mu.Lock()
	m, ok := s.known[name]
	s.mu.Unlock()
	if !ok || !os.SameFile(info, m.info) || info.Size() != m.info.Size() || !info.ModTime().Equal(m.info.ModTime()) {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read manifest of %s: %w", name, err)
		}
		m = manifest{info: info}
		if err := json.Unmarshal(raw, &m.img); err != nil {
			return nil, fmt.Errorf("read manifest of %s: %w", name, err)
		}
		// The folder is the truth: a copied or renamed image keeps working.
		m.img.Name, m.img.Path = name, filepath.Join(s.Dir, name, treeDir)
		s.mu.Lock()
		if s.known == nil {
			s.known = map[string]manifest{}
		}
		s.known[name] = m
		s.mu.Unlock()
	}
	return &m.img, nil
}

const (
	treeDir        = "rootfs"
	tempPrefix     = ".tmp-"
	defaultProfile = "office"
	// digestChars is how much of the digest a folder name shows: enough for one host's images.
	digestChars = 12
)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)
