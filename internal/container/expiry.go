package container

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// sweepExpired is one pass over the rows of this instance: containers past their time give up sandbox and workspace, and
// ends that failed in an earlier pass are tried again.
func (s *Service) sweepExpired(ctx context.Context) error {
	left, err := unfinished(ctx, s.DB, s.Instance)
	if err != nil {
		return err
	}
	ids, err := due(ctx, s.DB, s.Instance, s.now())
	if err != nil {
		return err
	}
	ends := make(map[ID]func() error, len(left)+len(ids))
	for _, id := range ids {
		// Conditional on the times: a turn may have begun and ended since the row was read.
		ends[id] = func() error {
			return s.expire(ctx, id, func() (bool, error) { return markExpired(ctx, s.DB, id, s.now()) })
		}
	}
	for _, c := range left {
		ends[c.ID] = func() error { return s.expire(ctx, c.ID, nil) }
		if c.State == StateDeleting {
			ends[c.ID] = func() error { return s.retryDelete(ctx, c.ID) }
		}
	}
	var mu sync.Mutex
	var errs []error
	forEach(sweepers, slices.Collect(maps.Keys(ends)), func(id ID) {
		err := s.bounded(id, ends[id])
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// retryDelete finishes a deletion, unless the request that began it is still at work or the turn that it cut off has not
// ended. One that another server began has cut off nothing yet.
func (s *Service) retryDelete(ctx context.Context, id ID) error {
	done, ok := s.beginDelete(id)
	if !ok {
		return nil
	}
	defer done()
	if s.cutOffBefore(id) {
		return nil
	}
	// Since the row was read the request may have ended well.
	if c, err := find(ctx, s.DB, id); err != nil || c.State != StateDeleting {
		return err
	}
	if err := s.finishDelete(ctx, id); err != nil {
		return err
	}
	s.log().InfoContext(ctx, "deletion finished", "container_id", id)
	return nil
}

// cutOffBefore says whether a turn that was told to end is still at work.
func (s *Service) cutOffBefore(id ID) bool {
	v := s.known(id)
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed && len(v.turn) > 0
}

// expire gives up sandbox and workspace if mark, called under the turn, says so; nil = the row is marked already.
func (s *Service) expire(ctx context.Context, id ID, mark func() (bool, error)) error {
	done, ok := s.begin(&s.expiring, id)
	if !ok {
		return nil // left behind by an earlier pass
	}
	defer done()
	v := s.known(id)
	if v != nil {
		if !v.try() {
			return nil // in use: its end moves the expiry
		}
		defer v.put()
	}
	if mark != nil {
		if gone, err := mark(); err != nil || !gone {
			return err
		}
	}
	if v != nil {
		if err := s.endSandbox(ctx, v, whyExpired); err != nil {
			return err
		}
		v.mu.Lock()
		v.closed = true // what its next use was to be told, nobody will ask for
		v.mu.Unlock()
		s.forget(v)
	}
	if err := s.dropSnapshot(id); err != nil {
		return err
	}
	if err := s.Workspaces.Remove(string(id)); err != nil {
		return err
	}
	c, err := find(ctx, s.DB, id)
	if err != nil {
		return err
	}
	if err := s.dropPack(ctx, c); err != nil {
		return err
	}
	if err := setWorkspace(ctx, s.DB, id, false); err != nil {
		return err
	}
	s.log().InfoContext(ctx, "container expired", "container_id", id)
	return nil
}
