package container

import (
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// CodeTooMany is the code of a refusal because too many sandboxes of the caller's work already.
const CodeTooMany = "too_many_containers"

// shares counts the turns that use a sandbox, by app and by user. Sandboxes that only wait for their next turn do not count:
// they make room for others by themselves.
type shares struct {
	mu   sync.Mutex
	apps map[string]int
	// users are those of tokens; whoever acts for the app itself has the share of the app.
	users map[[2]string]int
}

// take is the beginning of a turn's use of a sandbox; 0 is no limit. give, which may be called once, ends it.
func (s *shares) take(c tenant.Caller, perApp, perUser int) (give func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.apps == nil {
		s.apps, s.users = map[string]int{}, map[[2]string]int{}
	}
	user := [2]string{c.AppID, c.UserID}
	switch {
	case perApp > 0 && s.apps[c.AppID] >= perApp:
		return nil, tooMany("this app", perApp)
	case perUser > 0 && c.UserID != "" && s.users[user] >= perUser:
		return nil, tooMany("this user", perUser)
	}
	s.apps[c.AppID]++
	s.users[user]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.apps[c.AppID]--; s.apps[c.AppID] == 0 {
			delete(s.apps, c.AppID)
		}
		if s.users[user]--; s.users[user] == 0 {
			delete(s.users, user)
		}
	}, nil
}

func tooMany(whose string, limit int) error {
	return wire.RateLimited(5*time.Second, "%d containers of %s are at work, which is the limit; retry when one of them has ended.", limit, whose).WithCode(CodeTooMany)
}
