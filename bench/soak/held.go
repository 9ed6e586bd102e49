package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// holdings is what a server holds on its host at a moment: how many of each kind. A kind has no number, id or random name in
// it, so what is given back and taken anew is the same again.
type holdings map[string]int

// growth names every kind of which there is more after; a fall is no leak. What is bounded by a setting and not by
// what happened may fill up to its bound.
func (h holdings) growth(after holdings) string {
	var grown []string
	for kind, n := range after {
		if n > max(h[kind], bounds[kind]) {
			grown = append(grown, fmt.Sprintf("%s: %d, were %d", kind, n, h[kind]))
		}
	}
	slices.Sort(grown)
	return strings.Join(grown, "; ")
}

// missed names a kind of which there is another number.
func (h holdings) missed(now holdings) string {
	for _, kind := range slices.Sorted(maps.Keys(h)) {
		if now[kind] != h[kind] {
			return fmt.Sprintf("%s: %d, wanted %d", kind, now[kind], h[kind])
		}
	}
	return ""
}

// bounds: SQLite's connections are made as they are needed, one to write and these to read, and stay.
var bounds = map[string]int{
	"descriptor: DATA/airlock.db":     1 + max(4, runtime.NumCPU()),
	"descriptor: DATA/airlock.db-wal": 1 + max(4, runtime.NumCPU()),
}

// held looks at a living server from outside: nothing of it is asked, so nothing of it can hide anything.
func held(pid int, instance, data string) (holdings, error) {
	h := holdings{}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	return h, errors.Join(h.descriptors(proc, data), h.processes(pid, instance), h.cgroups(instance), h.loops(data), h.folders(data))
}

// descriptors counts those of a process by what they are open on. Mounts of the product hang in no tree, so the mount table
// never shows them: a descriptor on one is known by a mount that the table has not.
func (h holdings) descriptors(proc, data string) error {
	table, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return err
	}
	mounts := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		id, _, _ := strings.Cut(line, " ")
		mounts[id] = true
	}
	h["mount in the tree"] = len(mounts)
	entries, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(proc, "fd", e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return err
		}
		info, err := os.ReadFile(filepath.Join(proc, "fdinfo", e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // as above: without its mount it would count as one that is on none
		}
		if err != nil {
			return err
		}
		h["descriptor: "+descriptorKind(target, !mounts[mountOf(info)], data)]++
	}
	return nil
}

func mountOf(fdinfo []byte) string {
	for line := range bytes.Lines(fdinfo) {
		if id, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
			return string(bytes.TrimSpace(id))
		}
	}
	return ""
}

// descriptorKind takes what differs each time out of what /proc/PID/fd says; loose is a mount that hangs in no tree.
func descriptorKind(target string, loose bool, data string) string {
	switch {
	case strings.HasPrefix(target, "anon_inode:"):
		return strings.Trim(strings.TrimPrefix(target, "anon_inode:"), "[]")
	case !strings.HasPrefix(target, "/"): // socket:[1234], mnt:[4026531840]
		kind, _, _ := strings.Cut(target, ":")
		return kind
	case strings.HasPrefix(target, "/memfd:"):
		return "memory file"
	case strings.HasPrefix(target, "/dev/loop") && target != "/dev/loop-control":
		return "loop device"
	case strings.HasPrefix(target, "/run/airlock/ids/"):
		return "id range"
	case strings.HasPrefix(target, "/sys/fs/cgroup/"):
		return "cgroup"
	case loose:
		return "detached mount"
	case filepath.Base(target) == "manifest.json":
		return "root file system" // held against removal
	case filepath.Base(target) == "log":
		return "log"
	case strings.HasPrefix(target, data+"/"):
		path := "DATA" + strings.TrimPrefix(target, data)
		if dir := filepath.Dir(path); dir != "DATA" {
			return strings.Join(strings.Split(dir, "/")[:2], "/") + "/*"
		}
		return path
	}
	return target
}

// processes counts the children of the server, dead ones that nobody has waited for among them, and the sandboxes in which
// something runs: how many processes a sandbox has is its own affair, and its limit's.
func (h holdings) processes(pid int, instance string) error {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if name, state, parent := parseStat(string(stat)); parent == pid && state == "Z" {
			h["child: dead and not waited for"]++
		} else if parent == pid {
			h["child: "+name]++
		}
		groups, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if err != nil {
			continue
		}
		if _, group, ok := strings.Cut(string(groups), "/airlock-"+instance+"-"); ok {
			group, _, _ = strings.Cut(group, "\n")
			running[group] = true
		}
	}
	h["sandbox with processes"] = len(running)
	return nil
}

// parseStat reads "12 (name) S 1 ..."; a name may hold anything, so what follows it begins at the last bracket.
func parseStat(stat string) (name, state string, parent int) {
	_, rest, _ := strings.Cut(stat, " (")
	end := strings.LastIndex(rest, ") ")
	if end < 0 {
		return "", "", 0
	}
	if _, err := fmt.Sscan(rest[end+2:], &state, &parent); err != nil {
		return "", "", 0
	}
	return rest[:end], state, parent
}

// cgroups counts the groups of the instance in each hierarchy.
func (h holdings) cgroups(instance string) error {
	const top = "/sys/fs/cgroup/"
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups of others come and go while this walks
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), "airlock-"+instance+"-") {
			hierarchy, _, _ := strings.Cut(strings.TrimPrefix(path, top), "/")
			h["cgroup: "+hierarchy]++
		}
		return nil
	})
}

// loops counts the loop devices of images, and the mounted file systems on them: one that stays mounted anywhere, in
// whatever namespace, is seen here.
func (h holdings) loops(data string) error {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(backing), data+"/") {
			continue
		}
		h["loop device"]++
		if _, err := os.Stat(filepath.Join("/sys/fs/ext4", strings.Split(file, "/")[3])); err == nil {
			h["mounted image"]++
		}
	}
	return nil
}

// poolImages are the workspaces of sandboxes that are kept ready, baseEntries what is kept of one on disk.
const (
	poolImages  = "image of the pool"
	baseEntries = "entry of bases"
)

// atRest is what a server holds of these kinds when it has nothing more to do: one pool image more is a base in the making.
func atRest(driver string) holdings {
	if driver == "gvisor" {
		return holdings{poolImages: poolSize, baseEntries: 1}
	}
	return holdings{poolImages: poolSize, baseEntries: 0}
}

// folders counts what lies in the folders of the data folder.
func (h holdings) folders(data string) error {
	paths, err := filepath.Glob(filepath.Join(data, "*", "*"))
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "pool-") {
			h[poolImages]++
		} else {
			h["entry of "+filepath.Base(filepath.Dir(path))]++
		}
	}
	return err
}

// quiet waits until the server holds the same at every look for a while, and what it must at rest: the pool is full again,
// what was spent is gone. It gives what is held then, and at the limit the error says what keeps changing.
func quiet(ctx context.Context, limit time.Duration, rest holdings, look func() (holdings, error)) (last holdings, err error) {
	const every, enough = 250 * time.Millisecond, 60 // 15 s: the pool pauses for 10 after a failure
	changed := ""
	for same, deadline := 0, time.Now().Add(limit); same < enough; same++ {
		now, err := look()
		if err != nil {
			return nil, err
		}
		switch more, less := last.growth(now), now.growth(last); {
		case rest.missed(now) != "":
			same, changed = -1, rest.missed(now)
		case more+less != "":
			same, changed = -1, more+" / "+less
		}
		last = now
		if time.Now().After(deadline) || !pause(ctx, every) {
			return last, fmt.Errorf("not at rest within %s: %s", limit, changed)
		}
	}
	return last, nil
}
