package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Leftovers lists what runs of this data folder have on the host: processes, loop devices, mounts, cgroups, folders. A
// living server without a sandbox has none of it.
func (p *Process) Leftovers() []string {
	var found []string
	prefix := "airlock-" + p.Instance + "-"
	procs, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return []string{err.Error()}
	}
	for _, file := range procs {
		b, err := os.ReadFile(file)
		if group := groupWith(string(b), prefix); err == nil && group != "" {
			found = append(found, "process "+file+" in "+group)
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return []string{err.Error()}
	}
	for _, l := range loops {
		b, err := os.ReadFile(l)
		if err == nil && strings.HasPrefix(string(b), p.Data+"/") {
			found = append(found, "loop device "+l+" of "+strings.TrimSpace(string(b)))
		}
	}
	found = append(found, p.mounts(prefix)...)
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups of others come and go while this walks
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
			found = append(found, "cgroup "+path)
		}
		return nil
	})
	if err != nil {
		found = append(found, err.Error())
	}
	entries, err := os.ReadDir(filepath.Join(p.Data, "run"))
	if err != nil {
		found = append(found, err.Error())
	}
	for _, e := range entries {
		found = append(found, "runtime folder "+e.Name())
	}
	return found
}

// Unmount waits, 30 s at most, for what keeps a disk busy after its server has ended: a child that another goroutine starts
// has a copy of every descriptor until it runs its program, and the kernel gives a loop device's file back after its lock.
func Unmount(dir string) error {
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Unmount(dir, 0)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-tick.C:
		case <-limit:
			return err
		}
	}
}

// groupWith is the first group in a list of a process's groups whose name begins so.
func groupWith(groups, prefix string) string {
	_, rest, found := strings.Cut(groups, "/"+prefix)
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "\n")
	return prefix + name
}

// mounts below the data folder, or with the instance's name. The data folder itself may be one.
func (p *Process) mounts(prefix string) []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, p.Data+"/") || strings.Contains(line, prefix) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found
}

// WaitClean waits until nothing is left; the kernel takes some milliseconds to let go of loop devices.
func (p *Process) WaitClean(ctx context.Context, limit time.Duration) error {
	return wait(ctx, limit, p.Leftovers)
}

// WaitCleared waits until nothing is left of the run before, which was dead when it had old; this one's pool may have made
// sandboxes since.
func (p *Process) WaitCleared(ctx context.Context, limit time.Duration, old []string) error {
	return wait(ctx, limit, func() []string { return withoutPool(p.Leftovers(), old) })
}

// poolMember is the name of a sandbox that waits in a pool. No two ever have the same.
var poolMember = regexp.MustCompile(`pool-[a-z0-9]+`)

// withoutPool takes out what belongs to members of a pool that are not old.
func withoutPool(found, old []string) []string {
	known := map[string]bool{}
	for _, o := range old {
		known[poolMember.FindString(o)] = true
	}
	return slices.DeleteFunc(found, func(f string) bool {
		name := poolMember.FindString(f)
		return name != "" && !known[name]
	})
}

func wait(ctx context.Context, limit time.Duration, look func() []string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		found := look()
		if len(found) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%v after the start there is still:\n%s", limit, strings.Join(found, "\n"))
		case <-tick.C:
		}
	}
}
