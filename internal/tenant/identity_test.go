package tenant_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func TestS26HalfAnIdentityAndForeignOnes(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a, b := x.app("a"), x.app("b")
		pa, pb := x.proven(a, x.token()), x.proven(b, x.token())
		token, id, identity := pa[:2], pa[3], pa[5]
		with := func(headers ...string) (tenant.Caller, error) {
			return x.auth(tenant.KindGateway, append(append([]string{}, token...), headers...)...)
		}
		for _, half := range [][]string{
			{tenant.AppHeader, id}, {tenant.IdentityHeader, identity}, {tenant.AppHeader, "", tenant.IdentityHeader, identity}, {tenant.AppHeader, id, tenant.IdentityHeader, ""}, {},
		} {
			c, err := with(half...)
			if err != nil || c.AppProven || c.AppID != "" || c.MayUse(tenant.Owner{Scope: tenant.ScopeApp}) {
				t.Errorf("%v: %+v, %v", half, c, err)
			}
			wantStatus(t, c.RequireApp(), http.StatusUnauthorized, "missing app identity")
		}
		for _, bad := range [][]string{
			{tenant.AppHeader, id, tenant.IdentityHeader, "undefined"},
			{tenant.AppHeader, "undefined", tenant.IdentityHeader, identity},
			{tenant.AppHeader, "null", tenant.IdentityHeader, "null"},
			{tenant.IdentityHeader, "undefined"},
			{tenant.AppHeader, "null"},
			{tenant.AppHeader, b.ID, tenant.IdentityHeader, identity},
			{tenant.AppHeader, id, tenant.IdentityHeader, pb[5]},
			{tenant.AppHeader, id, tenant.AppHeader, id, tenant.IdentityHeader, identity},
			{tenant.AppHeader, id, tenant.IdentityHeader, identity, tenant.IdentityHeader, identity},
			{tenant.AppHeader, "a", tenant.IdentityHeader, identity},
		} {
			_, err := with(bad...)
			wantStatus(t, err, http.StatusUnauthorized, "invalid app identity")
		}
	})
}

func TestS27IdentityIsComparedExactly(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		p := x.proven(a, x.token())
		id, good := p[3], p[5]
		for _, tt := range [][2]string{
			{id, strings.ToUpper(good)},
			{id, " " + good},
			{id, good + " "},
			{id, good[:len(good)-1]},
			{id, good + "0"},
			{id, good[3:]},
			{id, "v2." + good[3:]},
			{id, "v0." + good[3:]},
			{id, "v01." + good[3:]},
			{id, "V1." + good[3:]},
			{id, "v1" + good[3:]},
			{id, good + "\n"},
			{strings.ToUpper(id), good},
			{id + " ", good},
			{"app_" + id[4:len(id)-1], good},
		} {
			_, err := x.auth(tenant.KindGateway, tenant.TokenHeader, p[1], tenant.AppHeader, tt[0], tenant.IdentityHeader, tt[1])
			wantStatus(t, err, http.StatusUnauthorized, "invalid app identity")
		}
		if _, err := x.auth(tenant.KindGateway, p...); err != nil {
			t.Error(err)
		}
	})
}

func TestS28IdentityOfAnAppThatIsNotThere(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		mac := hmac.New(sha256.New, x.s.IdentitySecret)
		mac.Write([]byte("airlock-app-identity\napp_gone\n1"))
		_, err := x.auth(tenant.KindGateway, tenant.TokenHeader, x.token(), tenant.AppHeader, "app_gone", tenant.IdentityHeader, "v1."+hex.EncodeToString(mac.Sum(nil)))
		wantStatus(t, err, http.StatusUnauthorized, "invalid app identity")
	})
}

func TestOriginalIdentityFormNeedsThePlatformSecret(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		original := func(secret, id string) []string {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(id))
			return []string{tenant.TokenHeader, x.token(), tenant.AppHeader, id, tenant.IdentityHeader, hex.EncodeToString(mac.Sum(nil))}
		}
		refused := func(headers []string) {
			t.Helper()
			_, err := x.auth(tenant.KindGateway, headers...)
			wantStatus(t, err, http.StatusUnauthorized, "invalid app identity")
		}
		refused(original("", a.ID)) // no secret is none, not the empty one
		refused(original("s3cret", a.ID))
		x.s.PlatformSecret = "s3cret"
		c, err := x.auth(tenant.KindGateway, original("s3cret", a.ID)...)
		if err != nil || c.AppID != a.ID || !c.AppProven {
			t.Errorf("%+v, %v", c, err)
		}
		refused(original("other", a.ID))
		refused(original("s3cret", "app_gone"))
		upper := original("s3cret", a.ID)
		upper[5] = strings.ToUpper(upper[5])
		refused(upper)
	})
}

func TestAppCanAskThatTokensNameIt(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		yes, origin := true, "https://www.app.example"
		if _, err := x.s.UpdateApp(t.Context(), "one", tenant.AppChange{RequireTokenBinding: &yes}); err != nil {
			t.Fatal(err)
		}
		try := func(changes ...any) error {
			_, err := x.auth(tenant.KindGateway, x.proven(a, x.token(changes...))...)
			return err
		}
		wantStatus(t, try(), http.StatusUnauthorized, "invalid auth token")
		wantStatus(t, try("azp", origin), http.StatusUnauthorized, "invalid auth token")
		if err := try("app_id", a.ID); err != nil {
			t.Error(err)
		}
		if _, err := x.s.UpdateApp(t.Context(), "one", tenant.AppChange{Origin: &origin}); err != nil {
			t.Fatal(err)
		}
		for _, changes := range [][]any{{"azp", origin}, {"aud", []string{"files", origin}}} {
			if err := try(changes...); err != nil {
				t.Errorf("%v: %v", changes, err)
			}
		}
		wantStatus(t, try(), http.StatusUnauthorized, "invalid auth token")
		wantStatus(t, try("azp", "https://other.app.example"), http.StatusUnauthorized, "invalid auth token")
		_, err := x.s.ExchangeToken(t.Context(), x.token(), "one", 0)
		wantStatus(t, err, http.StatusUnauthorized, "invalid auth token") // no way around by the exchange
		for _, bad := range []string{"app.example", "https://a/b", "ftp://a", "https://u@a", "https://a#b"} {
			_, err := x.s.UpdateApp(t.Context(), "one", tenant.AppChange{Origin: &bad})
			wantStatus(t, err, http.StatusBadRequest, "origin: ")
		}
	})
}

func TestS29RotatedIdentityEndsWithTheOverlap(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		old := x.proven(a, "")
		with := func(headers []string) error {
			headers[1] = x.token("exp", x.clock().Unix()+600)
			_, err := x.auth(tenant.KindGateway, headers...)
			return err
		}
		if err := with(old); err != nil {
			t.Fatal(err)
		}
		for _, overlap := range []time.Duration{-1, time.Hour, 0} {
			if _, _, err := x.s.RotateIdentity(t.Context(), "one", overlap); err != nil {
				t.Fatal(err)
			}
			fresh := x.proven(a, "")
			if overlap < 0 {
				overlap = tenant.DefaultIdentityOverlap
			}
			if overlap > 0 {
				x.advance(overlap - time.Microsecond)
				if err := with(old); err != nil {
					t.Errorf("within the overlap of %s: %v", overlap, err)
				}
				x.advance(time.Microsecond)
			}
			wantStatus(t, with(old), http.StatusUnauthorized, "invalid app identity")
			if err := with(fresh); err != nil {
				t.Errorf("the new one: %v", err)
			}
			old = fresh
		}
	})
}
