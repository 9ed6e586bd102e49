package jwt_test

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
	"encoding/asn1"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
)

func TestEachAlgorithmVerifiesWithItsOwnKindOfKey(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		rs := func(signed string) []byte {
			sum := sha256.Sum256([]byte(signed))
			sig, err := rsa.SignPKCS1v15(rand.Reader, jwttest.Foreign.RSA, crypto.SHA256, sum[:])
			if err != nil {
				t.Fatal(err)
			}
			return sig
		}
		ed := func(signed string) []byte { return ed25519.Sign(jwttest.Foreign.Ed, []byte(signed)) }
		type signer = func(string) []byte
		for alg, sign := range map[string]signer{"RS256": rs, "EdDSA": ed, "ES256": jwttest.ES256} {
			for iss, own := range map[string]string{"https://rsa.example": "RS256", "https://ed.example": "EdDSA", idpURL: "ES256"} {
				token := jwttest.Compact(`{"alg":"`+alg+`"}`, jwttest.Text(x.claims("iss", iss)), sign)
				if alg == own {
					x.accepted(token)
				} else {
					x.refused(token)
				}
			}
		}
	})
}

func TestS02AlgNone(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, alg := range []string{"none", "None", "NONE", ""} {
			x.refused(jwttest.Compact(`{"alg":"`+alg+`"}`, jwttest.Text(x.claims()), func(string) []byte { return nil }))
		}
		x.refused(jwttest.Compact(`{"typ":"JWT"}`, jwttest.Text(x.claims()), jwttest.ES256))
		x.refused(jwttest.Compact(`{"alg":null}`, jwttest.Text(x.claims()), jwttest.ES256))
	})
}

func TestS03PublicKeyAsSharedSecret(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for iss, key := range map[string]crypto.PublicKey{idpURL: &jwttest.Foreign.EC.PublicKey, "https://rsa.example": &jwttest.Foreign.RSA.PublicKey} {
			x.refused(jwttest.Compact(`{"alg":"HS256"}`, jwttest.Text(x.claims("iss", iss)), func(signed string) []byte {
				m := hmac.New(sha256.New, []byte(jwttest.PEM(t, key)))
				m.Write([]byte(signed))
				return m.Sum(nil)
			}))
		}
	})
}

func TestS04AnotherAlgorithmInTheHeader(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, alg := range []string{"RS256", "ES384", "PS256", "EdDSA", "es256", "ES256 "} {
			x.refused(jwttest.Compact(`{"alg":"`+alg+`"}`, jwttest.Text(x.claims()), jwttest.ES256))
		}
	})
}

func TestS05ForeignKey(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		x.refused(jwttest.Compact(jwttest.PlainHeader, jwttest.Text(x.claims()), func(signed string) []byte {
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
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		payload := jwttest.Text(x.claims())
		x.accepted(jwttest.Compact(jwttest.PlainHeader, payload, jwttest.ES256))
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
			if _, err := x.check(t.Context(), jwttest.Compact(jwttest.PlainHeader, payload, func(signed string) []byte { return form(jwttest.ES256(signed)) })); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
	})
}

func TestS09ExpiryHasFiveSecondsOfTolerance(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		now := x.clock().Unix()
		x.accepted(x.token("exp", now-4))
		x.refused(x.token("exp", now-5))
		x.refused(x.token("exp", now-6))
	})
}

func TestS10TimesMustBeThereAndPast(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
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
	run(t, func(t *testing.T, x *fixture) {
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
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		for _, sub := range []string{"u", "auth0|ab c", strings.Repeat("a", 255), "Zoë", "用户", "' OR '1'='1", "a/b"} {
			if c := x.accepted(x.token("sub", sub)); c.Subject != sub {
				t.Errorf("%q became %q", sub, c.Subject)
			}
		}
		for _, sub := range []any{nil, "", 7, strings.Repeat("a", 256), strings.Repeat("a", 10<<10), "a\x00", "a\nb", "a\u0085", "a\u202eb", "\u200b", []string{"u"}, map[string]any{}} {
			x.refused(x.token("sub", sub))
		}
		x.refused(jwttest.Compact(jwttest.PlainHeader, strings.Replace(jwttest.Text(x.claims()), `"u"`, "\"\xff\"", 1), jwttest.ES256))
		x.refused(jwttest.Compact(jwttest.PlainHeader, strings.Replace(jwttest.Text(x.claims()), `"u"`, `"\ud800"`, 1), jwttest.ES256))
	})
}

func TestS13DuplicateMembers(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		payload := jwttest.Text(x.claims())
		for _, twice := range []string{`{"sub":"v",`, `{"s\u0075b":"v",`, `{"iss":"x",`, `{"x":{"y":1,"y":2},`} {
			x.refused(jwttest.Compact(jwttest.PlainHeader, strings.Replace(payload, "{", twice, 1), jwttest.ES256))
		}
		x.refused(jwttest.Compact(`{"alg":"none","alg":"ES256"}`, payload, jwttest.ES256))
		// Another case of the letters is another member, and counts for nothing.
		if c := x.accepted(jwttest.Compact(jwttest.PlainHeader, strings.Replace(payload, "{", `{"SUB":"v",`, 1), jwttest.ES256)); c.Subject != "u" {
			t.Errorf("subject %q", c.Subject)
		}
		x.refused(jwttest.Compact(`{"ALG":"ES256"}`, payload, jwttest.ES256))
	})
}

func TestS14ChangedOrMisencodedTokens(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		good := x.token()
		x.accepted(good)
		parts := strings.Split(good, ".")
		payload := jwttest.B64.EncodeToString([]byte(jwttest.Text(x.claims("sub", "v"))))
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
			"payload a list":    jwttest.Compact(jwttest.PlainHeader, `[]`, jwttest.ES256),
			"payload null":      jwttest.Compact(jwttest.PlainHeader, `null`, jwttest.ES256),
			"after the object":  jwttest.Compact(jwttest.PlainHeader, jwttest.Text(x.claims())+"{}", jwttest.ES256),
			"byte order mark":   jwttest.Compact(jwttest.PlainHeader, "\xef\xbb\xbf"+jwttest.Text(x.claims()), jwttest.ES256),
			"header a text":     jwttest.Compact(`"ES256"`, jwttest.Text(x.claims()), jwttest.ES256),
			"typ":               jwttest.Compact(`{"alg":"ES256","typ":"JWE"}`, jwttest.Text(x.claims()), jwttest.ES256),
			"typ empty":         jwttest.Compact(`{"alg":"ES256","typ":""}`, jwttest.Text(x.claims()), jwttest.ES256),
			"crit":              jwttest.Compact(`{"alg":"ES256","crit":["exp"]}`, jwttest.Text(x.claims()), jwttest.ES256),
			"crit empty":        jwttest.Compact(`{"alg":"ES256","crit":[]}`, jwttest.Text(x.claims()), jwttest.ES256),
			"too large":         x.token("pad", strings.Repeat("x", 8<<10)),
		} {
			if _, err := x.check(t.Context(), token); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		x.accepted(x.token("pad", strings.Repeat("x", 4<<10)))
	})
}

// FuzzToken: no text makes the parser fall, and none that was not signed gets in.
func FuzzToken(f *testing.F) {
	x := &fixture{now: time.Date(2026, 11, 29, 16, 0, 0, 0, time.UTC)}
	good := x.token()
	f.Add(good)
	f.Add(jwttest.Compact(`{"alg":"none"}`, `{}`, func(string) []byte { return nil }))
	f.Add("..")
	f.Add("e30.e30.e30")
	x.set = map[string]*jwt.Verifier{
		idpURL: jwt.NewVerifier(jwt.Issuer{ID: "idp", Issuer: idpURL, Alg: jwt.ES256}, jwt.Static{Key: &jwttest.Foreign.EC.PublicKey}),
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := x.check(context.Background(), text); err == nil && !strings.HasPrefix(text, good[:strings.LastIndex(good, ".")+1]) {
			t.Errorf("%q got in", text)
		}
	})
}
