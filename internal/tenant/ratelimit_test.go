package tenant_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func (x *fixture) admit(c tenant.Caller, w tenant.Work) (func(), http.Header, error) {
	return x.s.Admit(x.t.Context(), c, w)
}

// wait is the time a 429 asks for.
func wait(t *testing.T, err error) time.Duration {
	t.Helper()
	var we *wire.Error
	if !errors.As(err, &we) || we.HTTPStatus() != 429 {
		t.Fatalf("%v is no 429", err)
	}
	return we.RetryAfter
}

func TestRequestsOfAMinuteAreCountedForUserAndApp(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.s.Limits = tenant.RateLimits{AppRequests: 10, UserRequests: 4}
		u, v := tenant.Caller{AppID: "app_1", UserID: "idp/u"}, tenant.Caller{AppID: "app_1", UserID: "idp/v"}
		elsewhere, owner := tenant.Caller{AppID: "app_2", UserID: "idp/u"}, tenant.Caller{AppID: "app_1"}
		for i := range 4 {
			_, h, err := x.admit(u, tenant.WorkRequest)
			if err != nil {
				t.Fatal(err)
			}
			if got := h.Get("anthropic-ratelimit-requests-remaining"); got != fmt.Sprint(3-i) || h.Get("anthropic-ratelimit-requests-limit") != "4" {
				t.Errorf("request %d: %v", i, h)
			}
		}
		_, h, err := x.admit(u, tenant.WorkRequest)
		if got := wait(t, err); got != 15*time.Second {
			t.Errorf("wait %s", got)
		}
		if h.Get("anthropic-ratelimit-requests-remaining") != "0" || h.Get("anthropic-ratelimit-requests-reset") != x.clock().Add(time.Minute).Format(time.RFC3339) {
			t.Errorf("refused with %v", h)
		}
		// What a user is refused does not use up the app's.
		for range 50 {
			_, _, err := x.admit(u, tenant.WorkRequest)
			wait(t, err)
		}
		if _, _, err := x.admit(elsewhere, tenant.WorkRequest); err != nil {
			t.Errorf("in another app: %v", err)
		}
		for range 4 {
			if _, _, err := x.admit(v, tenant.WorkRequest); err != nil {
				t.Error(err)
			}
		}
		for i := range 2 { // the owner has what is left of the app's ten, and no limit of a user
			if _, h, err := x.admit(owner, tenant.WorkRequest); err != nil || h.Get("anthropic-ratelimit-requests-limit") != "10" {
				t.Errorf("owner, request %d: %v, %v", i, h, err)
			}
		}
		_, _, err = x.admit(owner, tenant.WorkRequest)
		if got := wait(t, err); got != 6*time.Second {
			t.Errorf("wait %s", got)
		}
		x.advance(15 * time.Second)
		if _, _, err := x.admit(u, tenant.WorkRequest); err != nil {
			t.Error(err)
		}
		x.advance(-time.Hour) // a clock set back gives nothing and takes nothing
		_, _, err = x.admit(u, tenant.WorkRequest)
		wait(t, err)
	})
}

func TestMessagesInFlightAreCountedUntilTheyEnd(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.s.Limits = tenant.RateLimits{AppMessages: 3, UserMessages: 2}
		u, v := tenant.Caller{AppID: "app_1", UserID: "idp/u"}, tenant.Caller{AppID: "app_1", UserID: "idp/v"}
		must := func(c tenant.Caller) func() {
			t.Helper()
			release, _, err := x.admit(c, tenant.WorkMessage)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		full := func(c tenant.Caller) {
			t.Helper()
			release, _, err := x.admit(c, tenant.WorkMessage)
			if got := wait(t, err); got != 5*time.Second {
				t.Errorf("wait %s", got)
			}
			release()
		}
		one, two := must(u), must(u)
		full(u)
		if _, _, err := x.admit(u, tenant.WorkRequest); err != nil {
			t.Errorf("a request that is no message: %v", err)
		}
		three := must(v)
		full(v) // the app's
		full(tenant.Caller{AppID: "app_1"})
		must(tenant.Caller{AppID: "app_2", UserID: "idp/u"})()
		three()
		three() // once is enough
		full(u)
		must(v)()
		one()
		must(u)()
		two()
		must(u)()
	})
}

func TestLimitsThatAreSetReplaceTheDefaults(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.s.Limits = tenant.RateLimits{AppMessages: 9, UserMessages: 9, AppRequests: 9, UserRequests: 9}
		x.app("one")
		_, key := x.key(tenant.NewKey{App: "one"})
		tok := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		set := func(l tenant.Limit) {
			t.Helper()
			if _, err := x.s.SetLimit(t.Context(), "one", l); err != nil {
				t.Fatal(err)
			}
		}
		limits := func(headers ...string) tenant.Limits {
			t.Helper()
			c, err := x.auth(tenant.KindAPIKey|tenant.KindUser, headers...)
			if err != nil {
				t.Fatal(err)
			}
			return c.Limits
		}
		set(tenant.Limit{Messages: 5})
		set(tenant.Limit{User: "u", Requests: 3})
		set(tenant.Limit{User: "airlock/u", Messages: 2, Requests: 4})
		if got, want := limits("X-Api-Key", key), (tenant.Limits{AppMessages: 5}); got != want {
			t.Errorf("of the key: %+v", got)
		}
		if got, want := limits(tenant.TokenHeader, tok), (tenant.Limits{AppMessages: 5, UserMessages: 2, UserRequests: 4}); got != want {
			t.Errorf("of the user: %+v", got)
		}
		c, err := x.auth(tenant.KindUser, tenant.TokenHeader, tok)
		if err != nil {
			t.Fatal(err)
		}
		if _, h, err := x.admit(c, tenant.WorkRequest); err != nil || h.Get("anthropic-ratelimit-requests-limit") != "4" {
			t.Errorf("%v, %v", h, err)
		}
		all, next, err := x.s.ListLimits(t.Context(), "", 1, "")
		if err != nil || len(all) != 1 || all[0].User != "" || next == "" {
			t.Fatal(all, next, err)
		}
		all, next, err = x.s.ListLimits(t.Context(), "", 1, next)
		if err != nil || len(all) != 1 || all[0].User != "airlock/u" || next != "" {
			t.Fatal(all, next, err)
		}
		for _, want := range []bool{true, false} {
			if existed, err := x.s.RemoveLimit(t.Context(), "one", "u"); err != nil || existed != want {
				t.Fatal(existed, err)
			}
		}
		if got, want := limits(tenant.TokenHeader, tok), (tenant.Limits{AppMessages: 5}); got != want {
			t.Errorf("after removal: %+v", got)
		}
		for _, l := range []tenant.Limit{{}, {Messages: -1}, {Requests: 1_000_001}, {User: "a\nb", Messages: 1}, {User: "A/b", Messages: 1}} {
			_, err := x.s.SetLimit(t.Context(), "one", l)
			wantStatus(t, err, http.StatusBadRequest, "")
		}
		_, err = x.s.SetLimit(t.Context(), "none", tenant.Limit{Messages: 1})
		wantStatus(t, err, http.StatusNotFound, "")
	})
}

func TestWhoTriesIDsIsStoppedAtSixtyAMinute(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.s.Limits.Misses = 60
		c, other := tenant.Caller{AppID: "app_1", UserID: "idp/u"}, tenant.Caller{AppID: "app_1", UserID: "idp/v"}
		for i := range 60 {
			release, _, err := x.admit(c, tenant.WorkRequest)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			x.s.Miss(c)
			release()
		}
		_, _, err := x.admit(c, tenant.WorkRequest)
		if got := wait(t, err); got != time.Second {
			t.Errorf("wait %s", got)
		}
		if _, _, err := x.admit(other, tenant.WorkRequest); err != nil {
			t.Error(err)
		}
		// The key of an application asks for many users: what some of them lost must not stop the others.
		owner := tenant.Caller{AppID: "app_1"}
		for range 61 {
			x.s.Miss(owner)
		}
		if _, _, err := x.admit(owner, tenant.WorkRequest); err != nil {
			t.Errorf("the app's owner: %v", err)
		}
		x.advance(time.Second)
		if _, _, err := x.admit(c, tenant.WorkRequest); err != nil {
			t.Error(err)
		}
	})
}

func TestManyAtOnceTryNoMoreIDsThanOneAfterTheOther(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.s.Limits.Misses = 60
		c := tenant.Caller{AppID: "app_1", UserID: "idp/u"}
		let := func(tries int) (releases []func()) {
			for range tries {
				release, _, err := x.admit(c, tenant.WorkRequest)
				if err == nil {
					releases = append(releases, release)
					continue
				}
				if got := wait(t, err); got < time.Second {
					t.Errorf("wait %s", got)
				}
				release()
			}
			return releases
		}
		first := let(200)
		if len(first) != 60 {
			t.Fatalf("%d of 200 at once are let in, want 60", len(first))
		}
		for i, release := range first {
			if i < 20 {
				x.s.Miss(c)
			}
			release()
			release() // once is enough
		}
		// What was found gives its place back: 40 of the minute's 60 are left.
		second := let(200)
		if len(second) != 40 {
			t.Errorf("%d are let in after 20 misses, want 40", len(second))
		}
		for _, release := range second {
			x.s.Miss(c)
			release()
		}
		if n := len(let(10)); n != 0 {
			t.Errorf("%d are let in after 60 misses", n)
		}
		x.advance(time.Second)
		if n := len(let(10)); n != 1 {
			t.Errorf("%d are let in a second later, want 1", n)
		}
	})
}

func TestWhoIsRefusedHoldsNothing(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.s.Limits = tenant.RateLimits{Misses: 2, UserRequests: 1, UserMessages: 1, AppMessages: 1}
		c, v := tenant.Caller{AppID: "app_1", UserID: "idp/u"}, tenant.Caller{AppID: "app_1", UserID: "idp/v"}
		release, _, err := x.admit(c, tenant.WorkMessage)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 { // by the requests, and by the app's messages after the user's were counted
			_, _, err := x.admit(c, tenant.WorkMessage)
			wait(t, err)
			x.advance(time.Minute)
			_, _, err = x.admit(v, tenant.WorkMessage)
			wait(t, err)
		}
		release()
		if _, flying := x.s.Remembered(); flying != 0 {
			t.Errorf("%d are still held", flying)
		}
	})
}

// TestCase25CallersAreRememberedWithinABound makes more callers than are kept, and holds that those who asked last stay.
func TestCase25CallersAreRememberedWithinABound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := &tenant.Service{Now: func() time.Time { return now }, Limits: tenant.RateLimits{UserRequests: 1, UserMessages: 1}}
	who := func(i int) tenant.Caller { return tenant.Caller{AppID: "app_1", UserID: fmt.Sprint("idp/", i)} }
	const n = 60_000
	for i := range n {
		release, _, err := s.Admit(t.Context(), who(i), tenant.WorkMessage)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	if buckets, flying := s.Remembered(); buckets != 50_000 || flying != 0 {
		t.Errorf("%d buckets, %d messages in flight", buckets, flying)
	}
	_, _, err := s.Admit(t.Context(), who(n-1), tenant.WorkRequest)
	wait(t, err)
}
