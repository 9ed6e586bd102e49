package host

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const gib = 1 << 30

// Admission keeps max(2 GiB, 10 %) of memory for the machine itself.
func memoryReserve(total int64) int64 { return max(2*gib, total/10) }

func probeMemory(context.Context, Options) Check {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fail(err.Error(), "the server cannot know how many sandboxes fit", "")
	}
	return judgeMemory(string(b))
}

func judgeMemory(meminfo string) Check {
	total, available := meminfoBytes(meminfo, "MemTotal"), meminfoBytes(meminfo, "MemAvailable")
	reserve := memoryReserve(total)
	found := fmt.Sprintf("%s of %s free, %s kept for the machine", size(available), size(total), size(reserve))
	if available <= reserve {
		return warn(found, "no sandbox would be admitted: requests are answered 529", "free memory, or add some")
	}
	return ok(found)
}

func meminfoBytes(meminfo, key string) int64 {
	for line := range strings.Lines(meminfo) {
		rest, found := strings.CutPrefix(line, key+":")
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}

func probeDisk(ctx context.Context, o Options) Check {
	dir := existingParent(o.Data)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fail(dir+": "+err.Error(), "the data folder cannot be used", "airlock serve --data DIR")
	}
	block := uint64(st.Bsize)
	return nameLargest(ctx, o, judgeDisk(dir, int64(st.Blocks*block), int64(st.Bavail*block), int64(st.Files), int64(st.Ffree)))
}

// nameLargest adds to the check of a disk that fills up who fills it.
func nameLargest(ctx context.Context, o Options, c Check) Check {
	if c.Status == OK || o.Largest == nil {
		return c
	}
	who, err := o.Largest(ctx)
	if err != nil {
		who = "not known: " + err.Error()
	}
	if who != "" {
		c.Means += "; largest apps: " + who
	}
	return c
}

func judgeDisk(dir string, total, free, inodes, inodesFree int64) Check {
	found := fmt.Sprintf("%s: %s of %s free", dir, size(free), size(total))
	used := usedPercent(total, free)
	if inodes > 0 {
		used = max(used, usedPercent(inodes, inodesFree))
	}
	const remedy = "make room, or use another disk: airlock serve --data DIR"
	switch {
	case used >= 95:
		return fail(found, "at 95 % only reads and deletes are served", remedy)
	case used >= 85:
		return warn(found, "at 85 % new uploads and containers are answered 529", remedy)
	}
	return ok(found)
}

func usedPercent(total, free int64) int64 {
	if total <= 0 {
		return 0
	}
	return (total - free) * 100 / total
}

func size(n int64) string {
	switch {
	case n >= gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
