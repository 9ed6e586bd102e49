package container

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// useAge is how old the reading of a sandbox's memory may be.
const useAge = time.Second

// evictRetry is how long a sandbox is left alone that could not be ended for somebody else.
const evictRetry = time.Minute

// memoryUse is what a sandbox used when it was last looked at.
type memoryUse struct {
	bytes int64
	at    time.Time
}

// enter asks for memory for the sandbox of a container, or for leave to take one of this class from the pool.
func (s *Service) enter(ctx context.Context, app string, class *sandbox.Class) (admission.Grant, error) {
	if s.Admission == nil {
		return admission.Grant{}, nil
	}
	var spare func() bool
	if class != nil {
		spare = func() bool { return s.Pool.Has(*class) }
	}
	return s.Admission.Enter(ctx, app, spare, evictable{s})
}

var errNoSpare = errors.New("there is no memory for one more sandbox that is only kept ready")

// AdmitSpare says whether memory carries one more sandbox that is only kept ready: it is the Admit of a pool, as far as memory
// goes.
func (s *Service) AdmitSpare(ctx context.Context) error {
	if s.Admission == nil {
		return nil
	}
	switch s.Admission.SpareRoom(ctx, evictable{s}) {
	case admission.SpareMore:
		return nil
	case admission.SpareNone:
		return sandbox.ErrScarce
	case admission.SpareKept:
	}
	return errNoSpare
}

// evictable are the sandboxes of a service as admission sees them.
type evictable struct{ s *Service }

// Count implements admission.Sandboxes.
func (e evictable) Count() int { return e.s.LiveCount() }

// Uses implements admission.Sandboxes.
func (e evictable) Uses(ctx context.Context) []int64 {
	now := time.Now()
	var all []int64
	for _, v := range e.s.snapshot() {
		if sb := v.sandbox(); sb != nil {
			all = append(all, v.memory(now, measure(ctx, sb)))
		}
	}
	return all
}

func measure(ctx context.Context, sb *sandbox.Sandbox) func() (int64, error) {
	return func() (int64, error) {
		u, err := sb.Usage(ctx)
		return u.Memory - u.Reclaimable, err
	}
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

// Evict implements admission.Sandboxes: of the sandboxes without a turn it ends the one that was used longest ago, frozen ones
// first, and if all have code that waits for an answer the one that waiting lists first. It ends as after a long rest: files
// stay, processes and variables only where they can be kept.
func (e evictable) Evict(ctx context.Context) bool {
	s := e.s
	ctx, cancel := context.WithTimeout(ctx, keepEvictLimit)
	defer cancel()
	for _, v := range s.idle() {
		if s.evictOne(ctx, v, func() bool { return v.parked() == nil }) {
			return true
		}
	}
	for _, v := range s.waiting(ctx) {
		if s.evictOne(ctx, v, func() bool { return v.missable() != nil }) {
			return true
		}
	}
	return false
}

// evictOne ends one sandbox, if it is still as it was found to be.
func (s *Service) evictOne(ctx context.Context, v *live, still func() bool) (gone bool) {
	if !v.try() {
		return false // used since
	}
	defer v.put()
	if v.sandbox() == nil || !still() {
		return false
	}
	if r := v.parked(); r != nil {
		s.cutOff(ctx, v, r)
	}
	if err := s.endSandbox(ctx, v, whyMemory); err != nil {
		s.log().ErrorContext(ctx, "put away sandbox", "container_id", v.id, "error", err)
		v.noEvict = s.now().Add(evictRetry)
		return v.sandbox() == nil
	}
	s.forget(v)
	return true
}

// cutOffLimit is how long code that waits gets to end before its sandbox does: time to keep its variables is left.
const cutOffLimit = keepEvictLimit / 2

// cutOff interrupts a parked cell whose memory is needed. Whoever answers it is told what is told after a restart.
func (s *Service) cutOff(ctx context.Context, v *live, r *Parkable) {
	ctx, cancel := context.WithTimeout(ctx, cutOffLimit)
	defer cancel()
	err := v.endParked(ctx, errMissed)
	v.unpark(r) // also if it did not end in time: its sandbox does
	s.log().WarnContext(ctx, "parked cell ended for memory", "container_id", v.id, "waited", s.now().Sub(r.parkedSince()), "error", err)
}

var errMissed = errors.New("the memory of a sandbox whose code only waited was needed for another")

// missable is the parked cell if it only waits: one that is at work, or that has ended and whose result nobody has taken yet,
// is left alone.
func (v *live) missable() *Parkable {
	r := v.parked()
	if r == nil || r.over() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.park.Busy || r.since.IsZero() {
		return nil
	}
	return r
}

// waiting lists the entries whose code waits for an answer, those first that can be missed most: of the app whose sandboxes,
// also those at work, use most memory, in it of the user whose do, and of these the one that waits longest.
func (s *Service) waiting(ctx context.Context) []*live {
	type candidate struct {
		v     *live
		owner share
		since time.Time
	}
	now := time.Now()
	apps, users := map[string]int64{}, map[share]int64{}
	var all []candidate
	for _, v := range s.snapshot() {
		sb := v.sandbox()
		if sb == nil {
			continue
		}
		v.mu.Lock()
		c := candidate{v: v, owner: share{v.owner.AppID, v.owner.UserID}}
		v.mu.Unlock()
		use := max(v.memory(now, measure(ctx, sb)), cmp.Or(s.Admission.Share, admission.DefaultShare))
		apps[c.owner.app] += use
		users[c.owner] += use
		if !v.try() {
			continue
		}
		if r := v.missable(); r != nil && !s.now().Before(v.noEvict) {
			c.since = r.parkedSince()
			all = append(all, c)
		}
		v.put()
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(apps[b.owner.app], apps[a.owner.app]), cmp.Compare(a.owner.app, b.owner.app),
			cmp.Compare(users[b.owner], users[a.owner]), cmp.Compare(a.owner.user, b.owner.user), a.since.Compare(b.since), cmp.Compare(a.v.id, b.v.id))
	})
	out := make([]*live, len(all))
	for i, c := range all {
		out[i] = c.v
	}
	return out
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
		if !v.try() {
			continue
		}
		if v.sandbox() != nil && v.parked() == nil && !s.now().Before(v.noEvict) {
			all = append(all, candidate{v, v.frozen, v.idleSince})
		}
		v.put()
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
