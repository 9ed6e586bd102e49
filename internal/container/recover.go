package container

import (
	"context"
	"fmt"
)

// Recovered is what a start found of the run before.
type Recovered struct {
	Kept     int // containers that go on with their workspace
	Lost     int // containers whose workspace is missing
	Deleted  int // deletions that the end of the run before had cut off
	Orphaned int // workspace images without a container, or beside a packed one
}

// Recover sets right what the run before of the same instance left: it is called before the first request, after the
// driver's own sweep. A crash can fall between any two of row, image and sandbox; a row whose image is there goes on, a
// row whose image is missing is told the truth, an image without a row is removed. Other instances' rows and images are
// not touched: rows carry their home, images lie in the own data folder.
func (s *Service) Recover(ctx context.Context) (Recovered, error) {
	var r Recovered
	rows, err := mine(ctx, s.DB, s.Instance)
	if err != nil {
		return r, err
	}
	images, err := s.Workspaces.List()
	if err != nil {
		return r, fmt.Errorf("list workspaces: %w", err)
	}
	orphan := make(map[string]bool, len(images))
	for _, id := range images {
		orphan[id] = true
	}
	stale, err := s.sweepSnapshots()
	if err != nil {
		return r, err
	}
	for _, c := range rows {
		has := orphan[string(c.ID)]
		switch c.State {
		case StateActive:
			if c.packed() {
				r.Kept++ // an image beside the blob was not packed away or unpacked to the end: it goes
				break
			}
			if c.hasWorkspace && !has {
				err = setState(ctx, s.DB, c.ID, StateActive, StateLost)
				r.Lost++
				break
			}
			delete(orphan, string(c.ID))
			if c.repl == replHeld {
				delete(stale, string(c.ID))
			}
			r.Kept++
		case StateDeleting:
			delete(orphan, string(c.ID))
			err = s.finishDelete(ctx, c.ID)
			r.Deleted++
		case StateExpired, StateLost, StateDeleted:
			// Not read: an image that one of these still has is an orphan.
		}
		if err != nil {
			return r, err
		}
	}
	for id := range orphan {
		if err := s.Workspaces.Remove(id); err != nil {
			return r, fmt.Errorf("remove orphan workspace %s: %w", id, err)
		}
		r.Orphaned++
	}
	for id := range stale {
		if err := s.dropSnapshot(ID(id)); err != nil {
			return r, err
		}
	}
	return r, nil
}
