package tenant_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
)

const jwksURL = "https://jwks.example/keys"

func TestIssuersAreCheckedAndKeepTheirIDs(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		good := jwt.Issuer{ID: "idp", Issuer: idpURL, Alg: jwt.ES256, Key: jwttest.PEM(t, &jwttest.Foreign.EC.PublicKey)}
		for _, tt := range []struct {
			path   string
			change func(*jwt.Issuer)
		}{
			{"id: ", func(i *jwt.Issuer) { i.ID = "" }},
			{"id: ", func(i *jwt.Issuer) { i.ID = "airlock" }},
			{"id: ", func(i *jwt.Issuer) { i.ID = "a/b" }},
			{"id: ", func(i *jwt.Issuer) { i.ID = "A" }},
			{"issuer: ", func(i *jwt.Issuer) { i.Issuer = "" }},
			{"alg: ", func(i *jwt.Issuer) { i.Alg = "HS256" }},
			{"alg: ", func(i *jwt.Issuer) { i.Alg = "none" }},
			{"key: ", func(i *jwt.Issuer) { i.Alg = jwt.RS256 }},
			{"key: ", func(i *jwt.Issuer) { i.Key = "hello" }},
			{"key: ", func(i *jwt.Issuer) { i.Key += i.Key }},
			{"key, key_file, jwks: ", func(i *jwt.Issuer) { i.Key = "" }},
			{"key, key_file, jwks: ", func(i *jwt.Issuer) { i.JWKS = jwksURL }},
			{"jwks: ", func(i *jwt.Issuer) { i.Key, i.JWKS = "", "http://idp.example/keys" }},
			{"jwks: ", func(i *jwt.Issuer) { i.Key, i.JWKS = "", "https://u:p@idp.example/keys" }},
			{"jwks: ", func(i *jwt.Issuer) { i.Key, i.JWKS = "", "file:///etc/passwd" }},
			{"audience.0: ", func(i *jwt.Issuer) { i.Audience = []string{""} }},
			{"azp_patterns.1: ", func(i *jwt.Issuer) { i.AzpPatterns = []string{"a", "*"} }},
			{"azp_patterns.0: only '*'", func(i *jwt.Issuer) { i.AzpPatterns = []string{"["} }},
			{"issuer: ", func(i *jwt.Issuer) { i.Issuer = "airlock" }},
		} {
			bad := good
			tt.change(&bad)
			err := x.s.PutIssuer(t.Context(), bad)
			if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "invalid_request_error: "), tt.path) && !strings.Contains(err.Error(), tt.path) {
				t.Errorf("%+v: %v, want %s", bad, err, tt.path)
			}
		}
		if err := x.s.PutIssuer(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		x.accepted(x.token())
		other := good
		other.ID = "idp2"
		wantStatus(t, x.s.PutIssuer(t.Context(), other), http.StatusConflict, "issuer: ")
		if err := x.s.RemoveIssuer(t.Context(), "idp"); err != nil {
			t.Fatal(err)
		}
		x.refused(x.token())
		wantStatus(t, x.s.RemoveIssuer(t.Context(), "idp"), http.StatusNotFound, "")
		// The id stays with its issuer: another one's subjects must not inherit what was owned.
		taken := good
		taken.Issuer = "https://other.example"
		wantStatus(t, x.s.PutIssuer(t.Context(), taken), http.StatusConflict, "id: ")
		x.s.Issuers = []jwt.Issuer{taken}
		if err := x.s.ReadIssuers(t.Context()); err == nil {
			t.Error("the settings give an id to another issuer")
		}
		x.s.Issuers = nil
		if err := x.s.PutIssuer(t.Context(), good); err != nil {
			t.Error(err)
		}
		x.accepted(x.token())
	})
}
