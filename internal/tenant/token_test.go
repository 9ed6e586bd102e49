package tenant_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

var b64 = base64.RawURLEncoding

// foreign is an issuer of the test, with a key of each kind.
type foreign struct {
	ec  *ecdsa.PrivateKey
	rsa *rsa.PrivateKey
	ed  ed25519.PrivateKey
}

var theForeign = func() *foreign {
	f := &foreign{}
	var err error
	if f.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		panic(err)
	}
	if f.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		panic(err)
	}
	if _, f.ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		panic(err)
	}
	return f
}()

func publicPEM(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

const idpURL = "https://idp.example/auth"

// issuers gives the service three issuers: idp (ES256, with audience and parties), rsa and ed.
func (x *fixture) issuers() {
	x.t.Helper()
	x.s.Issuers = []tenant.Issuer{
		{
			ID: "idp", Issuer: idpURL, Alg: tenant.ES256, Key: publicPEM(x.t, &theForeign.ec.PublicKey),
			Audience: []string{"files"}, AzpPatterns: []string{"https://*.app.example", "*.example.com"},
		},
		{ID: "rsa", Issuer: "https://rsa.example", Alg: tenant.RS256, Key: publicPEM(x.t, &theForeign.rsa.PublicKey)},
		{ID: "ed", Issuer: "https://ed.example", Alg: tenant.EdDSA, Key: publicPEM(x.t, theForeign.ed.Public())},
	}
	if err := x.s.ReadIssuers(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// claims is a good payload of idp with changes; nil removes.
func (x *fixture) claims(changes ...any) map[string]any {
	now := x.clock().Unix()
	c := map[string]any{"iss": idpURL, "sub": "u", "aud": "files", "iat": now, "exp": now + 600}
	for i := 0; i+1 < len(changes); i += 2 {
		name := changes[i].(string)
		if changes[i+1] == nil {
			delete(c, name)
			continue
		}
		c[name] = changes[i+1]
	}
	return c
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func es256(signed string) []byte {
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, theForeign.ec, sum[:])
	if err != nil {
		panic(err)
	}
	return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
}

// compact joins header and payload, as texts, with what sign makes of them.
func compact(header, payload string, sign func(signed string) []byte) string {
	signed := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(payload))
	return signed + "." + b64.EncodeToString(sign(signed))
}

const plainHeader = `{"alg":"ES256","typ":"JWT"}`

// token is a good one of idp with changes.
func (x *fixture) token(changes ...any) string {
	return compact(plainHeader, jsonText(x.claims(changes...)), es256)
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

func TestEachAlgorithmVerifiesWithItsOwnKindOfKey(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		rs := func(signed string) []byte {
			sum := sha256.Sum256([]byte(signed))
			sig, err := rsa.SignPKCS1v15(rand.Reader, theForeign.rsa, crypto.SHA256, sum[:])
			if err != nil {
				t.Fatal(err)
			}
			return sig
		}
		ed := func(signed string) []byte { return ed25519.Sign(theForeign.ed, []byte(signed)) }
		type signer = func(string) []byte
		for alg, sign := range map[string]signer{"RS256": rs, "EdDSA": ed, "ES256": es256} {
			for iss, own := range map[string]string{"https://rsa.example": "RS256", "https://ed.example": "EdDSA", idpURL: "ES256"} {
				token := compact(`{"alg":"`+alg+`"}`, jsonText(x.claims("iss", iss)), sign)
				if alg == own {
					x.accepted(token)
				} else {
					x.refused(token)
				}
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

func TestS02AlgNone(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, alg := range []string{"none", "None", "NONE", ""} {
			x.refused(compact(`{"alg":"`+alg+`"}`, jsonText(x.claims()), func(string) []byte { return nil }))
		}
		x.refused(compact(`{"typ":"JWT"}`, jsonText(x.claims()), es256))
		x.refused(compact(`{"alg":null}`, jsonText(x.claims()), es256))
	})
}

func TestS03PublicKeyAsSharedSecret(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for iss, key := range map[string]crypto.PublicKey{idpURL: &theForeign.ec.PublicKey, "https://rsa.example": &theForeign.rsa.PublicKey} {
			x.refused(compact(`{"alg":"HS256"}`, jsonText(x.claims("iss", iss)), func(signed string) []byte {
				m := hmac.New(sha256.New, []byte(publicPEM(t, key)))
				m.Write([]byte(signed))
				return m.Sum(nil)
			}))
		}
	})
}

func TestS04AnotherAlgorithmInTheHeader(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, alg := range []string{"RS256", "ES384", "PS256", "EdDSA", "es256", "ES256 "} {
			x.refused(compact(`{"alg":"`+alg+`"}`, jsonText(x.claims()), es256))
		}
	})
}

func TestS05ForeignKey(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		x.refused(compact(plainHeader, jsonText(x.claims()), func(signed string) []byte {
			sum := sha256.Sum256([]byte(signed))
			r, s, err := ecdsa.Sign(rand.Reader, other, sum[:])
			if err != nil {
				t.Fatal(err)
			}
			return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}))
		// Signed by an issuer that is trusted, for another one.
		x.refused(x.token("iss", "airlock"))
		x.refused(x.token("iss", "https://rsa.example"))
	})
}

func TestS08SignatureForms(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		payload := jsonText(x.claims())
		x.accepted(compact(plainHeader, payload, es256))
		n := elliptic.P256().Params().N
		half := func(v *big.Int) []byte { return v.FillBytes(make([]byte, 32)) }
		forms := map[string]func(sig []byte) []byte{
			"DER": func(sig []byte) []byte {
				der, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])})
				if err != nil {
					t.Fatal(err)
				}
				return der
			},
			"63 bytes": func(sig []byte) []byte { return sig[:63] },
			"65 bytes": func(sig []byte) []byte { return append(sig, 0) },
			"65 bytes, zero first": func(sig []byte) []byte {
				return append([]byte{0}, sig...)
			},
			"65 bytes, zero before s": func(sig []byte) []byte {
				return append(append(sig[:32:32], 0), sig[32:]...)
			},
			"empty":  func([]byte) []byte { return nil },
			"r is 0": func(sig []byte) []byte { return append(make([]byte, 32), sig[32:]...) },
			"s is 0": func(sig []byte) []byte { return append(sig[:32:32], make([]byte, 32)...) },
			"r is n": func(sig []byte) []byte { return append(half(n), sig[32:]...) },
			"s is n": func(sig []byte) []byte { return append(sig[:32:32], half(n)...) },
			"r beyond": func(sig []byte) []byte {
				return append(half(new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))), sig[32:]...)
			},
			"all zero": func([]byte) []byte { return make([]byte, 64) },
		}
		for name, form := range forms {
			if _, err := x.auth(tenant.KindGateway, tenant.TokenHeader, compact(plainHeader, payload, func(signed string) []byte { return form(es256(signed)) })); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
	})
}

func TestS09ExpiryHasFiveSecondsOfTolerance(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		now := x.clock().Unix()
		x.accepted(x.token("exp", now-4))
		x.refused(x.token("exp", now-5))
		x.refused(x.token("exp", now-6))
	})
}

func TestS10TimesMustBeThereAndPast(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		now := x.clock().Unix()
		x.accepted(x.token("nbf", now+5, "iat", now+5))
		x.accepted(x.token("iat", nil))
		for _, changes := range [][]any{
			{"exp", nil},
			{"nbf", now + 3600},
			{"iat", now + 3600},
			{"nbf", now + 6},
			{"iat", now + 6},
			{"exp", "later"},
			{"exp", now*1000 + 1<<50},
			{"exp", -1},
			{"exp", float64(now) + 600.5},
			{"exp", []int{1}},
			{"nbf", "0"},
			{"iat", true},
			{"exp", json.RawMessage("1e99")},
			{"exp", json.RawMessage("null")},
			{"exp", json.RawMessage("18446744073709551615")},
		} {
			x.refused(x.token(changes...))
		}
	})
}

func TestS11IssuerAudienceAndParty(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, changes := range [][]any{
			{"aud", []string{"other", "files"}}, {"azp", "https://a.app.example"}, {"azp", "https://app.example"}, {"azp", "www.example.com"}, {"azp", "example.com"},
		} {
			x.accepted(x.token(changes...))
		}
		for _, changes := range [][]any{
			{"iss", "https://idp.example"},
			{"iss", idpURL + "/"},
			{"iss", strings.ToUpper(idpURL)},
			{"iss", nil},
			{"iss", ""},
			{"iss", 1},
			{"iss", []string{idpURL}},
			{"aud", nil},
			{"aud", "other"},
			{"aud", []string{"other", "Files"}},
			{"aud", []string{}},
			{"aud", []any{"files", nil}},
			{"aud", []any{"files", 1}},
			{"aud", map[string]any{"files": 1}},
			{"azp", "https://evil.com/x.app.example"},
			{"azp", "https://a.app.example.evil"},
			{"azp", "https://.app.example"},
			{"azp", "http://a.app.example"},
			{"azp", "xexample.com"},
			{"azp", "example.com/"},
			{"azp", "evil.com/.example.com"},
			{"azp", ""},
			{"azp", "https://a.app.example\nx"},
			{"azp", 7},
		} {
			x.refused(x.token(changes...))
		}
	})
}

func TestS12Subjects(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, sub := range []string{"u", "auth0|ab c", strings.Repeat("a", 255), "Zoë", "用户", "' OR '1'='1", "a/b"} {
			if c := x.accepted(x.token("sub", sub)); c.Subject != sub || c.UserID != "idp/"+sub {
				t.Errorf("%q became %q", sub, c.UserID)
			}
		}
		for _, sub := range []any{nil, "", 7, strings.Repeat("a", 256), strings.Repeat("a", 10<<10), "a\x00", "a\nb", "a\u0085", "a\u202eb", "\u200b", []string{"u"}, map[string]any{}} {
			x.refused(x.token("sub", sub))
		}
		x.refused(compact(plainHeader, strings.Replace(jsonText(x.claims()), `"u"`, "\"\xff\"", 1), es256))
		x.refused(compact(plainHeader, strings.Replace(jsonText(x.claims()), `"u"`, `"\ud800"`, 1), es256))
	})
}

func TestS13DuplicateMembers(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		payload := jsonText(x.claims())
		for _, twice := range []string{`{"sub":"v",`, `{"s\u0075b":"v",`, `{"iss":"x",`, `{"x":{"y":1,"y":2},`} {
			x.refused(compact(plainHeader, strings.Replace(payload, "{", twice, 1), es256))
		}
		x.refused(compact(`{"alg":"none","alg":"ES256"}`, payload, es256))
		// Another case of the letters is another member, and counts for nothing.
		if c := x.accepted(compact(plainHeader, strings.Replace(payload, "{", `{"SUB":"v",`, 1), es256)); c.Subject != "u" {
			t.Errorf("subject %q", c.Subject)
		}
		x.refused(compact(`{"ALG":"ES256"}`, payload, es256))
	})
}

func TestS14ChangedOrMisencodedTokens(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		x.issuers()
		good := x.token()
		x.accepted(good)
		parts := strings.Split(good, ".")
		payload := b64.EncodeToString([]byte(jsonText(x.claims("sub", "v"))))
		last := func(s string, n int) string { // another last character that decodes to the same bytes where the decoder is lax
			const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
			return s[:len(s)-1] + string(alphabet[strings.IndexByte(alphabet, s[len(s)-1])^n])
		}
		for name, token := range map[string]string{
			"changed payload":   parts[0] + "." + payload + "." + parts[2],
			"padding":           good + "==",
			"padded payload":    parts[0] + "." + parts[1] + "=." + parts[2],
			"stray bits":        parts[0] + "." + parts[1] + "." + last(parts[2], 1),
			"line break":        parts[0] + "." + parts[1] + "." + parts[2][:20] + "\n" + parts[2][20:],
			"standard alphabet": parts[0] + "." + parts[1] + "." + "+/" + parts[2][2:],
			"two segments":      parts[0] + "." + parts[1],
			"four segments":     good + ".",
			"empty signature":   parts[0] + "." + parts[1] + ".",
			"no payload":        parts[0] + ".." + parts[2],
			"dots":              "..",
			"text":              "hello",
			"payload a list":    compact(plainHeader, `[]`, es256),
			"payload null":      compact(plainHeader, `null`, es256),
			"after the object":  compact(plainHeader, jsonText(x.claims())+"{}", es256),
			"byte order mark":   compact(plainHeader, "\xef\xbb\xbf"+jsonText(x.claims()), es256),
			"header a text":     compact(`"ES256"`, jsonText(x.claims()), es256),
			"typ":               compact(`{"alg":"ES256","typ":"JWE"}`, jsonText(x.claims()), es256),
			"typ empty":         compact(`{"alg":"ES256","typ":""}`, jsonText(x.claims()), es256),
			"crit":              compact(`{"alg":"ES256","crit":["exp"]}`, jsonText(x.claims()), es256),
			"crit empty":        compact(`{"alg":"ES256","crit":[]}`, jsonText(x.claims()), es256),
			"too large":         x.token("pad", strings.Repeat("x", 8<<10)),
		} {
			if _, err := x.auth(tenant.KindGateway, tenant.TokenHeader, token); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		x.accepted(x.token("pad", strings.Repeat("x", 4<<10)))
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
func FuzzToken(f *testing.F) {
	x := &fixture{now: time.Date(2026, 11, 29, 16, 0, 0, 0, time.UTC)}
	good := x.token()
	f.Add(good)
	f.Add(compact(`{"alg":"none"}`, `{}`, func(string) []byte { return nil }))
	f.Add("..")
	f.Add("e30.e30.e30")
	v := tenant.VerifierOf(&theForeign.ec.PublicKey, idpURL)
	f.Fuzz(func(t *testing.T, text string) {
		if err := v(context.Background(), text, x.now); err == nil && !strings.HasPrefix(text, good[:strings.LastIndex(good, ".")+1]) {
			t.Errorf("%q got in", text)
		}
	})
}
