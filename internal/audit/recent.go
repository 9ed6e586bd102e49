package audit

import (
	"container/list"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// span is how long equal events are counted in one entry.
	span = time.Hour
	// mostOfOne is how many different events of one source and kind are remembered, and so may wait to be written.
	mostOfOne = 512
	// mostRecent is how many of all are.
	mostRecent = 16_384
)

// dropped is the event of what did not fit.
const dropped = "audit.dropped"

// source is who can cause events like this: an app, or the issuer of a user of no app; "" is anybody.
func (e Event) source() string {
	if e.AppID != "" {
		return e.AppID
	}
	if issuer, _, ok := strings.Cut(e.User, "/"); ok {
		return issuer
	}
	return ""
}

// recent are the entries to which equal events still count, and those that wait to be written. Its zero value is ready. Room
// is given by source and kind of event: what one app or issuer causes takes nothing from others, and what it can cause many
// of, as refusals with ids it makes up, nothing from what the administration does with it.
type recent struct {
	shares  map[share]*entries
	known   int // entries of all shares
	waiting []*entry
}

type share struct{ source, event string }

// entries of a share. Those that changed last are at the end, so that those that wait to be written are behind all others.
type entries struct {
	byEvent map[Event]*list.Element // by the event without its request
	order   list.List               // of *entry
	dropped *entry
}

type entry struct {
	Entry
	waits bool
}

// count takes an event that has happened.
func (r *recent) count(e Event, request string, now time.Time) {
	k := share{e.source(), e.Event}
	s := r.shares[k]
	if s == nil {
		if r.shares == nil {
			r.shares = map[share]*entries{}
		}
		s = &entries{byEvent: map[Event]*list.Element{}}
		r.shares[k] = s
	}
	it := r.find(s, e, now)
	if it == nil && r.hasRoom(s) {
		it = newEntry(e, request, now)
		s.byEvent[e] = s.order.PushBack(it)
		r.known++
	}
	if it == nil {
		it = s.drop(e, now)
	}
	it.Count++
	it.LastAt = now
	if !it.waits {
		it.waits = true
		r.waiting = append(r.waiting, it)
	}
}

func newEntry(e Event, request string, now time.Time) *entry {
	it := &entry{Entry: Entry{ID: wire.NewID("audit"), At: now, Event: e}}
	it.RequestID = request
	return it
}

// open reports whether equal events still count to an entry.
func (it *entry) open(now time.Time) bool {
	age := now.Sub(it.At)
	return age >= 0 && age < span
}

// find gives the open entry of an event.
func (r *recent) find(s *entries, e Event, now time.Time) *entry {
	el := s.byEvent[e]
	if el == nil {
		return nil
	}
	it, _ := el.Value.(*entry)
	if !it.open(now) {
		r.forget(s, e)
		return nil
	}
	s.order.MoveToBack(el)
	return it
}

// forget closes an entry. If it waits to be written it does so all the same.
func (r *recent) forget(s *entries, e Event) {
	s.order.Remove(s.byEvent[e])
	delete(s.byEvent, e)
	r.known--
}

// hasRoom makes room for one more entry of a share by closing what is written, and reports whether there is some.
func (r *recent) hasRoom(s *entries) bool {
	if len(s.byEvent) >= mostOfOne && !r.close(s, 1) {
		return false
	}
	if len(r.waiting) >= mostRecent {
		return false
	}
	if r.known >= mostRecent {
		for k, other := range r.shares {
			r.close(other, mostOfOne)
			if len(other.byEvent) == 0 && other != s {
				delete(r.shares, k)
			}
		}
	}
	return true
}

// close closes so many entries that are written, those first that did not change for longest; false = there is none.
func (r *recent) close(s *entries, most int) (some bool) {
	for range most {
		front := s.order.Front()
		if front == nil {
			break
		}
		it, _ := front.Value.(*entry)
		if it.waits {
			break
		}
		key := it.Event
		key.RequestID = ""
		r.forget(s, key)
		some = true
	}
	return some
}

// drop gives the entry that counts what found no room.
func (s *entries) drop(e Event, now time.Time) *entry {
	if s.dropped == nil || !s.dropped.open(now) {
		s.dropped = newEntry(Event{
			Level: Warn, AppID: e.AppID, Event: dropped, Detail: e.Event + ": more at once than are kept",
		}, "", now)
	}
	return s.dropped
}

// take gives what waits and a copy of it to be written.
func (r *recent) take() (taken []*entry, batch []Entry) {
	taken, r.waiting = r.waiting, nil
	batch = make([]Entry, len(taken))
	for i, it := range taken {
		it.waits = false
		batch[i] = it.Entry
	}
	return taken, batch
}

// putBack has what was taken wait again.
func (r *recent) putBack(taken []*entry) {
	var again []*entry
	for _, it := range taken {
		if !it.waits { // otherwise it changed meanwhile and waits already
			it.waits = true
			again = append(again, it)
		}
	}
	r.waiting = append(again, r.waiting...)
}
