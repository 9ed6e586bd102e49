package container

import (
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// CodeTooMany is the code of a refusal because too many sandboxes of the caller's work already.
const CodeTooMany = "too_many_containers"

// inUse counts the containers that are at work, by app and by user: those of turns that use a sandbox, and those whose code
// waits for an answer from outside. Sandboxes that only wait for their next turn do not count: they make room for others by
// themselves.
type inUse struct {
	mu    sync.Mutex
	apps  map[string]int
	users map[share]int
}

// share is what one container takes, of an app's and of a user's. Users are those of tokens; whoever acts for the app itself
// has the share of the app.
type share struct{ app, user string }

// take counts a container for a caller; 0 is no limit. instead is what the same container has already, nil for nothing: a
// turn that goes on with code that waits takes nothing more.
func (s *inUse) take(c tenant.Caller, perApp, perUser int, instead *share) (*share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := share{c.AppID, c.UserID}
	apps, users := s.apps[own.app], s.users[own]
	if instead != nil && instead.app == own.app {
		apps--
	}
	if instead != nil && *instead == own {
		users--
	}
	switch {
	case perApp > 0 && apps >= perApp:
		return nil, tooMany("this app", perApp)
	case perUser > 0 && own.user != "" && users >= perUser:
		return nil, tooMany("this user", perUser)
	}
	s.add(own, 1)
	if instead != nil {
		s.add(*instead, -1)
	}
	return &own, nil
}

// give ends what take began; nil is nothing.
func (s *inUse) give(h *share) {
	if h == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(*h, -1)
}

// add counts; the mutex is held.
func (s *inUse) add(h share, n int) {
	if s.apps == nil {
		s.apps, s.users = map[string]int{}, map[share]int{}
	}
	if s.apps[h.app] += n; s.apps[h.app] == 0 {
		delete(s.apps, h.app)
	}
	if s.users[h] += n; s.users[h] == 0 {
		delete(s.users, h)
	}
}

func tooMany(whose string, limit int) error {
	return wire.RateLimited(5*time.Second, "%d containers of %s are at work or have code that waits for an answer, which is the limit; retry when one of them has ended.",
		limit, whose).WithCode(CodeTooMany)
}

// settleShare ends what a turn took of its caller's share, unless code goes on waiting; then the container keeps it.
func (l *Lease) settleShare(waits *Parkable) {
	if l.share != nil {
		l.live.share, l.share = l.share, nil
	}
	if waits == nil {
		l.s.giveShare(l.live)
	}
}

// giveShare ends what a container has of a share without a turn; the caller holds its turn.
func (s *Service) giveShare(v *live) {
	s.inUse.give(v.share)
	v.share = nil
}
