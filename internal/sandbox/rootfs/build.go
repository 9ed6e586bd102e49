package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// BuildOptions says what to build. The zero value builds office for trixie if its recipe has changed.
type BuildOptions struct {
	// Profile is min, base or office; empty means office.
	Profile string
	// Suite is the Debian release; empty means trixie.
	Suite string
	// Wheels is a folder with wheels and a requirements.txt that has a hash for each; empty means none.
	Wheels string
	// Refresh builds again although the recipe is the same, to take the archive's updates.
	Refresh bool
	// Progress is called from one goroutine, often; nil means nobody listens.
	Progress func(Progress)
	// Now is used for the date of the image; nil means time.Now.
	Now func() time.Time
}

// Build makes an image, or returns the one that an equal recipe already made. It needs root, mmdebstrap and the
// network. A build that is cancelled or fails leaves nothing behind; its error ends with the last lines of the program
// that failed. Builds wait for each other.
func (s *Store) Build(ctx context.Context, o BuildOptions) (*Image, error) {
	r, err := newRecipe(o.Profile, o.Suite, o.Wheels)
	if err != nil {
		return nil, err
	}
	want, err := r.digest()
	if err != nil {
		return nil, err
	}
	report := o.Progress
	if report == nil {
		report = func(Progress) {}
	}
	release, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	if img, err := s.byRecipe(want); err != nil || (img != nil && !o.Refresh) {
		return img, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("build root file system: %w", ErrNotRoot)
	}
	return s.inTemp(func(temp string) (*Image, error) {
		img := &Image{Profile: r.profile, Suite: r.suite, RecipeDigest: want, BuiltAt: now(o.Now)}
		tree := filepath.Join(temp, treeDir)
		if err := r.make(ctx, tree, report); err != nil {
			return nil, fmt.Errorf("build %s: %w", r.profile, err)
		}
		return s.publish(ctx, temp, img, report)
	})
}

// make fills tree: the packages, what Debian lacks, the finish, the check.
func (r *recipe) make(ctx context.Context, tree string, report func(Progress)) error {
	if err := r.debootstrap(ctx, tree, report); err != nil {
		return err
	}
	if r.node {
		report(Progress{Phase: PhaseNode})
		if err := installNode(ctx, tree); err != nil {
			return err
		}
	}
	if r.wheels != "" {
		report(Progress{Phase: PhaseWheels})
		if err := installWheels(ctx, tree, r.wheels); err != nil {
			return err
		}
	}
	report(Progress{Phase: PhaseFinish})
	if err := finish(tree, leftovers); err != nil {
		return err
	}
	for i, name := range r.smoke {
		report(Progress{Phase: PhaseCheck, Done: int64(i), Total: int64(len(r.smoke))})
		if err := smoke(ctx, tree, name); err != nil {
			return err
		}
	}
	return nil
}

// noSync runs a program with an overlay that ignores fsync in front of the tree: dpkg syncs its records several times
// for each of 400 packages, for a tree that is thrown away if the machine stops. The lower folder is empty, so the
// upper one ends up as the plain tree. $1 is a folder with lower, work and merged, $2 the tree.
const noSync = `
mount -t overlay -o "volatile,lowerdir=$1/lower,upperdir=$2,workdir=$1/work" overlay "$1/merged" ||
	mount --bind "$2" "$1/merged"
shift 2
exec "$@"
`

func (r *recipe) debootstrap(ctx context.Context, tree string, report func(Progress)) error {
	if err := needTools("mmdebstrap", "unshare"); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(tree), "bootstrap-")
	if err != nil {
		return fmt.Errorf("make overlay: %w", err)
	}
	for _, dir := range []string{tree, filepath.Join(scratch, "lower"), filepath.Join(scratch, "work"), filepath.Join(scratch, "merged")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make overlay: %w", err)
		}
	}
	args := []string{
		"sh", "-euc", noSync, "bootstrap", scratch, tree, "mmdebstrap", "--verbose", "--variant=minbase", "--format=directory",
		`--aptopt=APT::Install-Recommends "false"`,
		`--aptopt=Acquire::Languages "none"`,
		"--dpkgopt=force-unsafe-io", // the tree is thrown away if the machine stops before it is published
		// As a --dpkgopt the exclusions would make mmdebstrap filter the first packages in Perl, which takes 40 s.
		"--essential-hook=printf '%s\\n' '" + strings.Join(excluded(), "' '") + `' >"$1/etc/dpkg/dpkg.cfg.d/airlock"`,
		"--include=" + strings.Join(r.packages, ","),
	}
	// No mirror argument: mmdebstrap then takes the suite's own archives, through whatever proxy the host has.
	args = append(args, r.suite, filepath.Join(scratch, "merged"))
	p := &progressWriter{report: report}
	if err := run(ctx, command{argv: args, out: p, env: os.Environ()}); err != nil {
		return fmt.Errorf("mmdebstrap: %w", err)
	}
	if err := errors.Join(removeTree(scratch), forgetOverlay(tree)); err != nil {
		return err
	}
	report(Progress{Phase: PhaseCompile})
	// Instead of py3compile in each package's set-up: one process for each CPU. Some packages carry files that are no
	// valid Python 3 (templates, examples), so the exit status says nothing.
	const compile = `python3 -m compileall -qq -j 0 /usr/lib/python3/dist-packages || [ $? = 1 ]`
	if err := runInside(ctx, inside{tree: tree, root: true, argv: []string{"sh", "-euc", compile}}); err != nil {
		return fmt.Errorf("compile python libraries: %w", err)
	}
	return nil
}

// byRecipe finds the newest image of a recipe; nil if there is none.
func (s *Store) byRecipe(digest string) (*Image, error) {
	images, err := s.List()
	if err != nil {
		return nil, err
	}
	for _, img := range images {
		if img.RecipeDigest == digest {
			return img, nil
		}
	}
	return nil, nil
}

// inTemp runs f with a folder that is gone afterwards. The caller holds the lock, so older leftovers are a dead
// process's and go too.
func (s *Store) inTemp(f func(temp string) (*Image, error)) (img *Image, err error) {
	if err := s.sweep(); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(s.Dir, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, removeTree(temp)) }()
	return f(temp)
}

func (s *Store) sweep() error {
	old, err := filepath.Glob(filepath.Join(s.Dir, tempPrefix+"*"))
	if err != nil {
		return fmt.Errorf("list unfinished root file systems: %w", err)
	}
	for _, dir := range old {
		if err := removeTree(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeTree refuses a folder with something mounted in it: removing through a bind mount would empty the host.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return fmt.Errorf("remove %s: something is mounted in it: umount it by hand", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

func now(f func() time.Time) time.Time {
	if f == nil {
		f = time.Now
	}
	return f().UTC().Truncate(time.Second)
}
