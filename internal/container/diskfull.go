package container

import (
	"context"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// What writes is refused on a full disk before it begins, but a sandbox that runs already goes on writing into its image,
// up to its own limit and past what the host has. A host without any room refuses the writes of all images alike, most of
// them after the code that made them was told that they are done. So from there on whoever still makes his image grow loses
// his sandbox, and the others keep what they wrote.

const (
	// fullDiskEvery is how often images are looked at. What is left of a disk that counts as full has to last as long.
	fullDiskEvery = 250 * time.Millisecond
	// fullDiskBytes is what an image may grow in that time on a full disk: a log goes on, a download does not.
	fullDiskBytes = 1 << 20
)

// sweepFullDisk is one look at the disk and, while it is full, at the images of running sandboxes: those that have grown since
// the last look lose theirs. The background loop calls it.
func (s *Service) sweepFullDisk(ctx context.Context) {
	if s.DiskFull == nil {
		return
	}
	full := s.DiskFull(ctx)
	if before := s.wasFull.Swap(full); !full && !before {
		return
	}
	forEach(closers, s.snapshot(), func(v *live) {
		sb := v.sandbox()
		if sb == nil || sb.Ended() {
			return
		}
		if !full {
			v.grown(0) // what has grown since, on a disk with room, does not count
			return
		}
		size := s.Workspaces.Size(string(v.id))
		if before := v.grown(size); before == 0 || size-before < fullDiskBytes {
			return
		}
		s.log().WarnContext(ctx, "sandbox ended that fills the disk", "container_id", v.id, "size_bytes", size)
		if err := sb.End(ctx, sandbox.ExitDisk); err != nil {
			s.log().ErrorContext(ctx, "end sandbox that fills the disk", "container_id", v.id, "error", err)
		}
	})
}

// grown notes the size of the image, 0 for none, and gives the one noted before.
func (v *live) grown(size int64) (before int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.size = v.size, size
	return before
}
