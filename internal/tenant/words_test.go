package tenant_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// An id that was mistyped must not pass for revoked, as ids are not kept.
func TestRevocationSaysWhatItTakesAndWhatItKnows(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		x.s.Audit = &audit.Log{DB: x.s.DB, Now: x.clock, CursorKey: x.s.CursorKey}
		_, key := x.key(tenant.NewKey{Role: tenant.RoleOperator})
		x.app("one")
		revoke := func(token string) (map[string]any, error) {
			return x.call(x.s.ServeRevokeToken, tenant.Administration, jwttest.Text(map[string]string{"token": token}), "X-Api-Key", key)
		}
		tok := x.mint(tenant.NewToken{App: "one", User: "u"})
		for _, bad := range []string{"", "alice", "tok_nope", tok.ID + "x", tok.ID[:len(tok.ID)-1], tok.ID[:len(tok.ID)-1] + "0", " " + tok.ID, "a.b", "a.b.c.d"} {
			_, err := revoke(bad)
			wantStatus(t, err, http.StatusBadRequest, "token: expected a token, or the id that its minting answered (tok_ and 24 characters).")
		}
		_, err := revoke("a.b.c")
		wantStatus(t, err, http.StatusBadRequest, "token: ")
		for _, tt := range []struct{ token, id, user, detail string }{
			{tok.ID, tok.ID, "", tok.ID},
			{x.mint(tenant.NewToken{App: "one", User: "v"}).Text, "", "airlock/v", " of airlock/v"},
			{x.token("sub", "w"), "", "idp/w", "of idp/w"},
			{x.token("sub", "w", "jti", "7"), "7", "idp/w", "7 of idp/w"},
		} {
			out, err := revoke(tt.token)
			user, _ := out["user"].(string)
			if err != nil || user != tt.user || (tt.id != "" && out["id"] != tt.id) {
				t.Errorf("%v, %v, want %+v", out, err, tt)
			}
			entries, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 100, Event: "token.revoked"})
			if err != nil || len(entries) == 0 || !strings.HasSuffix(entries[0].Detail, tt.detail) {
				t.Errorf("%+v, %v, want %q", entries, err, tt.detail)
			}
			x.advance(2e9)
		}
	})
}

// In a leak one has the key and not its id.
func TestKeyIsRevokedByItself(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		_, operator := x.key(tenant.NewKey{Role: tenant.RoleOperator})
		_, admin := x.key(tenant.NewKey{Role: tenant.RoleAdmin})
		leaked, secret := x.key(tenant.NewKey{App: "one"})
		revoke := func(as, key string) (map[string]any, error) {
			return x.call(x.s.ServeRevokeKeyItself, tenant.Administration, jwttest.Text(map[string]string{"key": key}), "X-Api-Key", as)
		}
		for _, bad := range []string{secret + "x", secret[:len(secret)-1], "sk-airlock-", leaked.Hint} {
			_, err := revoke(operator, bad)
			wantStatus(t, err, http.StatusNotFound, "no such key")
		}
		_, err := revoke(operator, "")
		wantStatus(t, err, http.StatusBadRequest, "key: ")
		_, err = revoke(operator, admin)
		wantStatus(t, err, http.StatusForbidden, "role admin")
		r := httptest.NewRequest("DELETE", "/", nil)
		r.SetPathValue("id", secret)
		r.Header.Set("X-Api-Key", operator)
		_, err = x.serve(x.s.ServeRevokeKey, tenant.Administration, r)
		wantStatus(t, err, http.StatusBadRequest, "id: send the key itself")
		if _, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret); err != nil {
			t.Fatalf("the key ended too early: %v", err)
		}
		for range 2 {
			if out, err := revoke(operator, secret); err != nil || out["id"] != leaked.ID {
				t.Fatal(out, err)
			}
		}
		_, err = x.auth(tenant.KindAPIKey, "X-Api-Key", secret)
		wantStatus(t, err, http.StatusUnauthorized, "")
		if _, err := revoke(admin, operator); err != nil {
			t.Error(err)
		}
	})
}

// These entries are read after a theft: which key it was, and what it tried.
func TestRefusalOfAKeyNamesTheKeyAndTheRoute(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.s.Audit = &audit.Log{DB: x.s.DB, Now: x.clock, CursorKey: x.s.CursorKey}
		a := x.app("one")
		eyes, auditor := x.key(tenant.NewKey{Role: tenant.RoleAuditor})
		own, key := x.key(tenant.NewKey{App: "one"})
		mux := http.NewServeMux()
		serve := func(pattern string, h func(http.ResponseWriter, *http.Request, tenant.Caller) error) {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				if c, err := x.s.Authenticate(r, tenant.KindAdmin|tenant.KindOperator); err == nil {
					_ = h(w, r, c)
				}
			})
		}
		serve("DELETE /airlock/v1/issuers/{id}", x.s.ServeRemoveIssuer)
		serve("DELETE /airlock/v1/keys/{id}", x.s.ServeRevokeKey)
		_, operator := x.key(tenant.NewKey{Role: tenant.RoleOperator})
		for _, tt := range []struct{ key, path string }{
			{auditor, "/airlock/v1/issuers/me"}, {auditor, "/airlock/v1/keys/key_1"}, {key, "/airlock/v1/issuers/me"}, {operator, "/airlock/v1/keys/key_none"},
		} {
			r := httptest.NewRequest("DELETE", tt.path, nil)
			r.Header.Set("X-Api-Key", tt.key)
			mux.ServeHTTP(httptest.NewRecorder(), r)
			x.advance(2e9)
		}
		entries, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 100, Event: "access.refused"})
		if err != nil || len(entries) != 4 {
			t.Fatal(entries, err)
		}
		for i, want := range []struct{ app, user, detail string }{
			{a.ID, "key " + own.ID, "an API key: DELETE /airlock/v1/issuers/{id}"},
			{"", "key " + eyes.ID, "role auditor: DELETE /airlock/v1/keys/{id}"},
			{"", "key " + eyes.ID, "role auditor: DELETE /airlock/v1/issuers/{id}"},
		} {
			if e := entries[i+1]; e.AppID != want.app || e.User != want.user || e.Detail != want.detail {
				t.Errorf("%+v, want %+v", e, want)
			}
		}
		if e := entries[0]; e.Detail != "DELETE /airlock/v1/keys/{id}: There is no such key." {
			t.Errorf("the method stands there twice: %+v", e)
		}
	})
}

func TestPutIssuerTriesItsKeysOnce(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		_, admin := x.key(tenant.NewKey{Role: tenant.RoleAdmin})
		answer, asked := 0, 0
		x.s.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			asked++
			w := httptest.NewRecorder()
			if answer == 0 {
				w.WriteHeader(http.StatusTeapot)
			}
			_, _ = w.WriteString(`{"keys":[]}`)
			return w.Result(), nil
		})
		put := func() any {
			t.Helper()
			i := jwt.Issuer{ID: "idp", Issuer: idpURL, Alg: jwt.ES256, JWKS: jwksURL}
			out, err := x.call(x.s.ServePutIssuer, tenant.Administration, jwttest.Text(i), "X-Api-Key", admin)
			if err != nil {
				t.Fatal(err)
			}
			return out["jwks_error"]
		}
		if got, _ := put().(string); !strings.Contains(got, "418") || asked != 1 {
			t.Errorf("%q after %d requests", got, asked)
		}
		answer = 1
		if got, _ := put().(string); !strings.Contains(got, "ES256") || asked != 2 {
			t.Errorf("%q after %d requests", got, asked)
		}
		all, err := x.get(x.s.ServeListIssuers, tenant.Administration, admin)
		if err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
