package rootfs

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

//go:embed recipe
var recipes embed.FS

// profiles are the recipes that [Store.Build] knows, smallest first. Each holds everything the one before it holds.
var profiles = []string{"min", "base", defaultProfile}

const defaultSuite = "trixie"

// recipeVersion changes when the steps of this package change in a way that the embedded files do not show.
const recipeVersion = "1"

// excluded is documentation, translation and the tests of the largest libraries (150 MiB): no program reads them.
// Copyright files stay: licences ask for them. py3compile is left out so that set-up scripts skip it; the build
// compiles at the end.
func excluded() []string {
	rules := []string{
		"path-exclude=/usr/share/man/*",
		"path-exclude=/usr/share/info/*",
		"path-exclude=/usr/share/lintian/*",
		"path-exclude=/usr/share/help/*",
		"path-exclude=/usr/share/locale/*",
		"path-exclude=/usr/share/doc/*",
		"path-include=/usr/share/doc/*/copyright",
		"path-exclude=/usr/bin/py3compile",
	}
	// Not numpy: numpy.testing, which others import, needs its tests.
	for _, library := range []string{"matplotlib", "mpl_toolkits", "pandas", "scipy", "sklearn", "statsmodels", "sympy"} {
		dir := "path-exclude=/usr/lib/python3/dist-packages/" + library
		rules = append(rules, dir+"/tests/*", dir+"/*/tests/*")
	}
	return rules
}

// recipe is everything that decides what an image will hold, apart from the versions the archive has that day.
type recipe struct {
	profile  string
	suite    string
	packages []string
	// smoke are the embedded check programs, in order.
	smoke []string
	// node says that the Node libraries of recipe/node are installed.
	node bool
	// wheels is the folder of user wheels; empty means none. requirements is its lock file.
	wheels       string
	requirements []byte
}

func newRecipe(profile, suite, wheels string) (*recipe, error) {
	if profile == "" {
		profile = defaultProfile
	}
	if suite == "" {
		suite = defaultSuite
	}
	last := slices.Index(profiles, profile)
	if last < 0 {
		return nil, fmt.Errorf("profile %q: one of %s: %w", profile, strings.Join(profiles, ", "), ErrNotFound)
	}
	if !validName.MatchString(suite) {
		return nil, fmt.Errorf("suite %q: %w", suite, ErrInvalidName)
	}
	r := &recipe{profile: profile, suite: suite, node: profile == defaultProfile}
	for _, p := range profiles[:last+1] {
		lines, err := embeddedLines("recipe/" + p + ".txt")
		if err != nil {
			return nil, err
		}
		r.packages = append(r.packages, lines...)
		r.smoke = append(r.smoke, "recipe/smoke_"+p+".py")
	}
	slices.Sort(r.packages)
	if wheels == "" {
		return r, nil
	}
	return r, r.addWheels(wheels)
}

func (r *recipe) addWheels(dir string) error {
	if r.profile == "min" {
		return fmt.Errorf("wheels need pip, which profile min lacks: use base or office: %w", ErrNoTool)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("wheels folder: %w", err)
	}
	lock, err := os.ReadFile(filepath.Join(abs, requirementsFile))
	if err != nil {
		return fmt.Errorf("wheels folder needs %s with a hash for each wheel (pip hash FILE prints one): %w", requirementsFile, err)
	}
	r.wheels, r.requirements = abs, lock
	return nil
}

// digest covers the recipe. Wheels are covered by the hashes in their lock file.
func (r *recipe) digest() (string, error) {
	h := sha256.New()
	write := func(parts ...string) {
		for _, p := range parts {
			_, _ = fmt.Fprintf(h, "%d:%s\n", len(p), p) // a hash never fails
		}
	}
	write(recipeVersion, r.profile, r.suite, runtime.GOARCH, string(r.requirements))
	write(r.packages...)
	write(excluded()...)
	embedded := append([]string{"recipe/libraries.txt", "recipe/libraries.py"}, r.smoke...)
	if r.node {
		embedded = append(embedded, nodeFiles...)
	}
	for _, name := range embedded {
		b, err := recipes.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read recipe: %w", err)
		}
		write(name, string(b))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// imageDigest tells two builds of one recipe apart when the archive had other versions.
func imageDigest(recipeDigest string, packages map[string]string) string {
	h := sha256.New()
	_, _ = io.WriteString(h, recipeDigest) // a hash never fails
	names := make([]string, 0, len(packages))
	for name := range packages {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		_, _ = fmt.Fprintf(h, "\n%s=%s", name, packages[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// embeddedLines reads a list: one word a line, # comments.
func embeddedLines(name string) ([]string, error) {
	f, err := recipes.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	defer f.Close()
	var lines []string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, sc.Err()
}
