package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// v2Tree is what the search for a place on pure v2 starts from and comes to. There, a group with limits on its children
// must hold no process itself, and only what its parent passes on can be limited.
type v2Tree struct {
	top    string // where the hierarchy is mounted
	chosen bool   // the operator named the group
	moved  bool   // the server has moved from its group to a leaf of it
	fresh  bool   // groups are made below a group of our own at the top
	write  func(dir, file, value string) error
}

// Names end in these; a sandbox id cannot begin with a dot.
const (
	serverLeaf = ".server"    // group that the server moves itself into
	freshGroup = ".sandboxes" // group at the top of the hierarchy
)

// aboveLeaf is the group in which a server was before another driver, of the same process or of one that started it, moved
// it to a leaf: their sandboxes belong side by side.
func aboveLeaf(path string) string {
	if name := filepath.Base(path); strings.HasPrefix(name, "airlock-") && strings.HasSuffix(name, serverLeaf) {
		return filepath.Dir(path)
	}
	return path
}

// settleV2 finds the group below which sandboxes get theirs. The server's own is best: its manager then counts and ends
// them with it. In a login session that holds the shell too, and the kernel refuses; a group of our own at the top, which
// does not end with the session either, takes its place.
func (c *Cgroups) settleV2() error {
	err := c.delegateSomewhere()
	if err != nil {
		return fmt.Errorf("no cgroup can pass the limits of memory, pids and cpu on to sandboxes: start the server with "+
			"systemd-run -p Delegate=yes, or name a group without processes by the setting sandbox.cgroup_parent: %w", err)
	}
	return nil
}

func (c *Cgroups) delegateSomewhere() error {
	if c.tree.chosen {
		return c.delegateDown(c.v2)
	}
	own := c.delegateOwn()
	if own == nil {
		return nil
	}
	if err := c.delegateFresh(); err != nil {
		return errors.Join(own, err)
	}
	return nil
}

// delegate lets the children of a group be limited. It changes nothing where that is so already.
func (c *Cgroups) delegate(dir string) error {
	return c.tree.write(dir, "cgroup.subtree_control", "+"+strings.Join(required, " +"))
}

// delegateOwn moves the server to a leaf of its group if need be, and back if that was of no use.
func (c *Cgroups) delegateOwn() error {
	err := c.delegate(c.v2)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	leaf := filepath.Join(c.v2, c.prefix+serverLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the server's own cgroup: %w", err)
	}
	if err := c.tree.write(leaf, "cgroup.procs", "0"); err != nil {
		return errors.Join(fmt.Errorf("move to the server's own cgroup: %w", err), os.Remove(leaf))
	}
	if err := c.delegate(c.v2); err != nil {
		return errors.Join(err, c.moveBack())
	}
	c.tree.moved = true
	return nil
}

func (c *Cgroups) moveBack() error {
	if err := c.tree.write(c.v2, "cgroup.procs", "0"); err != nil {
		return fmt.Errorf("move back from the server's own cgroup: %w", err)
	}
	return os.Remove(filepath.Join(c.v2, c.prefix+serverLeaf))
}

// freshDir is in the way of nobody and, with the instance's name, found again by a sweep.
func (c *Cgroups) freshDir() string { return filepath.Join(c.tree.top, c.prefix+freshGroup) }

func (c *Cgroups) delegateFresh() error {
	dir := c.freshDir()
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make a cgroup at the top: %w", err)
	}
	if err := c.delegateDown(dir); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	c.v2, c.tree.fresh = dir, true
	return nil
}

// delegateDown passes the controllers on in every group from the top to dir.
func (c *Cgroups) delegateDown(dir string) error {
	if dir != c.tree.top {
		if err := c.delegateDown(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return c.delegate(dir)
}

// Close undoes what NewCgroups did to the groups of this host, as far as nobody else has come to need it. There must be no
// living sandbox.
func (c *Cgroups) Close() error {
	switch {
	case c.tree.fresh:
		// Busy or not empty: somebody else's is in it, or a left-over for the next sweep.
		_ = os.Remove(c.v2)
	case c.tree.moved:
		if others, err := hasGroupsBeside(c.v2, c.prefix+serverLeaf); others || err != nil {
			return err
		}
		c.tree.moved = false
		if err := c.tree.write(c.v2, "cgroup.subtree_control", "-"+strings.Join(required, " -")); err != nil {
			return fmt.Errorf("give the server's cgroup back: %w", err)
		}
		return c.moveBack()
	}
	return nil
}

func hasGroupsBeside(dir, name string) (bool, error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && e.Name() != name {
			return true, err
		}
	}
	return false, err
}
