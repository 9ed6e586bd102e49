package tenant_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func payloadOf(t *testing.T, token string) map[string]any {
	t.Helper()
	raw, err := jwttest.B64.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (x *fixture) user(token string) error {
	_, err := x.auth(tenant.KindUser, tenant.TokenHeader, token)
	return err
}

func TestS15SameSubjectOfAnotherIssuerIsSomebodyElse(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		u, err := x.auth(tenant.KindGateway, x.proven(a, x.token())...)
		if err != nil {
			t.Fatal(err)
		}
		own := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		other, err := x.auth(tenant.KindGateway, x.proven(a, own)...)
		if err != nil || other.MayUse(u.Owner()) || u.MayUse(other.Owner()) {
			t.Errorf("%v: %q may use what belongs to %q", err, other.UserID, u.UserID)
		}
		// The exchange of a token does not change whose it is.
		ours, err := x.s.ExchangeToken(t.Context(), x.token(), "one", 0)
		if err != nil {
			t.Fatal(err)
		}
		same, err := x.auth(tenant.KindUser, tenant.TokenHeader, ours.Text)
		if err != nil || same.UserID != u.UserID || !same.MayUse(u.Owner()) || !same.Exchanged {
			t.Errorf("%+v, %v", same, err)
		}
		// Nor can a subject of another issuer become the app's owner by its name.
		named, err := x.s.ExchangeToken(t.Context(), x.token("sub", tenant.DefaultOwner), "one", 0)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x.auth(tenant.KindUser, tenant.TokenHeader, named.Text)
		if err != nil || c.UserID != "idp/owner" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func TestS20RevokedBlockedDisabled(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		own, other := x.mint(tenant.NewToken{App: "one", User: "u"}), x.mint(tenant.NewToken{App: "one", User: "u"})
		byText := x.mint(tenant.NewToken{App: "one", User: "v"})
		noID, withID := x.token("sub", "w"), x.token("sub", "w", "jti", "1")
		for _, revoke := range []string{own.ID, byText.Text, noID, withID} {
			for range 2 {
				_, err := x.s.RevokeToken(t.Context(), revoke)
				if err != nil && !strings.Contains(err.Error(), "token: ") {
					t.Fatal(err)
				}
			}
		}
		for _, tok := range []string{own.Text, byText.Text} {
			wantStatus(t, x.user(tok), http.StatusUnauthorized, "invalid auth token")
		}
		for _, tok := range []string{noID, withID} {
			x.refused(tok)
		}
		x.accepted(x.token("sub", "w", "jti", "2"))
		if err := x.user(other.Text); err != nil {
			t.Errorf("another token of the user: %v", err)
		}
		_, err := x.s.RevokeToken(t.Context(), "nonsense")
		wantStatus(t, err, http.StatusBadRequest, "token: ")

		x.app("two")
		there := x.mint(tenant.NewToken{App: "two", User: "u"})
		block := func(user, app string, on bool) {
			t.Helper()
			if _, err := x.s.BlockUser(t.Context(), user, app, on); err != nil {
				t.Fatal(err)
			}
		}
		block("u", "one", true)
		wantStatus(t, x.user(other.Text), http.StatusForbidden, "blocked")
		if err := x.user(there.Text); err != nil {
			t.Errorf("blocked in one app, refused in another: %v", err)
		}
		block("u", "one", false)
		block("airlock/u", "", true)
		for _, tok := range []string{other.Text, there.Text} {
			wantStatus(t, x.user(tok), http.StatusForbidden, "blocked")
		}
		x.accepted(x.token("jti", "of another issuer"))
		block("u", "", false)
		if err := x.user(other.Text); err != nil {
			t.Error(err)
		}
		if _, err := x.s.UpdateApp(t.Context(), "one", disabled(true)); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, x.user(other.Text), http.StatusForbidden, "disabled")
		_, err = x.auth(tenant.KindGateway, x.proven(a, x.token())...)
		wantStatus(t, err, http.StatusForbidden, "disabled")
	})
}

func TestRevocationSurvivesTheSweepUntilTheTokenEnds(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		tok := x.mint(tenant.NewToken{App: "one", User: "u", TTL: time.Hour})
		if _, err := x.s.RevokeToken(t.Context(), tok.Text); err != nil {
			t.Fatal(err)
		}
		rows := func() int {
			t.Helper()
			if err := x.s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			n, err := x.s.DB.Read().NewSelect().Table("revoked_tokens").Count(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		x.advance(time.Hour + 4*time.Second)
		if n := rows(); n != 1 {
			t.Errorf("%d rows while the token would still be taken", n)
		}
		wantStatus(t, x.user(tok.Text), http.StatusUnauthorized, "")
		x.advance(2 * time.Second)
		if n := rows(); n != 0 {
			t.Errorf("%d rows afterwards", n)
		}
	})
}

func TestS22TokenAfterItsEnd(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		tok := x.mint(tenant.NewToken{App: "one", User: "u", TTL: time.Minute})
		x.advance(time.Minute + 4*time.Second)
		if err := x.user(tok.Text); err != nil {
			t.Error(err)
		}
		x.advance(2 * time.Second)
		wantStatus(t, x.user(tok.Text), http.StatusUnauthorized, "invalid auth token")
	})
}

func TestOurTokensCarryAppKeyAndEnd(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		a := x.app("one")
		for _, tt := range []struct {
			n     tenant.NewToken
			ttl   time.Duration
			sub   string
			scope any
		}{
			{tenant.NewToken{App: "one", User: "u"}, time.Hour, "u", nil},
			{tenant.NewToken{App: a.ID, User: "u", TTL: time.Minute}, time.Minute, "u", nil},
			{tenant.NewToken{App: "one", Owner: true}, 10 * 365 * 24 * time.Hour, "owner", "owner"},
		} {
			tok := x.mint(tt.n)
			c := payloadOf(t, tok.Text)
			if c["iss"] != "airlock" || c["sub"] != tt.sub || c["app_id"] != a.ID || c["jti"] != tok.ID || c["scope"] != tt.scope ||
				int64(c["exp"].(float64)) != x.clock().Add(tt.ttl).Unix() || !tok.ExpiresAt.Equal(x.clock().Add(tt.ttl)) {
				t.Errorf("%+v: %v until %s", tt.n, c, tok.ExpiresAt)
			}
			if len(tok.Text) > 2<<10 {
				t.Errorf("%d bytes", len(tok.Text))
			}
		}
		for _, tt := range []struct {
			n    tenant.NewToken
			path string
		}{
			{tenant.NewToken{User: "u"}, "app: "},
			{tenant.NewToken{App: "none", User: "u"}, "app: "},
			{tenant.NewToken{App: "a\x00", User: "u"}, "app: "},
			{tenant.NewToken{App: "one"}, "user, owner: "},
			{tenant.NewToken{App: "one", User: "u", Owner: true}, "user, owner: "},
			{tenant.NewToken{App: "one", User: "a\nb"}, "user: "},
			{tenant.NewToken{App: "one", User: strings.Repeat("a", 256)}, "user: "},
			{tenant.NewToken{App: "one", User: "u", TTL: time.Second}, "ttl_seconds: "},
			{tenant.NewToken{App: "one", User: "u", TTL: 31 * 24 * time.Hour}, "ttl_seconds: "},
			{tenant.NewToken{App: "one", User: "u", TTL: -1}, "ttl_seconds: "},
		} {
			_, err := x.s.MintToken(t.Context(), tt.n)
			wantStatus(t, err, http.StatusBadRequest, tt.path)
		}
	})
}

func TestExchangeLivesNoLongerThanWhatItStandsFor(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a, b := x.app("one"), x.app("two")
		end := func(ttl time.Duration, changes ...any) time.Duration {
			t.Helper()
			tok, err := x.s.ExchangeToken(t.Context(), x.token(changes...), "one", ttl)
			if err != nil {
				t.Fatal(err)
			}
			return tok.ExpiresAt.Sub(x.clock())
		}
		now := x.clock().Unix()
		if got := end(0); got != 10*time.Minute {
			t.Errorf("lives %s", got)
		}
		if got := end(0, "exp", now+100_000); got != time.Hour {
			t.Errorf("lives %s", got)
		}
		if got := end(time.Minute); got != time.Minute {
			t.Errorf("lives %s", got)
		}
		own := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		for _, tt := range []struct {
			token, app string
			ttl        time.Duration
			status     int
		}{
			{own, "one", 0, 400},
			{x.token(), "none", 0, 400},
			{x.token(), "one", 2 * time.Hour, 400},
			{x.token(), "one", -1, 400},
			{"nonsense", "one", 0, 401},
			{x.token("exp", now-10), "one", 0, 401},
			{x.token("exp", now-3), "one", 0, 401},
			{x.token("app_id", b.ID), a.ID, 0, 401},
		} {
			_, err := x.s.ExchangeToken(t.Context(), tt.token, tt.app, tt.ttl)
			wantStatus(t, err, tt.status, "")
		}
		// What it stands for may end before it: with its issuer, and with its user.
		ours, err := x.s.ExchangeToken(t.Context(), x.token(), "one", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.s.BlockUser(t.Context(), "idp/u", "", true); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, x.user(ours.Text), http.StatusForbidden, "blocked")
		_, err = x.s.ExchangeToken(t.Context(), x.token(), "one", 0)
		wantStatus(t, err, http.StatusForbidden, "blocked")
		if _, err := x.s.BlockUser(t.Context(), "idp/u", "", false); err != nil {
			t.Fatal(err)
		}
		x.s.Issuers = nil
		if err := x.s.ReadIssuers(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, x.user(ours.Text), http.StatusUnauthorized, "invalid auth token")
	})
}

func TestSigningKeyIsRotatedWithOverlap(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		keys := func() ([]map[string]string, string) {
			t.Helper()
			set, active, err := x.s.PublicKeys(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return set, active
		}
		first, firstPEM := keys()
		old := x.mint(tenant.NewToken{App: "one", Owner: true}).Text
		if _, err := x.s.RotateSigningKey(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		fresh := x.mint(tenant.NewToken{App: "one", Owner: true}).Text
		set, active := keys()
		if len(first) != 1 || len(set) != 2 || set[0]["kid"] == first[0]["kid"] || set[1]["kid"] != first[0]["kid"] || active == firstPEM {
			t.Errorf("before %v, after %v", first, set)
		}
		for name := range set[0] {
			if name == "d" {
				t.Error("a private key is shown")
			}
		}
		block, _ := pem.Decode([]byte(active))
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if _, ok := public.(*ecdsa.PublicKey); err != nil || !ok {
			t.Errorf("the PEM key: %T, %v", public, err)
		}
		for _, tok := range []string{old, fresh} {
			if err := x.user(tok); err != nil {
				t.Error(err)
			}
		}
		x.advance(time.Hour)
		wantStatus(t, x.user(old), http.StatusUnauthorized, "invalid auth token")
		if err := x.user(fresh); err != nil {
			t.Error(err)
		}
		if set, _ := keys(); len(set) != 1 {
			t.Errorf("%d keys are shown after the overlap", len(set))
		}
		// Another server on the database learns of a key by the first token of it.
		other := &tenant.Service{DB: x.s.DB, CursorKey: x.s.CursorKey, Now: x.clock}
		if _, _, err := other.PublicKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := x.s.RotateSigningKey(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, x.user(fresh), http.StatusUnauthorized, "invalid auth token")
		x.advance(time.Second)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(tenant.TokenHeader, x.mint(tenant.NewToken{App: "one", User: "u"}).Text)
		if _, err := other.Authenticate(r, tenant.KindUser); err != nil {
			t.Errorf("on another server: %v", err)
		}
	})
}

func TestAppWithATokenCountsLikeOneWithAKey(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.s.MayAddApp = func() error { return errors.New("sandbox.allow_shared_kernel: set it") }
		for _, name := range []string{"one", "two"} {
			x.app(name)
		}
		count := func(want int) {
			t.Helper()
			if n, err := x.s.AppsWithKeys(t.Context()); err != nil || n != want {
				t.Errorf("%d apps, %v, want %d", n, err, want)
			}
		}
		refuse := func(err error) {
			t.Helper()
			wantStatus(t, err, http.StatusBadRequest, "sandbox.allow_shared_kernel")
		}
		x.mint(tenant.NewToken{App: "one", User: "u", TTL: time.Minute})
		count(1)
		_, err := x.s.MintToken(t.Context(), tenant.NewToken{App: "two", User: "u"})
		refuse(err)
		_, _, err = x.s.CreateKey(t.Context(), tenant.NewKey{App: "two"})
		refuse(err)
		_, _, err = x.s.AppIdentity(t.Context(), "two")
		refuse(err)
		_, _, err = x.s.RotateIdentity(t.Context(), "two", 0)
		refuse(err)
		x.advance(2 * time.Hour) // the token has ended
		count(0)
		x.key(tenant.NewKey{App: "two", TTL: time.Hour})
		_, err = x.s.MintToken(t.Context(), tenant.NewToken{App: "one", User: "u"})
		refuse(err)
		x.advance(2 * time.Hour)
		if _, _, err := x.s.AppIdentity(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		x.advance(20 * 365 * 24 * time.Hour) // an identity does not end
		count(1)
		_, err = x.s.MintToken(t.Context(), tenant.NewToken{App: "two", User: "u"})
		refuse(err)
	})
}

func TestPublicKeysAreServedInBothForms(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		for path, h := range map[string]func(http.ResponseWriter, *http.Request, tenant.Caller) error{"jwks.json": x.s.ServeJWKS, "jwks": x.s.ServeAuthJWKS} {
			out, err := x.call(h, tenant.KindNone, "")
			if err != nil {
				t.Fatal(err)
			}
			keys, _ := out["keys"].([]any)
			if len(keys) != 1 || keys[0].(map[string]any)["alg"] != "ES256" {
				t.Errorf("%s: %v", path, out)
			}
			pemText, _ := out["publicKey"].(string)
			if (path == "jwks") != strings.HasPrefix(pemText, "-----BEGIN PUBLIC KEY-----\n") {
				t.Errorf("%s: %v", path, out)
			}
		}
	})
}
