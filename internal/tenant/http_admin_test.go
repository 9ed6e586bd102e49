package tenant_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// get serves a list as GET with a query.
func (x *fixture) get(h func(http.ResponseWriter, *http.Request, tenant.Caller) error, want tenant.Kind, key string, query ...string) ([]any, error) {
	x.t.Helper()
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		q.Add(query[i], query[i+1])
	}
	r := httptest.NewRequest("GET", "/?"+q.Encode(), nil)
	r.Header.Set("X-Api-Key", key)
	out, err := x.serve(h, want, r)
	data, _ := out["data"].([]any)
	return data, err
}

func TestAnAppReadsItsOwnAuditOnly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.s.Audit = &audit.Log{DB: x.s.DB, Now: x.clock, CursorKey: x.s.CursorKey}
		a, b := x.app("a"), x.app("b")
		_, key := x.key(tenant.NewKey{App: "a"})
		_, auditor := x.key(tenant.NewKey{Role: tenant.RoleAuditor})
		for _, id := range []string{a.ID, b.ID, ""} {
			x.s.Audit.Write(t.Context(), audit.Event{AppID: id, Event: "key.created", Detail: id})
		}
		want := tenant.KindAPIKey | tenant.Administration
		for _, tt := range []struct {
			key   string
			query []string
			n     int
		}{
			{auditor, nil, 3},
			{auditor, []string{"app", "b"}, 1},
			{auditor, []string{"event", "key.created", "since", "2026-01-01T00:00:00Z"}, 3},
			{key, nil, 1},
			{key, []string{"app", a.ID}, 1},
			{key, []string{"app", "a"}, 1},
		} {
			got, err := x.get(x.s.ServeAudit, want, tt.key, tt.query...)
			if err != nil || len(got) != tt.n {
				t.Errorf("%v: %d entries, %v, want %d", tt.query, len(got), err, tt.n)
			}
		}
		for _, app := range []string{b.ID, "b", "none"} {
			_, err := x.get(x.s.ServeAudit, want, key, "app", app)
			wantStatus(t, err, http.StatusNotFound, "There is no such app.")
		}
		_, err := x.get(x.s.ServeAudit, want, auditor, "since", "yesterday")
		wantStatus(t, err, http.StatusBadRequest, "since: ")
		_, err = x.get(x.s.ServeAudit, want, auditor, "event", "nonsense")
		wantStatus(t, err, http.StatusBadRequest, "key.created")
		// Every event that is written can be asked for.
		for _, dir := range []string{".", "../audit", "../server"} {
			files, err := filepath.Glob(dir + "/*.go")
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range regexp.MustCompile(`"((?:access|app|audit|identity|issuer|key|limit|signing|token|user)\.[a-z]+)"`).FindAllStringSubmatch(string(b), -1) {
					if strings.HasSuffix(f, "_test.go") || dir == "../server" && !strings.Contains(string(b), "Event: \""+m[1]) {
						continue
					}
					if _, err := x.get(x.s.ServeAudit, want, auditor, "event", m[1]); err != nil {
						t.Errorf("%s: %v", f, err)
					}
				}
			}
		}
		_, err = x.get(x.s.ServeAudit, want, auditor, "request", "abc")
		wantStatus(t, err, http.StatusBadRequest, "request: ")
		x.s.Audit.Write(wire.WithRequestID(t.Context(), "req_1"), audit.Event{AppID: a.ID, Event: "e", Detail: "by request"})
		if got, err := x.get(x.s.ServeAudit, want, key, "request", "req_1"); err != nil || len(got) != 1 {
			t.Errorf("%v, %v", got, err)
		}
		_, err = x.get(x.s.ServeAudit, want, auditor, "app", "a", "app", "b")
		wantStatus(t, err, http.StatusBadRequest, "app: ")
		// Whoever proved no app would see all of them.
		r := httptest.NewRequest("GET", "/", nil)
		wantStatus(t, x.s.ServeAudit(httptest.NewRecorder(), r, tenant.Caller{UserID: "idp/u"}), http.StatusNotFound, "")
	})
}

func TestARefusedTokenIsAuditedForWhomItIsProven(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		x.s.Audit = &audit.Log{DB: x.s.DB, Now: x.clock, CursorKey: x.s.CursorKey}
		a, b := x.app("a"), x.app("b")
		proven := func(app *tenant.App, token string) []string { return x.proven(app, token) }
		claimed := func(token string) []string {
			return []string{tenant.TokenHeader, token, tenant.AppHeader, a.ID, tenant.IdentityHeader, "v1." + strings.Repeat("0", 64)}
		}
		ended := x.mint(tenant.NewToken{App: "a", User: "u", TTL: tenant.MinTokenTTL}).Text
		alone := []string{tenant.TokenHeader, ended}
		stranger := x.mint(tenant.NewToken{App: "b", User: "u", TTL: tenant.MinTokenTTL}).Text
		head, rest, _ := strings.Cut(ended, ".")
		payload, sig, _ := strings.Cut(rest, ".")
		forged := head + "." + payload + "." + sig[1:] + "A"
		rotated := x.proven(a, x.token("exp", 1))
		if _, _, err := x.s.RotateIdentity(t.Context(), "a", 0); err != nil {
			t.Fatal(err)
		}
		x.advance(time.Minute)
		for name, tt := range map[string]struct {
			want      tenant.Kind
			headers   []string
			app, user string
		}{
			"foreign, expired":              {tenant.KindGateway, proven(a, x.token("exp", 1)), a.ID, ""},
			"garbage":                       {tenant.KindGateway, proven(a, "a.b.c"), a.ID, ""},
			"unknown issuer":                {tenant.KindGateway, proven(a, x.token("iss", "https://x.example")), a.ID, ""},
			"bound to another":              {tenant.KindGateway, proven(a, x.mint(tenant.NewToken{App: "b", User: "u"}).Text), a.ID, ""},
			"ours, expired":                 {tenant.KindGateway, alone, a.ID, "airlock/u"},
			"ours, expired, on /v1":         {tenant.KindUser, alone, a.ID, "airlock/u"},
			"ours of another, expired":      {tenant.KindGateway, proven(a, stranger), a.ID, ""},
			"ours, expired, false identity": {tenant.KindGateway, claimed(ended), a.ID, "airlock/u"},
			"claims, false identity":        {tenant.KindGateway, claimed(x.token("exp", 1, "app_id", a.ID)), "", ""},
			"claims, no identity":           {tenant.KindGateway, []string{tenant.TokenHeader, x.token("exp", 1, "app_id", a.ID)}, "", ""},
			"forged":                        {tenant.KindGateway, []string{tenant.TokenHeader, forged}, "", ""},
			"a header alone":                {tenant.KindGateway, []string{tenant.TokenHeader, "a.b.c", tenant.AppHeader, a.ID}, "", ""},
			"identity rotated away":         {tenant.KindGateway, rotated, "", ""},
		} {
			if _, err := x.auth(tt.want, tt.headers...); err == nil {
				t.Errorf("%s is accepted", name)
			}
			got, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 1})
			if err != nil || len(got) != 1 || got[0].AppID != tt.app || got[0].User != tt.user {
				t.Errorf("%s: %+v, %v, want %q %q", name, got, err, tt.app, tt.user)
			}
			x.advance(2 * time.Hour) // no two are counted as one
		}
		// What was signed with a key that was ended proves nothing any more, also where the keys before are in hand.
		other := &tenant.Service{DB: x.s.DB, CursorKey: x.s.CursorKey, Now: x.clock, Audit: x.s.Audit}
		if err := by(other, x.mint(tenant.NewToken{App: "a", User: "u"}).Text); err != nil {
			t.Fatal(err)
		}
		if _, err := x.s.RotateSigningKey(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, by(other, ended), http.StatusUnauthorized, "invalid auth token")
		if got, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 1}); err != nil || got[0].Detail != "expired" || got[0].AppID != "" {
			t.Errorf("%+v, %v", got, err)
		}
		// A caller who is known has the refusal of what stands in the body.
		key, secret := x.key(tenant.NewKey{App: "b", Scopes: []string{tenant.ScopeMintTokens}})
		x.advance(2 * time.Hour)
		_, err := x.call(x.s.ServeExchangeToken, tenant.KindAPIKey, `{"token":"a.b.c"}`, "X-Api-Key", secret)
		wantStatus(t, err, http.StatusUnauthorized, "invalid auth token")
		got, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 1})
		if err != nil || len(got) != 1 || got[0].AppID != b.ID || got[0].User != "key "+key.ID {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestChangesAreAudited(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.s.Audit = &audit.Log{DB: x.s.DB, Now: x.clock, CursorKey: x.s.CursorKey}
		admin, key := x.key(tenant.NewKey{Role: tenant.RoleAdmin})
		call := func(h func(http.ResponseWriter, *http.Request, tenant.Caller) error, id, body string) map[string]any {
			t.Helper()
			r := httptest.NewRequest("POST", "/", strings.NewReader(body))
			r.Header.Set("X-Api-Key", key)
			r.SetPathValue("id", id)
			out, err := x.serve(h, tenant.Administration, r)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			return out
		}
		call(x.s.ServeCreateApp, "", `{"name":"one"}`)
		call(x.s.ServeUpdateApp, "one", `{"allowed_models":["m"]}`)
		call(x.s.ServeAppEnv, "one", ``)
		call(x.s.ServeRotateIdentity, "one", `{"overlap_seconds":0}`)
		call(x.s.ServeRevokeKey, call(x.s.ServeCreateKey, "", `{"app":"one"}`)["id"].(string), ``)
		tok := call(x.s.ServeMintToken, "", `{"app":"one","user":"u"}`)
		call(x.s.ServeRevokeToken, "", fmt.Sprintf(`{"token":%q}`, tok["id"]))
		call(x.s.ServeUpdateUser, "airlock/u", `{"blocked":true,"app":"one"}`)
		call(x.s.ServeSetLimit, "", `{"app":"one","messages_in_flight":1}`)
		issuer := jwt.Issuer{ID: "idp", Issuer: idpURL, Alg: jwt.ES256, Key: jwttest.PEM(t, &jwttest.Foreign.EC.PublicKey)}
		call(x.s.ServePutIssuer, "", jwttest.Text(issuer))
		call(x.s.ServeRemoveIssuer, "idp", ``)
		call(x.s.ServeRotateSigning, "", ``)
		call(x.s.ServeUpdateApp, "one", `{"disabled":true}`)
		entries, _, err := x.s.Audit.List(t.Context(), audit.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, e := range entries {
			have[e.Event.Event] = true
			if e.Event.Event == "app.changed" && e.Detail != `one: allowed_models=["m"]` {
				t.Errorf("it is not told what changed: %q", e.Detail)
			}
			if e.User != "key "+admin.ID {
				t.Errorf("%s by %q", e.Event.Event, e.User)
			}
			if text := fmt.Sprint(e); strings.Contains(text, tok["token"].(string)) || strings.Contains(text, "sk-airlock-") {
				t.Errorf("a secret: %s", text)
			}
		}
		for _, event := range []string{
			"app.created", "app.changed", "app.disabled", "identity.shown", "identity.rotated", "key.created", "key.revoked", "token.minted", "token.revoked",
			"user.blocked", "limit.set", "issuer.set", "issuer.removed", "signing.rotated",
		} {
			if !have[event] {
				t.Errorf("%s is not kept", event)
			}
		}
	})
}

func TestModelsOfAnAppAreMatchedByPattern(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		models []string
		model  string
		may    bool
	}{
		{nil, "m", true},
		{[]string{"m"}, "m", true},
		{[]string{"m"}, "mm", false},
		{[]string{"a", "claude-*"}, "claude-opus", true},
		{[]string{"claude-*"}, "x-claude-a", false},
		{[]string{"*-a"}, "b-a", true},
		{[]string{"*-a"}, "b-ab", false},
		{[]string{"a*b*c"}, "abc", true},
		{[]string{"a*b*c"}, "a1b2c", true},
		{[]string{"a*b*c"}, "acb", false},
		{[]string{"*"}, "", true},
		{[]string{"a*a"}, "a", false},
		{[]string{"[a-z]"}, "b", false},
	} {
		if got := (tenant.Caller{Models: tt.models}).MayUseModel(tt.model); got != tt.may {
			t.Errorf("%v and %q: %v", tt.models, tt.model, got)
		}
	}
}
