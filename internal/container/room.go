package container

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// useAge is how old the reading of a sandbox's memory may be.
const useAge = time.Second

// evictRetry is how long a sandbox is left alone that could not be ended for room.
const evictRetry = time.Minute

// memoryUse is what a sandbox used when it was last looked at.
type memoryUse struct {
	bytes int64
	at    time.Time
}

// enter asks for memory for the sandbox of a container, or for leave to take one of this class from the pool.
func (s *Service) enter(ctx context.Context, app string, class *sandbox.Class) (grant, error) {
	if s.Admission == nil {
		return grant{}, nil
	}
	var spare func() bool
	if class != nil {
		spare = func() bool { return s.Pool.Has(*class) }
	}
	return s.Admission.enter(ctx, app, spare, s)
}

var errNoSpare = errors.New("there is no memory for one more sandbox that is only kept ready")

// AdmitSpare says whether memory carries one more sandbox that is only kept ready: it is the Admit of a pool, as far as memory
// goes.
func (s *Service) AdmitSpare(ctx context.Context) error {
	if s.Admission == nil {
		return nil
	}
	switch s.Admission.spareRoom(ctx, s) {
	case spareMore:
		return nil
	case spareNone:
		return sandbox.ErrScarce
	case spareKept:
	}
	return errNoSpare
}

// count implements crowd.
func (s *Service) count() int { return s.LiveCount() }

// uses implements crowd.
func (s *Service) uses(ctx context.Context) []int64 {
	now := time.Now()
	var all []int64
	for _, v := range s.snapshot() {
		if sb := v.sandbox(); sb != nil {
			all = append(all, v.memory(now, func() (int64, error) {
				u, err := sb.Usage(ctx)
				return u.Memory - u.Reclaimable, err
			}))
		}
	}
	return all
}

// memory is what the sandbox of an entry used at most useAge ago. One that cannot be read is ending.
func (v *live) memory(now time.Time, read func() (int64, error)) int64 {
	v.mu.Lock()
	use := v.use
	v.mu.Unlock()
	if now.Sub(use.at) < useAge {
		return use.bytes
	}
	bytes, err := read()
	if err != nil {
		return use.bytes
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.use = memoryUse{bytes, now}
	return bytes
}

// evict implements crowd: of the sandboxes without a turn it ends the one that was used longest ago, frozen ones first.
// It ends as after a long rest: files stay, processes and variables only where they can be kept.
func (s *Service) evict(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, keepRoomLimit)
	defer cancel()
	for _, v := range s.idle() {
		select {
		case v.turn <- struct{}{}:
		default:
			continue // used since
		}
		gone := v.sandbox() != nil && v.run() == nil
		if gone {
			if err := s.endSandbox(ctx, v, whyRoom); err != nil {
				s.log().ErrorContext(ctx, "put away idle sandbox", "container_id", v.id, "error", err)
				gone = v.sandbox() == nil
				v.noEvict = s.now().Add(evictRetry)
			} else {
				s.forget(v)
			}
		}
		<-v.turn
		if gone {
			return true
		}
	}
	return false
}

// idle lists the entries with a sandbox and without a turn, the one to be missed most last, without those that could not be
// ended a moment ago.
func (s *Service) idle() []*live {
	type candidate struct {
		v      *live
		frozen bool
		since  time.Time
	}
	var all []candidate
	for _, v := range s.snapshot() {
		select {
		case v.turn <- struct{}{}:
		default:
			continue
		}
		if v.sandbox() != nil && v.run() == nil && !s.now().Before(v.noEvict) {
			all = append(all, candidate{v, v.frozen, v.idleSince})
		}
		<-v.turn
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if a.frozen != b.frozen {
			if a.frozen {
				return -1
			}
			return 1
		}
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.v.id, b.v.id))
	})
	out := make([]*live, len(all))
	for i, c := range all {
		out[i] = c.v
	}
	return out
}
