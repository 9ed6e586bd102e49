package jwt_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
)

func TestKeysOfAnIssuerAreFetchedKeptAndRenewed(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		fetches := func(want int64) {
			t.Helper()
			if got := n.Count.Load(); got != want {
				t.Errorf("%d fetches, want %d", got, want)
			}
		}
		fetches(0) // nothing is fetched before it is needed
		n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`))
		x.accepted(x.withKid("a"))
		x.accepted(x.withKid("a"))
		x.accepted(x.token()) // without a kid any of its keys will do
		fetches(1)
		x.advance(10*time.Minute - time.Second)
		x.accepted(x.withKid("a"))
		fetches(1)
		x.advance(time.Second)
		x.accepted(x.withKid("a"))
		fetches(2)
		// The last good set is kept while the issuer does not answer, answers nonsense, or too much.
		for _, bad := range []func(*http.Request) (int, string, http.Header){
			nil, jwttest.Serving("{}"), jwttest.Serving(`{"keys":[]}`), jwttest.Serving("<html>"), jwttest.Serving(`{"keys":[{"kty":"oct","k":"AA"}]}`),
			jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `],"pad":"` + strings.Repeat("x", 256<<10) + `"}`),
			func(*http.Request) (int, string, http.Header) {
				return 500, `{"keys":[` + jwttest.ECJWK(t, "b", &jwttest.Foreign.EC.PublicKey) + `]}`, nil
			},
		} {
			n.Set(bad)
			x.advance(10 * time.Minute)
			before := n.Count.Load()
			x.accepted(x.withKid("a"))
			x.accepted(x.withKid("a"))
			fetches(before + 1)
		}
		// A key that the issuer has taken back verifies no more.
		n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "b", &jwttest.Foreign.EC.PublicKey) + `]}`))
		x.advance(10 * time.Minute)
		x.refused(x.withKid("a"))
		x.accepted(x.withKid("b"))
	})
}

func TestItIsSaidThatKeysCouldNotBeFetched(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		why := func(want jwt.Refusal) {
			t.Helper()
			if _, err := x.check(t.Context(), x.withKid("b")); !errors.Is(err, want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		why("keys of the issuer could not be fetched")
		why("keys of the issuer could not be fetched") // without asking again
		x.advance(time.Minute)
		n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`))
		why("no such key of the issuer")
	})
}

func TestKeysAreNotFetchedFromAnotherHost(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		good := `{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`
		to := func(where string) func(*http.Request) (int, string, http.Header) {
			return func(r *http.Request) (int, string, http.Header) {
				if r.URL.String() == jwksURL {
					return 302, "", http.Header{"Location": {where}}
				}
				return 200, good, nil
			}
		}
		for _, where := range []string{"https://evil.example/keys", "http://jwks.example/keys", "https://jwks.example:8443/keys", "//evil.example/"} {
			n.Set(to(where))
			before := n.Count.Load()
			x.refused(x.withKid("a"))
			if got := n.Count.Load() - before; got != 1 {
				t.Errorf("%s: %d requests", where, got)
			}
			x.advance(time.Minute)
		}
		n.Set(to("/other"))
		x.accepted(x.withKid("a"))
	})
}

func TestUnfitKeysOfASetAreSteppedOver(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		key := jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey)
		for _, unfit := range []string{
			strings.Replace(key, "{", `{"use":"enc",`, 1), strings.Replace(key, "{", `{"alg":"ES384",`, 1), strings.Replace(key, "P-256", "P-384", 1),
			strings.Replace(key, `"x":"`, `"x":"A`, 1), strings.Replace(key, `"kty":"EC"`, `"kty":"RSA"`, 1),
			`{"kty":"EC","crv":"P-256","kid":"a","x":"` + jwttest.B64.EncodeToString(make([]byte, 32)) + `","y":"` + jwttest.B64.EncodeToString(make([]byte, 32)) + `"}`,
			`{"kty":"RSA","kid":"a","n":"` + jwttest.B64.EncodeToString(jwttest.Foreign.RSA.N.Bytes()) + `","e":"AQAB"}`, `7`, `null`, `[]`,
		} {
			n.Set(jwttest.Serving(`{"keys":[` + unfit + `]}`))
			x.refused(x.withKid("a"))
			x.advance(time.Minute)
			n.Set(jwttest.Serving(`{"keys":[` + unfit + `,` + strings.Replace(key, "{", `{"use":"sig","alg":"ES256",`, 1) + `]}`))
			x.accepted(x.withKid("a"))
			x.advance(10 * time.Minute)
			n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "other", &jwttest.Foreign.EC.PublicKey) + `]}`))
			x.accepted(x.withKid("other"))
			x.advance(10 * time.Minute)
		}
	})
}

func TestS06KeysInTheTokenAreNotLookedAt(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		n.Set(func(r *http.Request) (int, string, http.Header) {
			if r.URL.String() != jwksURL {
				t.Errorf("fetched %s", r.URL)
			}
			return 200, `{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`, nil
		})
		sign := func(signed string) []byte {
			sum := sha256.Sum256([]byte(signed))
			r, s, err := ecdsa.Sign(rand.Reader, other, sum[:])
			if err != nil {
				t.Fatal(err)
			}
			return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
		for _, more := range []string{
			`,"jwk":` + jwttest.ECJWK(t, "a", &other.PublicKey), `,"jku":"https://evil.example/keys"`, `,"x5u":"https://evil.example/cert"`, `,"x5c":["MIIB"]`,
			`,"jku":"https://jwks.example/keys"`,
		} {
			x.refused(jwttest.Compact(`{"alg":"ES256","kid":"a"`+more+`}`, jwttest.Text(x.claims()), sign))
		}
	})
}

func TestS07KidIsOnlyCompared(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`))
		x.accepted(x.withKid("a"))
		kids := []string{"../../dev/null", "/dev/null", "' OR 1=1 --", "https://evil.example/keys", "file:///etc/passwd", "a\x00", "A", " a", "a;id", strings.Repeat("k", 300)}
		for _, kid := range kids {
			x.refused(x.withKid(kid))
		}
		if got := n.Count.Load(); got != 1 {
			t.Errorf("%d requests", got)
		}
		// An issuer with one key compares nothing, and still takes nothing that looks like an attempt.
		x.issuers()
		x.accepted(x.withKid("2026-11/key+1="))
		for _, kid := range append(kids[:6:6], "") {
			x.refused(x.withKid(kid))
		}
		x.refused(jwttest.Compact(`{"alg":"ES256","kid":7}`, jwttest.Text(x.claims()), jwttest.ES256))
	})
}

func TestS102ManyUnknownKidsFetchOnceAMinute(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`))
		x.accepted(x.withKid("a"))
		x.advance(time.Minute)
		payload := jwttest.Text(x.claims())
		const tokens = 10_000
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := range tokens / 4 {
					token := jwttest.Compact(fmt.Sprintf(`{"alg":"ES256","kid":"k%d-%d"}`, part, i), payload, func(string) []byte { return make([]byte, 64) })
					if _, err := x.check(t.Context(), token); err == nil {
						t.Error("an unknown key verified")
					}
				}
			})
		}
		wg.Wait()
		if got := n.Count.Load(); got != 2 {
			t.Errorf("%d fetches, want the first and one more", got)
		}
		x.advance(time.Minute)
		x.refused(x.withKid("z"))
		if got := n.Count.Load(); got != 3 {
			t.Errorf("%d fetches a minute later, want 3", got)
		}
	})
}

// The request that has the keys fetched may be cancelled; those who wait for the same keys must not suffer.
func TestAFetchOutlivesTheRequestThatBeganIt(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		n.Set(jwttest.Serving(`{"keys":[` + jwttest.ECJWK(t, "a", &jwttest.Foreign.EC.PublicKey) + `]}`))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { x.accepted(x.withKid("a")) })
		}
		wg.Wait()
		if got := n.Count.Load(); got != 1 {
			t.Errorf("%d fetches for eight at once", got)
		}
	})
}
