package leftover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is where to look; the zero value is this machine.
type Host struct {
	Cgroups   string // mounts of the hierarchies
	Instances string // locks of the servers
	Proc      string
}

var groupName = regexp.MustCompile(`^airlock-([a-z0-9]+)-`)

// ownerForm is a name that test drivers have; the word is of letters, so that the number is the process id.
var ownerForm = regexp.MustCompile(`^[a-z]+([0-9]+)n[0-9]+[a-z]?$`)

// Remove removes them. Tests call it before they start, and a failure of it is none of theirs.
func Remove() error { return Host{"/sys/fs/cgroup", "/run/airlock/instances", "/proc"}.Remove() }

// Remove is for tests of this package; see the function of the same name.
func (h Host) Remove() error {
	var dead []string
	err := filepath.WalkDir(h.Cgroups, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another one was faster
		}
		if err != nil {
			return err
		}
		name := groupName.FindStringSubmatch(d.Name())
		if !d.IsDir() || name == nil {
			return nil
		}
		if h.isDead(name[1]) {
			dead = append(dead, path)
		}
		return fs.SkipDir
	})
	if err != nil {
		return fmt.Errorf("find left-over cgroups: %w", err)
	}
	var errs []error
	for _, path := range dead {
		// Rmdir alone: it refuses a group that has a process or a group in it.
		err := unix.Rmdir(path)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: path, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (h Host) isDead(id string) bool {
	if owner := ownerForm.FindStringSubmatch(id); owner != nil {
		_, err := os.Stat(filepath.Join(h.Proc, owner[1]))
		return errors.Is(err, fs.ErrNotExist)
	}
	// Whoever took the lock to see whether it is free would keep a server from starting.
	var st unix.Stat_t
	if unix.Stat(filepath.Join(h.Instances, id), &st) != nil {
		return false
	}
	locks, err := os.ReadFile(filepath.Join(h.Proc, "locks"))
	return err == nil && !strings.Contains(string(locks), fmt.Sprintf(":%d ", st.Ino))
}
