package servertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
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
		if err == nil && bytes.Contains(b, []byte(prefix)) {
			found = append(found, "process "+file)
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
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		found := p.Leftovers()
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
