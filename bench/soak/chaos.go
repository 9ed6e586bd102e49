package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// trouble is what may go wrong at a moment; it ends by itself.
type trouble struct {
	name string
	run  func(context.Context, *world, *rand.Rand) error
}

var troubles = []trouble{
	{"kill", func(ctx context.Context, w *world, _ *rand.Rand) error { return w.kill(ctx) }},
	{"full disk", fillDisk},
	{"no cgroups", failCgroups},
	{"kill a guest", killGuests},
	{"kill", func(ctx context.Context, w *world, _ *rand.Rand) error { return w.kill(ctx) }},
	{"look beside", func(ctx context.Context, w *world, _ *rand.Rand) error { w.lookBeside(ctx); return nil }},
}

// chaos makes trouble, one after the other at random distances, until the context ends.
func chaos(ctx context.Context, w *world) error {
	rng := w.o.random(1)
	for i := 0; ; i++ {
		if !pause(ctx, time.Duration(4+rng.IntN(12))*time.Second) {
			return nil
		}
		t := troubles[i%len(troubles)]
		if err := t.run(ctx, w, rng); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
}

// pause says whether the context still lives after d.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// fillDisk leaves a random little of the disk for some seconds: now above the mark of reads only, now nothing at all.
func fillDisk(ctx context.Context, w *world, rng *rand.Rand) error {
	file := filepath.Join(w.disk, "filler")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(file)
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Statfs(w.disk, &st); err != nil {
		return err
	}
	leave := int64([]int{12, 4, 0}[rng.IntN(3)])
	size := int64(st.Bavail)*st.Bsize - leave*diskBytes/100
	if size <= 0 {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	w.report.count(fmt.Sprintf("disk filled up to %d %%", 100-leave))
	pause(ctx, time.Duration(2+rng.IntN(4))*time.Second)
	return nil
}

// failCgroups has the kernel refuse new groups below ours for some seconds.
func failCgroups(ctx context.Context, w *world, rng *rand.Rand) error {
	limit := filepath.Join(w.groups, "cgroup.max.descendants")
	if err := os.WriteFile(limit, []byte("0"), 0o600); err != nil {
		return err
	}
	w.report.count("spells without new cgroups")
	pause(ctx, time.Duration(2+rng.IntN(3))*time.Second)
	return os.WriteFile(limit, []byte("max"), 0o600)
}

// killGuests ends the first process of some sandboxes, as the kernel does when memory is short on the host.
func killGuests(_ context.Context, w *world, rng *rand.Rand) error {
	for _, pid := range w.guests() {
		if rng.IntN(3) > 0 {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		w.report.count("kill -9 of a guest")
	}
	return nil
}

// guests are the first processes of our sandboxes.
func (w *world) guests() []int {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return nil
	}
	w.mu.Lock()
	prefix := "airlock-" + w.server.Instance + "-"
	w.mu.Unlock()
	var pids []int
	for _, file := range files {
		group, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if err != nil || !strings.Contains(string(group), prefix) {
			continue
		}
		status, err := os.ReadFile(file)
		if err != nil || !isFirst(string(status)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isFirst: NSpid is the pid on the host, then that in the sandbox. What lies deeper is the inside of a gVisor.
func isFirst(status string) bool {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "NSpid:" {
			return fields[2] == "1"
		}
	}
	return false
}
