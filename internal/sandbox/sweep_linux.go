package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sweep kills and removes the groups that an earlier run of the same instance left. There must be no living sandbox.
func (c *Cgroups) Sweep(ctx context.Context) error {
	var errs []error
	for _, name := range c.leftOver() {
		g := c.existing(name)
		err := g.Kill()
		if rerr := g.Remove(ctx); rerr != nil {
			errs = append(errs, fmt.Errorf("sweep %s: %w", name, errors.Join(rerr, err)))
		}
	}
	return errors.Join(errs...)
}

// leftOver names the groups of this instance, in any hierarchy; not those that settleV2 made.
func (c *Cgroups) leftOver() []string {
	seen := map[string]bool{c.prefix + serverLeaf: true, c.prefix + freshGroup: true}
	var names []string
	for _, base := range c.bases() {
		entries, err := os.ReadDir(base)
		if err != nil {
			continue // a hierarchy that is gone holds nothing of ours
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), c.prefix) && !seen[e.Name()] {
				seen[e.Name()] = true
				names = append(names, e.Name())
			}
		}
	}
	return names
}

func (c *Cgroups) bases() []string {
	var out []string
	for _, dir := range c.v1 {
		out = append(out, dir)
	}
	if c.v2 != "" {
		out = append(out, c.v2)
	}
	if fresh := c.freshDir(); c.mode == CgroupV2 && fresh != c.v2 {
		out = append(out, fresh) // an earlier run may have started elsewhere
	}
	return out
}

func (c *Cgroups) existing(name string) *Cgroup {
	g := &Cgroup{owner: c, name: name}
	for _, base := range c.bases() {
		dir := filepath.Join(base, name)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		g.dirs = append(g.dirs, dir)
		if c.mode == CgroupV2 || base == c.v2 {
			g.v2 = dir
		}
	}
	return g
}

// SweepRunDir removes the runtime folders of this instance.
func (h Host) SweepRunDir() error {
	if h.RunDir == "" {
		return nil
	}
	entries, err := os.ReadDir(h.RunDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep runtime folders: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), h.Prefix()) {
			errs = append(errs, os.RemoveAll(filepath.Join(h.RunDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
