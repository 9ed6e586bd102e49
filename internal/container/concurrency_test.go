package container

import (
	"fmt"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestS106ShareOfAnAppAndOfAUser(t *testing.T) {
	t.Parallel()
	var s inUse
	caller := func(app, user string) tenant.Caller { return tenant.Caller{AppID: app, UserID: user} }
	take := func(c tenant.Caller) (*share, error) { return s.take(c, 32, 8, nil) }
	refused := func(what string, c tenant.Caller) {
		t.Helper()
		if _, err := take(c); err == nil {
			t.Errorf("%s is let in", what)
		} else if e := wire.AsError(err); e.HTTPStatus() != 429 || e.Code != CodeTooMany || e.RetryAfter <= 0 {
			t.Errorf("%s is told %v", what, e)
		}
	}
	var give []*share
	must := func(c tenant.Caller) {
		t.Helper()
		g, err := take(c)
		if err != nil {
			t.Fatal(err)
		}
		give = append(give, g)
	}
	for range 8 {
		must(caller("a", "u"))
	}
	refused("the 9th of a user", caller("a", "u"))
	must(caller("b", "u")) // the same subject in another app is another user
	for i := range 16 {
		must(caller("a", fmt.Sprint("v", i/8)))
	}
	for range 8 {
		must(caller("a", "")) // the app itself has no share of a user
	}
	refused("the 33rd of an app, by its key", caller("a", ""))
	refused("the 33rd of an app, by a user", caller("a", "new"))
	s.give(give[0])
	must(caller("a", "new"))
	// Who goes on in the place of another takes the other's share of the app, and one of his own.
	if _, err := s.take(caller("a", "u"), 32, 8, give[1]); err != nil {
		t.Errorf("in his own place: %v", err)
	}
	if _, err := s.take(caller("a", "w"), 32, 8, give[2]); err != nil {
		t.Errorf("in the place of another user: %v", err)
	}
	if _, err := s.take(caller("a", "w"), 32, 1, give[3]); err == nil {
		t.Error("a user without a share left goes on in the place of another")
	}
	give[1], give[2] = &share{"a", "u"}, &share{"a", "w"}
	for _, g := range give[1:] {
		s.give(g)
	}
	s.give(nil)
	if len(s.apps) != 0 || len(s.users) != 0 {
		t.Errorf("left: %v, %v", s.apps, s.users)
	}
	for range 100 {
		if _, err := s.take(caller("a", "u"), 0, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
}
