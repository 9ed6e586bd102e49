package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// Snapshot is what a host instance holds at one moment: everything that a
// sandbox could leave behind.
type Snapshot struct {
	// Processes are "pid name" of processes in a cgroup of the instance.
	Processes []string
	// Cgroups are the folders named after the instance, of every hierarchy.
	Cgroups []string
	// Mounts are the lines of the mount table that name the instance's folder.
	Mounts []string
	// Loops are the loop devices whose file lies in the instance's folder.
	Loops []string
	// Folders are the entries of the run folder and the workspace folder,
	// templates left out.
	Folders []string
	// Descriptors are the open files of this process.
	Descriptors []string
	// Goroutines of this process.
	Goroutines int
}

// Leftovers reads everything that belongs to the instance now.
func (e *Env) Leftovers() (Snapshot, error) {
	return TakeSnapshot(e.Host.ID, e.Dir)
}

// TakeSnapshot reads what the instance of that id, which keeps its files below
// dir, holds now.
func TakeSnapshot(instance, dir string) (Snapshot, error) {
	var s Snapshot
	var errs [6]error
	mark := "airlock-" + instance
	s.Cgroups, errs[0] = cgroupsNamed(mark)
	s.Processes, errs[1] = processesIn(mark)
	s.Mounts, errs[2] = linesWith("/proc/self/mountinfo", mark, dir)
	s.Loops, errs[3] = loopsOf(dir)
	s.Folders, errs[4] = foldersBelow(dir)
	s.Descriptors, errs[5] = descriptors()
	s.Goroutines = runtime.NumGoroutine()
	return s, errors.Join(errs[:]...)
}

// Since says what s has that before had not; nothing is an empty text.
func (s Snapshot) Since(before Snapshot) string {
	var b strings.Builder
	for _, kind := range []struct {
		name      string
		then, now []string
	}{
		{"process", before.Processes, s.Processes},
		{"cgroup", before.Cgroups, s.Cgroups},
		{"mount", before.Mounts, s.Mounts},
		{"loop device", before.Loops, s.Loops},
		{"folder", before.Folders, s.Folders},
		{"descriptor", before.Descriptors, s.Descriptors},
	} {
		for _, item := range added(kind.then, kind.now) {
			fmt.Fprintf(&b, "%s left: %s\n", kind.name, item)
		}
	}
	if s.Goroutines > before.Goroutines {
		fmt.Fprintf(&b, "goroutines: %d, were %d\n", s.Goroutines, before.Goroutines)
	}
	return b.String()
}

// added lists what now has more often than then.
func added(then, now []string) []string {
	count := map[string]int{}
	for _, item := range then {
		count[item]++
	}
	var extra []string
	for _, item := range now {
		if count[item]--; count[item] < 0 {
			extra = append(extra, item)
		}
	}
	return extra
}

// leakWithin is how long the kernel may take to give everything back.
const leakWithin = 10 * time.Second

// CheckLeaks waits until nothing is left that was not there before, and
// fails with the list if something stays.
func (e *Env) CheckLeaks(ctx context.Context, before Snapshot) error {
	return WaitClean(ctx, e.Host.ID, e.Dir, before)
}

// WaitClean is CheckLeaks for an instance that need not be of this process.
func WaitClean(ctx context.Context, instance, dir string, before Snapshot) error {
	left, extra := "", 0
	err := Eventually(ctx, leakWithin, func() (bool, error) {
		now, err := TakeSnapshot(instance, dir)
		if err != nil {
			return false, err
		}
		left, extra = now.Since(before), now.Goroutines-before.Goroutines
		return left == "", nil
	})
	if errors.Is(err, errNotYet) {
		if extra > 0 {
			left += stacks()
		}
		return fmt.Errorf("left on the host:\n%s", left)
	}
	return err
}

func stacks() string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return err.Error()
	}
	return b.String()
}

// cgroupsNamed lists the groups of every hierarchy whose name has the mark.
func cgroupsNamed(mark string) ([]string, error) {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		// A group may go away while it is read.
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.Contains(d.Name(), mark) {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// processesIn lists the processes whose cgroup path has the mark.
func processesIn(mark string) ([]string, error) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range pids {
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !bytes.Contains(groups, []byte(mark)) || bytes.HasSuffix(groups, []byte(mark+"-.server\n")) {
			continue // the last is where a server puts itself on v2
		}
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue
		}
		found = append(found, filepath.Base(dir)+" "+strings.TrimSpace(string(name)))
	}
	return found, nil
}

func linesWith(path string, marks ...string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(line, m) }) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, nil
}

func loopsOf(dir string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, f := range files {
		backing, err := os.ReadFile(f)
		if err == nil && strings.HasPrefix(string(backing), dir+"/") {
			found = append(found, strings.Split(f, "/")[3]+" "+strings.TrimSpace(string(backing)))
		}
	}
	return found, nil
}

// foldersBelow lists the files of the instance. The templates of workspaces
// stay by design; their names begin with "template".
func foldersBelow(dir string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !strings.Contains(d.Name(), "template") {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

func descriptors() ([]string, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		// The descriptor of this very listing is gone by now.
		if err != nil {
			continue
		}
		// Sockets and pipes have numbers of their own each time.
		kind, _, _ := strings.Cut(target, ":[")
		found = append(found, kind)
	}
	slices.Sort(found)
	return found, nil
}
