package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// putImage writes an image without a build.
func putImage(t *testing.T, s *Store, name, profile string, age time.Duration, size int64) {
	t.Helper()
	dir := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Join(dir, treeDir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	built := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(-age)
	manifest := fmt.Sprintf(`{"profile":%q,"size":%d,"built_at":%q}`, profile, size, built.Format(time.RFC3339))
	if err := os.WriteFile(filepath.Join(dir, manifestFile), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
}

func names(images []*Image) []string {
	var all []string
	for _, i := range images {
		all = append(all, i.Name)
	}
	return all
}

func TestListShowsTheNewestOfEachProfileFirst(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "office-1", "office", 2*time.Hour, 5)
	putImage(t, s, "office-2", "office", time.Hour, 5)
	putImage(t, s, "min-1", "min", 0, 1)
	putImage(t, s, ".tmp-9", "office", 0, 1) // a build that was killed
	if err := os.Mkdir(filepath.Join(s.Dir, "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	images, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(names(images), []string{"min-1", "office-2", "office-1"}); d != "" {
		t.Error(d)
	}
}

func TestAnEmptyOrMissingStoreHasNoImages(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: filepath.Join(t.TempDir(), "none")}
	if images, err := s.List(); err != nil || len(images) != 0 {
		t.Errorf("list of a missing folder: %v, %v", images, err)
	}
	if _, err := s.Default(); !errors.Is(err, ErrNotFound) {
		t.Errorf("default of a missing folder: %v, want ErrNotFound", err)
	}
}

func TestGetTakesAFullNameOrTheNewestOfAProfile(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "office-1", "office", 2*time.Hour, 5)
	putImage(t, s, "office-2", "office", time.Hour, 5)
	putImage(t, s, "mine-3", "office-1", 0, 5) // a profile called like another image
	for name, want := range map[string]string{"office": "office-2", "office-1": "office-1", "mine-3": "mine-3"} {
		img, err := s.Get(name)
		if err != nil || img.Name != want {
			t.Errorf("get %s: %v, %v, want %s", name, img, err, want)
			continue
		}
		if img.Path != filepath.Join(s.Dir, want, treeDir) {
			t.Errorf("path of %s is %s", name, img.Path)
		}
	}
	for name, want := range map[string]error{
		"base": ErrNotFound, "": ErrInvalidName, "../etc": ErrInvalidName, "a/b": ErrInvalidName, ".tmp-1": ErrInvalidName,
		"Office": ErrInvalidName,
	} {
		if _, err := s.Get(name); !errors.Is(err, want) {
			t.Errorf("get %q: %v, want %v", name, err, want)
		}
	}
}

func TestDefaultIsOfficeElseTheLargest(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "min-1", "min", 0, 1)
	putImage(t, s, "big-1", "big", 0, 900)
	if img, err := s.Default(); err != nil || img.Name != "big-1" {
		t.Errorf("default without office: %v, %v", img, err)
	}
	putImage(t, s, "office-1", "office", time.Hour, 5)
	putImage(t, s, "office-2", "office", 0, 5)
	if img, err := s.Default(); err != nil || img.Name != "office-2" {
		t.Errorf("default: %v, %v, want the newest office", img, err)
	}
}

func TestRemoveTakesOneImageAndRefusesAnAmbiguousName(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "office-1", "office", time.Hour, 5)
	putImage(t, s, "office-2", "office", 0, 5)
	if err := s.Remove("office"); !errors.Is(err, ErrInvalidName) || !strings.Contains(err.Error(), "office-2, office-1") {
		t.Errorf("remove of two at once: %v, want both named", err)
	}
	if err := s.Remove("office-2"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("office"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("office"); !errors.Is(err, ErrNotFound) {
		t.Errorf("remove of nothing: %v", err)
	}
	left, err := os.ReadDir(s.Dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAHeldImageStaysUntilTheLastHolderLetsGo(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "office-1", "office", 0, 5)
	img, err := s.Get("office")
	if err != nil {
		t.Fatal(err)
	}
	first, err := img.Hold()
	if err != nil {
		t.Fatal(err)
	}
	second, err := img.Hold()
	if err != nil {
		t.Fatalf("a second holder: %v", err)
	}
	first()
	if err := s.Remove("office"); !errors.Is(err, ErrInUse) {
		t.Errorf("remove of a held image: %v, want ErrInUse", err)
	}
	second()
	if err := s.Remove("office"); err != nil {
		t.Error(err)
	}
	if _, err := img.Hold(); err == nil {
		t.Error("a removed image could be held")
	}
}

func TestABrokenManifestIsNamed(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "office-1", "office", 0, 5)
	if err := os.WriteFile(filepath.Join(s.Dir, "office-1", manifestFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(); err == nil || !strings.Contains(err.Error(), "office-1") {
		t.Errorf("list says %v, want the image's name", err)
	}
}

// Manifests are decoded when they were written, and a build that finds its image there writes the date alone.
func TestAManifestThatWasWrittenAgainIsReadAgain(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	putImage(t, s, "office-1", "office", 0, 5)
	first, err := s.Get("office")
	if err != nil {
		t.Fatal(err)
	}
	putImage(t, s, "office-1", "office", 0, 6) // as long as before
	if err := os.Chtimes(filepath.Join(s.Dir, "office-1", manifestFile), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.Get("office"); err != nil || changed.Size != 6 || first.Size != 5 {
		t.Errorf("%+v, %v, want a size of 6; the first says %d", changed, err, first.Size)
	}
}
