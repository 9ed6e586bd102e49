package tenant_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

const idpURL = "https://idp.example/auth"

// issuers gives the service three issuers: idp (ES256, with audience and parties), rsa and ed.
func (x *fixture) issuers() {
	x.t.Helper()
	x.s.Issuers = []jwt.Issuer{
		{
			ID: "idp", Issuer: idpURL, Alg: jwt.ES256, Key: jwttest.PEM(x.t, &jwttest.Foreign.EC.PublicKey),
			Audience: []string{"files"}, AzpPatterns: []string{"https://*.app.example", "*.example.com"},
		},
		{ID: "rsa", Issuer: "https://rsa.example", Alg: jwt.RS256, Key: jwttest.PEM(x.t, &jwttest.Foreign.RSA.PublicKey)},
		{ID: "ed", Issuer: "https://ed.example", Alg: jwt.EdDSA, Key: jwttest.PEM(x.t, jwttest.Foreign.Ed.Public())},
	}
	if err := x.s.ReadIssuers(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// claims is a good payload of idp with changes; nil removes.
func (x *fixture) claims(changes ...any) map[string]any {
	return jwttest.Claims(idpURL, x.clock(), changes...)
}

// token is a good one of idp with changes.
func (x *fixture) token(changes ...any) string {
	return jwttest.Compact(jwttest.PlainHeader, jwttest.Text(x.claims(changes...)), jwttest.ES256)
}

// proven are the headers of a request on the gateway with the identity of an app.
func (x *fixture) proven(a *tenant.App, token string) []string {
	x.t.Helper()
	_, identity, err := x.s.AppIdentity(x.t.Context(), a.ID)
	if err != nil {
		x.t.Fatal(err)
	}
	return []string{tenant.TokenHeader, token, tenant.AppHeader, a.ID, tenant.IdentityHeader, identity}
}

// refused expects a 401 with the one message for tokens.
func (x *fixture) refused(token string) {
	x.t.Helper()
	_, err := x.auth(tenant.KindGateway, tenant.TokenHeader, token)
	wantStatus(x.t, err, http.StatusUnauthorized, "invalid auth token")
}

func (x *fixture) accepted(token string) tenant.Caller {
	x.t.Helper()
	c, err := x.auth(tenant.KindGateway, tenant.TokenHeader, token)
	if err != nil {
		x.t.Errorf("a good token: %v", err)
	}
	return c
}

func (x *fixture) mint(n tenant.NewToken) *tenant.Token {
	x.t.Helper()
	tok, err := x.s.MintToken(x.t.Context(), n)
	if err != nil {
		x.t.Fatal(err)
	}
	return tok
}

func TestUserTokenGivesItsCaller(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		own := x.mint(tenant.NewToken{App: "one", User: "u"})
		owner := x.mint(tenant.NewToken{App: "one", Owner: true})
		base := tenant.Caller{AppID: a.ID, UserID: "airlock/u", Subject: "u", Issuer: "airlock", Scope: tenant.ScopeUser, AppProven: true, BoundTo: a.ID}
		for _, tt := range []struct {
			name    string
			want    tenant.Kind
			headers []string
			change  func(c *tenant.Caller)
		}{
			{"bearer", tenant.KindUser, []string{"Authorization", "Bearer " + own.Text}, func(*tenant.Caller) {}},
			{"beside API keys", tenant.KindUser | tenant.KindAPIKey, []string{"Authorization", "Bearer " + own.Text}, func(*tenant.Caller) {}},
			{"own header", tenant.KindUser, []string{tenant.TokenHeader, own.Text, tenant.ScopeHeader, "app"}, func(c *tenant.Caller) { c.Scope = tenant.ScopeApp }},
			{"owner", tenant.KindUser, []string{tenant.TokenHeader, owner.Text}, func(c *tenant.Caller) {
				c.UserID, c.Subject, c.TokenScope = "", tenant.DefaultOwner, tenant.ScopeOwner
			}},
			{"gateway", tenant.KindGateway, x.proven(a, own.Text), func(c *tenant.Caller) { c.Gateway = true }},
			{"gateway, bearer", tenant.KindGateway, append(x.proven(a, own.Text)[2:], "Authorization", "Bearer "+own.Text), func(c *tenant.Caller) { c.Gateway = true }},
			{"gateway, same twice", tenant.KindGateway, append(x.proven(a, own.Text), "Authorization", "Bearer "+own.Text), func(c *tenant.Caller) { c.Gateway = true }},
			{"gateway without identity", tenant.KindGateway, []string{tenant.TokenHeader, own.Text}, func(c *tenant.Caller) { c.Gateway, c.AppProven = true, false }},
			{"gateway, another issuer", tenant.KindGateway, x.proven(a, x.token()), func(c *tenant.Caller) {
				c.Gateway, c.UserID, c.Issuer, c.BoundTo = true, "idp/u", "idp", ""
			}},
			{"nobody's app", tenant.KindGateway, []string{tenant.TokenHeader, x.token()}, func(c *tenant.Caller) {
				c.Gateway, c.UserID, c.Issuer, c.BoundTo, c.AppID, c.AppProven = true, "idp/u", "idp", "", "", false
			}},
			{"a person", tenant.KindHuman, []string{"Authorization", "Bearer " + x.token()}, func(c *tenant.Caller) {
				c.UserID, c.Issuer, c.BoundTo, c.AppID, c.AppProven = "idp/u", "idp", "", "", false
			}},
		} {
			want := base
			tt.change(&want)
			got, err := x.auth(tt.want, tt.headers...)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			want.Unnoted = true // nobody was admitted
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, d)
			}
			if err := got.RequireApp(); (err == nil) != got.AppProven {
				t.Errorf("%s: RequireApp %v", tt.name, err)
			}
		}
	})
}

func TestS01NoToken(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		for _, headers := range [][]string{{}, {tenant.TokenHeader, ""}} {
			_, err := x.auth(tenant.KindGateway, headers...)
			wantStatus(t, err, http.StatusUnauthorized, "missing auth token")
		}
	})
}

func TestOurTokensNameTheirKey(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.app("one")
		own := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		x.accepted(own)
		_, rest, _ := strings.Cut(own, ".")
		for _, h := range []string{`{"alg":"ES256","typ":"JWT"}`, `{"alg":"ES256","typ":"JWT","kid":"x"}`} {
			x.refused(jwttest.B64.EncodeToString([]byte(h)) + "." + rest)
		}
	})
}

func TestS16TwoTokens(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		u, v := x.token(), x.token("sub", "v")
		for _, headers := range [][]string{
			{tenant.TokenHeader, u, tenant.TokenHeader, u},
			{tenant.TokenHeader, u, tenant.TokenHeader, v},
			{tenant.TokenHeader, u + "," + v},
			{tenant.TokenHeader, u + ", " + u},
			{"Authorization", "Bearer " + u, "Authorization", "Bearer " + u},
			{"Authorization", "Bearer " + u + ", Bearer " + v},
			{tenant.TokenHeader, "Bearer " + u},
		} {
			_, err := x.auth(tenant.KindGateway, headers...)
			wantStatus(t, err, http.StatusUnauthorized, "")
		}
	})
}

func TestS17TokensOfTwoUsers(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		_, key := x.key(tenant.NewKey{App: "one"})
		u, v := x.token(), x.token("sub", "v")
		own := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		for _, kind := range []tenant.Kind{tenant.KindGateway, tenant.KindUser | tenant.KindAPIKey, tenant.KindHuman} {
			for _, headers := range [][]string{
				{tenant.TokenHeader, u, "Authorization", "Bearer " + v},
				{tenant.TokenHeader, own, "X-Api-Key", key},
				{tenant.TokenHeader, own, "Authorization", "Bearer " + key},
				{"Authorization", "Bearer " + own, "X-Api-Key", key},
			} {
				_, err := x.auth(kind, append(headers, x.proven(a, u)[2:]...)...)
				wantStatus(t, err, http.StatusUnauthorized, "")
			}
		}
	})
}

func TestS18TokensElsewhereAreNotRead(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		tok := x.token()
		for _, kind := range []tenant.Kind{tenant.KindGateway, tenant.KindHuman, tenant.KindUser} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/?token="+tok+"&x-auth-token="+tok+"&access_token="+tok, strings.NewReader("token="+tok))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.AddCookie(&http.Cookie{Name: "x-auth-token", Value: tok})
			_, err = x.s.Authenticate(r, kind)
			wantStatus(t, err, http.StatusUnauthorized, "missing auth token")
		}
	})
}

func TestS19OwnerTokenOfAnotherApp(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a, b := x.app("a"), x.app("b")
		for _, n := range []tenant.NewToken{{App: "a", Owner: true}, {App: "a", User: "u"}} {
			tok := x.mint(n).Text
			if _, err := x.auth(tenant.KindGateway, x.proven(a, tok)...); err != nil {
				t.Errorf("with its own app: %v", err)
			}
			_, err := x.auth(tenant.KindGateway, x.proven(b, tok)...)
			wantStatus(t, err, http.StatusUnauthorized, "invalid auth token")
		}
		// The claim of any issuer must not contradict the app that is proven.
		_, err := x.auth(tenant.KindGateway, x.proven(b, x.token("app_id", a.ID))...)
		wantStatus(t, err, http.StatusUnauthorized, "invalid auth token")
	})
}

func TestUnboundTokensAreNotTakenOutsideOfTheGateway(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		for _, tok := range []string{x.token(), x.token("app_id", a.ID)} {
			_, err := x.auth(tenant.KindUser|tenant.KindAPIKey, x.proven(a, tok)...)
			wantStatus(t, err, http.StatusUnauthorized, "invalid auth token")
		}
		x.s.Issuers[0].BindsApps = true
		if err := x.s.ReadIssuers(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, err := x.auth(tenant.KindUser, tenant.TokenHeader, x.token("app_id", a.ID))
		if err != nil || c.AppID != a.ID || !c.AppProven || c.UserID != "idp/u" {
			t.Errorf("%+v, %v", c, err)
		}
		_, err = x.auth(tenant.KindUser, tenant.TokenHeader, x.token("app_id", "app_none"))
		wantStatus(t, err, http.StatusUnauthorized, "invalid auth token")
	})
}

func TestKeysAndTokensOfTheWrongKindAreRefused(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		a := x.app("one")
		_, key := x.key(tenant.NewKey{App: "one"})
		tok := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		for _, kind := range []tenant.Kind{tenant.KindGateway, tenant.KindHuman, tenant.KindUser} {
			for _, headers := range [][]string{{"X-Api-Key", key}, {"Authorization", "Bearer " + key}, {tenant.TokenHeader, key}} {
				_, err := x.auth(kind, append(headers, x.proven(a, "")[2:]...)...)
				wantStatus(t, err, http.StatusUnauthorized, "auth token")
			}
		}
		for _, kind := range []tenant.Kind{tenant.KindAPIKey, tenant.KindAdmin, tenant.KindAuditor} {
			_, err := x.auth(kind, "Authorization", "Bearer "+tok)
			wantStatus(t, err, http.StatusForbidden, "")
		}
	})
}

// FuzzToken: no text makes the parser fall, and none that was not signed gets in.
