package tenant_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// call serves a request as the middleware does: authenticated as one of the kinds.
func (x *fixture) call(h func(http.ResponseWriter, *http.Request, tenant.Caller) error, want tenant.Kind, body string, headers ...string) (map[string]any, error) {
	x.t.Helper()
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return x.serve(h, want, r)
}

func (x *fixture) serve(h func(http.ResponseWriter, *http.Request, tenant.Caller) error, want tenant.Kind, r *http.Request) (map[string]any, error) {
	x.t.Helper()
	c, err := x.s.Authenticate(r, want)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if err := h(w, r, c); err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		x.t.Fatal(err)
	}
	return out, nil
}

func TestS21OnlyPeopleGetTheTokensOfTheirApps(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		mine, err := x.s.CreateAppFor(t.Context(), "mine", "idp/u")
		if err != nil {
			t.Fatal(err)
		}
		other := x.app("other")
		mint := func(token, app string) (map[string]any, error) {
			return x.call(x.s.ServeMintAppToken, tenant.KindHuman, `{"appId":"`+app+`"}`, "Authorization", "Bearer "+token)
		}
		identity := func(token, app string) (map[string]any, error) {
			r := httptest.NewRequest("POST", "/", nil)
			r.SetPathValue("id", app)
			r.Header.Set("Authorization", "Bearer "+token)
			return x.serve(x.s.ServeIdentityToken, tenant.KindHuman, r)
		}
		exchanged, err := x.s.ExchangeToken(t.Context(), x.token(), "mine", 0)
		if err != nil {
			t.Fatal(err)
		}
		person := x.mint(tenant.NewToken{App: "other", User: tenant.DefaultOwner})
		for name, tt := range map[string][2]string{
			"owner token": {x.mint(tenant.NewToken{App: "mine", Owner: true}).Text, mine.ID}, "scope": {x.token("scope", "preview"), mine.ID}, "exchanged": {exchanged.Text, mine.ID},
			"somebody": {x.token("sub", "v"), mine.ID}, "another issuer": {x.mint(tenant.NewToken{App: "mine", User: "u"}).Text, mine.ID}, "another app": {x.token(), other.ID},
			"bound to another app": {person.Text, mine.ID}, "unknown": {x.token(), "app_none"}, "by name": {x.token(), "mine"}, "nul": {x.token(), "a\\u0000"},
		} {
			if out, err := mint(tt[0], tt[1]); err == nil {
				t.Errorf("%s gets %v", name, out)
			} else {
				wantStatus(t, err, http.StatusNotFound, "Not found")
			}
			if out, err := identity(tt[0], strings.ReplaceAll(tt[1], "\\u0000", "\x00")); err == nil {
				t.Errorf("%s gets %v", name, out)
			}
		}
		for _, tt := range [][2]string{{x.token(), mine.ID}, {person.Text, other.ID}} {
			out, err := mint(tt[0], tt[1])
			if err != nil {
				t.Fatal(err)
			}
			c, err := x.auth(tenant.KindUser, tenant.TokenHeader, out["token"].(string))
			if err != nil || c.AppID != tt[1] || c.UserID != "" || c.TokenScope != tenant.ScopeOwner {
				t.Errorf("%+v, %v", c, err)
			}
			out, err = identity(tt[0], tt[1])
			if err != nil {
				t.Fatal(err)
			}
			c, err = x.auth(tenant.KindGateway, tenant.TokenHeader, x.token(), tenant.AppHeader, tt[1], tenant.IdentityHeader, out["token"].(string))
			if err != nil || !c.AppProven {
				t.Errorf("%+v, %v", c, err)
			}
		}
		for _, kind := range []tenant.Kind{tenant.KindAdmin, tenant.KindOperator, tenant.KindAuditor} {
			_, err := x.auth(kind, tenant.TokenHeader, x.token("scope", "preview"))
			wantStatus(t, err, http.StatusForbidden, "")
		}
		if _, err := x.s.UpdateApp(t.Context(), "mine", disabled(true)); err != nil {
			t.Fatal(err)
		}
		_, err = mint(x.token(), mine.ID)
		wantStatus(t, err, http.StatusNotFound, "Not found")
	})
}

func TestAPIKeyMintsForUsersOfItsOwnAppWithTheRightTo(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a, b := x.app("a"), x.app("b")
		_, plain := x.key(tenant.NewKey{App: "a"})
		_, minter := x.key(tenant.NewKey{App: "a", Scopes: []string{tenant.ScopeMintTokens}})
		mint := func(key, body string) (map[string]any, error) {
			return x.call(x.s.ServeMintToken, tenant.KindAPIKey|tenant.KindOperator, body, "X-Api-Key", key)
		}
		out, err := mint(minter, `{"user":"u","ttl_seconds":60}`)
		if err != nil || out["app_id"] != a.ID || x.user(out["token"].(string)) != nil {
			t.Errorf("%v, %v", out, err)
		}
		for _, tt := range []struct {
			key, body string
			status    int
		}{
			{plain, `{"user":"u"}`, 403},
			{minter, `{"user":"u","app":"` + b.ID + `"}`, 403},
			{minter, `{"owner":true}`, 403},
			{minter, `{"user":"owner"}`, 403},
			{minter, `{"user":"u","ttl_seconds":0}`, 400},
			{minter, `{}`, 400},
			{minter, `{"user":"u","sub":"v"}`, 400},
			{minter, `{"user":"u","user":"v"}`, 400},
		} {
			_, err := mint(tt.key, tt.body)
			wantStatus(t, err, tt.status, "")
		}
		exchange := func(key, body string) (map[string]any, error) {
			return x.call(x.s.ServeExchangeToken, tenant.KindGateway|tenant.KindAPIKey|tenant.KindOperator, body, "X-Api-Key", key)
		}
		body := fmt.Sprintf(`{"token":%q}`, x.token())
		if out, err := exchange(minter, body); err != nil || out["app_id"] != a.ID {
			t.Errorf("%v, %v", out, err)
		}
		_, err = exchange(plain, body)
		wantStatus(t, err, http.StatusForbidden, "")
		// With the identity of the app the token itself is the credential.
		p := x.proven(b, x.token())
		all := tenant.KindGateway | tenant.KindAPIKey | tenant.KindOperator
		if out, err := x.call(x.s.ServeExchangeToken, all, ``, p...); err != nil || out["app_id"] != b.ID {
			t.Errorf("%v, %v", out, err)
		}
		_, err = x.call(x.s.ServeExchangeToken, all, ``, p[:2]...)
		wantStatus(t, err, http.StatusUnauthorized, "missing app identity")
		_, err = x.call(x.s.ServeExchangeToken, all, `{"app":"`+a.ID+`"}`, p...)
		wantStatus(t, err, http.StatusForbidden, "app: ")
		_, err = x.call(x.s.ServeExchangeToken, all, body, p...)
		wantStatus(t, err, http.StatusBadRequest, "token: ")
	})
}

func TestRolesOfAdminKeys(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		keys := map[string]string{}
		for _, role := range []string{tenant.RoleAdmin, tenant.RoleOperator, tenant.RoleAuditor} {
			_, keys[role] = x.key(tenant.NewKey{Role: role, Name: role})
		}
		full := tenant.Administration
		for role, may := range map[string]map[tenant.Kind]bool{
			tenant.RoleAdmin:    {full: true, tenant.KindAdmin | tenant.KindOperator: true, tenant.KindAdmin: true, tenant.KindAPIKey | full: true},
			tenant.RoleOperator: {full: true, tenant.KindAdmin | tenant.KindOperator: true, tenant.KindAdmin: false, tenant.KindAPIKey | full: true},
			tenant.RoleAuditor:  {full: true, tenant.KindAdmin | tenant.KindOperator: false, tenant.KindAdmin: false, tenant.KindAPIKey | full: true},
		} {
			for kind, ok := range may {
				c, err := x.auth(kind, "X-Api-Key", keys[role])
				if ok != (err == nil) || (ok && c.Role != role) {
					t.Errorf("%s on %b: %+v, %v", role, kind, c, err)
				}
				if err != nil {
					wantStatus(t, err, http.StatusForbidden, role)
				}
			}
			_, err := x.auth(tenant.KindAPIKey|tenant.KindUser, "X-Api-Key", keys[role])
			wantStatus(t, err, http.StatusForbidden, "airlock key create")
		}
		x.app("one")
		create := func(role, body string) error {
			_, err := x.call(x.s.ServeCreateKey, tenant.KindAdmin|tenant.KindOperator, body, "X-Api-Key", keys[role])
			return err
		}
		if err := create(tenant.RoleOperator, `{"app":"one"}`); err != nil {
			t.Error(err)
		}
		wantStatus(t, create(tenant.RoleOperator, `{"role":"auditor"}`), http.StatusForbidden, "role: ")
		if err := create(tenant.RoleAdmin, `{"role":"auditor"}`); err != nil {
			t.Error(err)
		}
		wantStatus(t, create(tenant.RoleAdmin, `{"role":"root"}`), http.StatusBadRequest, "role: ")
		wantStatus(t, create(tenant.RoleAdmin, `{"role":"auditor","app":"one"}`), http.StatusBadRequest, "role: ")
		admins, _, err := x.s.ListAdminKeys(t.Context(), 100, "")
		if err != nil || len(admins) != 4 {
			t.Fatalf("%d admin keys, %v", len(admins), err)
		}
		for _, k := range admins {
			_, err = x.s.RevokeKey(t.Context(), k.ID, false)
			wantStatus(t, err, http.StatusForbidden, "")
			if gone, err := x.s.RevokeKey(t.Context(), k.ID, true); err != nil || gone.Role != k.Role {
				t.Error(gone, err)
			}
		}
	})
}

func TestUsersAreNotedOnceForEachApp(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		x.app("one")
		two := x.app("two")
		for _, n := range []tenant.NewToken{{App: "one", User: "u"}, {App: "one", User: "u"}, {App: "two", User: "u"}, {App: "one", User: "v"}} {
			x.advance(time.Second)
			tok := x.mint(n).Text
			for range 2 {
				c, err := x.auth(tenant.KindUser, tenant.TokenHeader, tok)
				if err != nil {
					t.Fatal(err)
				}
				x.let(c)
			}
		}
		x.advance(time.Second)
		x.let(x.accepted(x.token()))
		names := func(q tenant.UserQuery) string {
			t.Helper()
			var out []string
			for page := ""; ; {
				users, next, err := x.s.ListUsers(t.Context(), q, 2, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range users {
					out = append(out, u.Issuer+"/"+u.Subject)
				}
				if page = next; page == "" {
					return strings.Join(out, " ")
				}
			}
		}
		for want, q := range map[string]tenant.UserQuery{
			"idp/u airlock/v airlock/u airlock/u": {}, "airlock/v airlock/u": {App: "one"}, "airlock/u airlock/u": {User: "u"}, "airlock/u": {User: "airlock/u", App: two.ID}, "": {Blocked: true},
		} {
			if got := names(q); got != want {
				t.Errorf("%+v: %q, want %q", q, got, want)
			}
		}
		u, err := x.s.GetUser(t.Context(), "u", "two")
		if err != nil || u.AppID != two.ID {
			t.Fatal(u, err)
		}
		if same, err := x.s.GetUser(t.Context(), u.ID, ""); err != nil || same.ID != u.ID {
			t.Error(same, err)
		}
		for _, tt := range [][2]string{{"nobody", "two"}, {"user_none", ""}, {"u", ""}} {
			_, err := x.s.GetUser(t.Context(), tt[0], tt[1])
			wantStatus(t, err, http.StatusNotFound, "")
		}
		for _, bad := range []string{"", "a\x00", "UPPER/u", "/u", "idp/", "idp/a\nb"} {
			_, err := x.s.GetUser(t.Context(), bad, "")
			wantStatus(t, err, http.StatusBadRequest, "user: ")
		}
	})
}

func TestRefusalsAreAuditedWithTheirReasonAndWithoutSecrets(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		x.s.Audit = &audit.Log{DB: x.s.DB, Now: x.clock, CursorKey: x.s.CursorKey}
		a := x.app("one")
		_, key := x.key(tenant.NewKey{App: "one"})
		good := x.token()
		parts := strings.Split(good, ".")
		identity := x.proven(a, good)[5]
		if _, err := x.s.BlockUser(t.Context(), "idp/u", "", true); err != nil {
			t.Fatal(err)
		}
		for _, headers := range [][]string{
			{tenant.TokenHeader, parts[0] + "." + parts[1] + "." + jwttest.B64.EncodeToString(make([]byte, 64))},
			{tenant.TokenHeader, x.token("exp", x.clock().Unix()-60)},
			{tenant.TokenHeader, good},
			{"X-Api-Key", key},
			{tenant.TokenHeader, x.token("sub", "w"), tenant.AppHeader, "app_x", tenant.IdentityHeader, identity},
		} {
			if _, err := x.auth(tenant.KindGateway, headers...); err == nil {
				t.Errorf("%v is taken", headers)
			}
		}
		entries, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		for _, e := range entries {
			fmt.Fprintf(&text, "%s %s %s %s\n", e.Level, e.Event.Event, e.User, e.Detail)
		}
		for _, want := range []string{
			"warn token.refused  signature does not verify", "warn token.refused  expired", "warn access.refused idp/u user is blocked", "warn key.refused  a key where a token is taken",
			"warn identity.refused  identity token does not verify",
		} {
			if !strings.Contains(text.String(), want+"\n") {
				t.Errorf("not kept: %s", want)
			}
		}
		for _, secret := range []string{key, parts[1], parts[2], identity[3:]} {
			if strings.Contains(text.String(), secret) {
				t.Errorf("the audit holds a secret:\n%s", text.String())
			}
		}
	})
}

func TestNobodyIsBlockedWhoCannotBeMeant(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		x.app("one")
		rows := func() int {
			t.Helper()
			n, err := x.s.DB.Read().NewSelect().Table("users").Count(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		for _, on := range []bool{true, false} {
			for _, app := range []string{"", "one"} {
				_, err := x.s.BlockUser(t.Context(), "acme/bob", app, on)
				if on {
					wantStatus(t, err, http.StatusBadRequest, "user: there is no issuer acme; configured are airlock, ed, idp, rsa. A user of this server's own tokens is airlock/acme/bob.")
				} else {
					wantStatus(t, err, http.StatusNotFound, "There is no such user.")
				}
			}
			_, err := x.s.BlockUser(t.Context(), "idp/bob", "none", on)
			wantStatus(t, err, http.StatusNotFound, "There is no such app.")
			_, err = x.s.BlockUser(t.Context(), "user_none", "", on)
			wantStatus(t, err, http.StatusNotFound, "There is no such user.")
		}
		if n := rows(); n != 0 {
			t.Errorf("%d users are kept", n)
		}
		// Nor is anything else set for a user who cannot come.
		_, err := x.s.SetLimit(t.Context(), "one", tenant.Limit{User: "acme/bob", Messages: 1})
		wantStatus(t, err, http.StatusBadRequest, "user: there is no issuer acme")
		_, err = x.s.CreateAppFor(t.Context(), "two", "acme/bob")
		wantStatus(t, err, http.StatusBadRequest, "owner: there is no issuer acme")
		// Of a removed issuer a block can still be undone.
		good := jwt.Issuer{ID: "acme", Issuer: "https://acme.example", Alg: jwt.ES256, Key: jwttest.PEM(t, &jwttest.Foreign.EC.PublicKey)}
		if err := x.s.PutIssuer(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		first, err := x.s.BlockUser(t.Context(), "acme/bob", "one", true)
		if err != nil || first.BlockedAt == nil {
			t.Fatal(first, err)
		}
		x.advance(time.Hour)
		again, err := x.s.BlockUser(t.Context(), "acme/bob", "one", true)
		if err != nil || again.ID != first.ID || !again.BlockedAt.Equal(*first.BlockedAt) {
			t.Errorf("blocked again: %+v, %v", again, err)
		}
		if err := x.s.RemoveIssuer(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if u, err := x.s.BlockUser(t.Context(), "acme/bob", "one", false); err != nil || u.BlockedAt != nil {
				t.Error(u, err)
			}
		}
	})
}
