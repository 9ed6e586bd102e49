package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func mustRecipe(t *testing.T, profile, suite, wheels string) *recipe {
	t.Helper()
	r, err := newRecipe(profile, suite, wheels)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func digestOf(t *testing.T, r *recipe) string {
	t.Helper()
	d, err := r.digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEachProfileHoldsTheOneBefore(t *testing.T) {
	t.Parallel()
	var before []string
	for _, p := range profiles {
		r := mustRecipe(t, p, "", "")
		for _, pkg := range before {
			if !slices.Contains(r.packages, pkg) {
				t.Errorf("%s lacks %s", p, pkg)
			}
		}
		if len(r.packages) <= len(before) {
			t.Errorf("%s adds nothing", p)
		}
		if d := slices.Compact(slices.Clone(r.packages)); len(d) != len(r.packages) {
			t.Errorf("%s names a package twice", p)
		}
		before = r.packages
	}
	for _, r := range []*recipe{mustRecipe(t, "min", "", ""), mustRecipe(t, "base", "", "")} {
		if r.node {
			t.Errorf("%s has node libraries", r.profile)
		}
	}
}

func TestRecipeDigestChangesWithEverythingThatDecides(t *testing.T) {
	t.Parallel()
	wheels := t.TempDir()
	lock := filepath.Join(wheels, requirementsFile)
	write := func(s string) {
		if err := os.WriteFile(lock, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a==1 --hash=sha256:00\n")
	seen := map[string]string{}
	note := func(what string, r *recipe) {
		d := digestOf(t, r)
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	note("office", mustRecipe(t, "office", "trixie", ""))
	note("base", mustRecipe(t, "base", "trixie", ""))
	note("another suite", mustRecipe(t, "office", "forky", ""))
	note("wheels", mustRecipe(t, "office", "trixie", wheels))
	write("a==2 --hash=sha256:11\n")
	note("other wheels", mustRecipe(t, "office", "trixie", wheels))
	more := mustRecipe(t, "office", "trixie", "")
	more.packages = append(more.packages, "vim")
	note("one package more", more)

	if d := digestOf(t, mustRecipe(t, "", "", "")); seen[d] != "office" {
		t.Error("the zero options are not office for trixie, or the digest is not stable")
	}
}

func TestUnusableRecipesAreRefused(t *testing.T) {
	t.Parallel()
	locked := t.TempDir()
	if err := os.WriteFile(filepath.Join(locked, requirementsFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, profile, suite, wheels string
		want                         error
	}{
		{"unknown profile", "huge", "", "", ErrNotFound},
		{"suite that is an option", "min", "--hook-dir=x", "", ErrInvalidName},
		{"wheels without a lock file", "base", "", t.TempDir(), os.ErrNotExist},
		{"wheels without pip", "min", "", locked, ErrNoTool},
	} {
		if _, err := newRecipe(tc.profile, tc.suite, tc.wheels); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestNothingInTheRecipeNamesARegistryOrMirror(t *testing.T) {
	t.Parallel()
	entries, err := recipes.ReadDir("recipe")
	if err != nil {
		t.Fatal(err)
	}
	files := slices.Clone(nodeFiles)
	for _, e := range entries {
		if !e.IsDir() {
			files = append(files, "recipe/"+e.Name())
		}
	}
	address := regexp.MustCompile(`https?://|"resolved"`)
	for _, name := range files {
		b, err := recipes.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := address.Find(b); at != nil {
			t.Errorf("%s has %s", name, at)
		}
	}
}

func TestNodeLockHasAHashForEachLibrary(t *testing.T) {
	t.Parallel()
	lock, err := recipes.ReadFile("recipe/node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	libraries := strings.Count(string(lock), `"node_modules/`)
	if hashes := strings.Count(string(lock), `"integrity": "sha512-`); libraries == 0 || hashes != libraries {
		t.Errorf("%d hashes for %d libraries", hashes, libraries)
	}
}

func TestImageDigestDependsOnPackageVersions(t *testing.T) {
	t.Parallel()
	a := imageDigest("r", map[string]string{"x": "1", "y": "2"})
	if a != imageDigest("r", map[string]string{"y": "2", "x": "1"}) {
		t.Error("the digest depends on the order of a map")
	}
	if a == imageDigest("r", map[string]string{"x": "1", "y": "3"}) || a == imageDigest("s", map[string]string{"x": "1", "y": "2"}) {
		t.Error("two images share a digest")
	}
}
