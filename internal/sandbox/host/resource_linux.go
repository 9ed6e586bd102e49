package host

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

const gib = 1 << 30

func probeMemory(_ context.Context, o Options) Check {
	memory, err := sandbox.NewMemory(sandbox.Host{CgroupParent: o.CgroupParent})
	if err != nil {
		return fail(err.Error(), "the server cannot know how many sandboxes fit", "")
	}
	total, available, err := memory.Read()
	if err != nil {
		return fail(err.Error(), "the server cannot know how many sandboxes fit", "")
	}
	return judgeMemory(o, total, available)
}

func judgeMemory(o Options, total, available int64) Check {
	reserve := int64(0)
	if o.Reserve != nil {
		reserve = o.Reserve(total)
	}
	found := fmt.Sprintf("%s of %s free, %s kept for the machine", size(available), size(total), size(reserve))
	if available <= reserve {
		return warn(found, "no sandbox would be admitted: requests are answered 529", "free memory, add some, or lower sandbox.memory_reserve")
	}
	return ok(found)
}

func probeDisk(ctx context.Context, o Options) Check {
	dir := existingParent(o.Data)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fail(dir+": "+err.Error(), "the data folder cannot be used", "airlock serve --data DIR")
	}
	block := uint64(st.Bsize)
	all := st.Blocks - st.Bfree + st.Bavail // as sandbox.DiskUsed counts: without what the file system keeps back
	return nameLargest(ctx, o, judgeDisk(o, dir, int64(all*block), int64(st.Bavail*block), int64(st.Files), int64(st.Ffree)))
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

func judgeDisk(o Options, dir string, total, free, inodes, inodesFree int64) Check {
	found := fmt.Sprintf("%s: %s of %s free", dir, size(free), size(total))
	used := max(usedShare(total, free), usedShare(inodes, inodesFree))
	const remedy = "make room, or use another disk: airlock serve --data DIR"
	switch {
	case o.Full > 0 && used >= o.Full:
		return fail(found, fmt.Sprintf("at %g %% only reads and deletes are served", o.Full*100), remedy)
	case o.Crowded > 0 && used >= o.Crowded:
		return warn(found, fmt.Sprintf("at %g %% new uploads and containers are answered 529", o.Crowded*100), remedy)
	}
	return ok(found)
}

// usedShare is 0 for a file system that does not count, as some do not count inodes.
func usedShare(total, free int64) float64 {
	if total <= 0 {
		return 0
	}
	return float64(total-free) / float64(total)
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
