package tenant_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func by(s *tenant.Service, token string) error {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set(tenant.TokenHeader, token)
	_, err := s.Authenticate(r, tenant.KindUser)
	return err
}

func TestServersOfADatabaseKnowEachOthersKeysAtOnce(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		other := &tenant.Service{DB: x.s.DB, CursorKey: x.s.CursorKey, Now: x.clock}
		mint := func(s *tenant.Service) string {
			t.Helper()
			tok, err := s.MintToken(t.Context(), tenant.NewToken{App: "one", User: "u"})
			if err != nil {
				t.Fatal(err)
			}
			return tok.Text
		}
		old := mint(x.s)
		if err := by(other, old); err != nil { // which has the keys in hand from now on
			t.Fatal(err)
		}
		// Not a moment passes between what one of them does and what the other must know.
		if _, err := x.s.RotateSigningKey(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, by(other, old), http.StatusUnauthorized, "invalid auth token")
		if err := by(x.s, mint(other)); err != nil {
			t.Errorf("made by the server that did not rotate: %v", err)
		}
		if err := by(other, mint(x.s)); err != nil {
			t.Errorf("made by the one that did: %v", err)
		}
		third := &tenant.Service{DB: x.s.DB, CursorKey: x.s.CursorKey, Now: x.clock}
		if err := by(third, mint(x.s)); err != nil {
			t.Fatal(err)
		}
		if _, err := x.s.RotateSigningKey(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := by(third, mint(x.s)); err != nil {
			t.Errorf("the first unknown kid: %v", err)
		}
		// Unknown kids cannot make a query each.
		count := &queries{text: `FROM "signing_keys"`}
		x.s.DB.Read().AddQueryHook(count) //nolint:staticcheck // of the pool that the services hold, not of a copy
		x.advance(time.Second)
		_, rest, _ := strings.Cut(mint(x.s), ".")
		count.n.Store(0)
		for i := range 1000 {
			header := jwttest.B64.EncodeToString([]byte(fmt.Sprintf(`{"alg":"ES256","kid":"k%d"}`, i)))
			wantStatus(t, by(third, header+"."+rest), http.StatusUnauthorized, "invalid auth token")
		}
		if n := count.n.Load(); n != 1 {
			t.Errorf("%d queries for 1000 unknown kids within a second, want 1", n)
		}
		x.advance(time.Second)
		if _, err := x.s.RotateSigningKey(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := by(third, mint(x.s)); err != nil {
			t.Errorf("a new key afterwards: %v", err)
		}
	})
}

func TestWhatWasExchangedEndsWithItsSource(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		x.app("one")
		x.app("two")
		exchange := func(source, app string) string {
			t.Helper()
			tok, err := x.s.ExchangeToken(t.Context(), source, app, 0)
			if err != nil {
				t.Fatal(err)
			}
			return tok.Text
		}
		named, bare, kept := x.token("jti", "1"), x.token("iat", x.clock().Unix()-1), x.token("jti", "2")
		ended := []string{exchange(named, "one"), exchange(named, "one"), exchange(named, "two"), exchange(bare, "one")}
		stays := exchange(kept, "one")
		for _, tok := range append(ended, stays) {
			if err := x.user(tok); err != nil {
				t.Fatal(err)
			}
		}
		for _, source := range []string{named, bare} {
			if _, err := x.s.RevokeToken(t.Context(), source); err != nil {
				t.Fatal(err)
			}
		}
		for i, tok := range ended {
			wantStatus(t, x.user(tok), http.StatusUnauthorized, "invalid auth token")
			if _, err := x.s.ExchangeToken(t.Context(), tok, "one", 0); err == nil {
				t.Errorf("%d: a revoked token is exchanged again", i)
			}
		}
		if err := x.user(stays); err != nil {
			t.Errorf("exchanged from another token of the same user: %v", err)
		}
		// There are no chains to follow.
		_, err := x.s.ExchangeToken(t.Context(), stays, "one", 0)
		wantStatus(t, err, http.StatusBadRequest, "token: ")
		// Nor does anybody else's token say what it was exchanged from.
		x.accepted(x.token("airlock_source", "x"))
		// Until the source would have ended the revocation is kept, and what was exchanged is gone by then.
		x.advance(10*time.Minute + 5*time.Second)
		if err := x.s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, tok := range ended {
			wantStatus(t, x.user(tok), http.StatusUnauthorized, "invalid auth token")
		}
	})
}
