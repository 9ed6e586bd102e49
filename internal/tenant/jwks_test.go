package tenant_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// network answers the requests for keys of a test, and counts them.
type network struct {
	count  atomic.Int64
	mu     sync.Mutex
	answer func(r *http.Request) (int, string, http.Header)
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.count.Add(1)
	n.mu.Lock()
	answer := n.answer
	n.mu.Unlock()
	if answer == nil {
		return nil, errors.New("unreachable")
	}
	status, body, h := answer(r)
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func (n *network) set(answer func(r *http.Request) (int, string, http.Header)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

func serving(body string) func(*http.Request) (int, string, http.Header) {
	return func(*http.Request) (int, string, http.Header) { return 200, body, nil }
}

func ecJWK(t *testing.T, kid string, key *ecdsa.PublicKey) string {
	t.Helper()
	b, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":%q,"x":%q,"y":%q}`, kid, b64.EncodeToString(b[1:33]), b64.EncodeToString(b[33:]))
}

const jwksURL = "https://jwks.example/keys"

// remote gives the service an issuer whose keys are fetched from a network of the test.
func (x *fixture) remote() *network {
	x.t.Helper()
	n := &network{}
	x.s.Transport = n
	x.s.Issuers = []tenant.Issuer{{ID: "idp", Issuer: idpURL, Alg: tenant.ES256, JWKS: jwksURL}}
	if err := x.s.ReadIssuers(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	return n
}

// withKid is a good token under a header with a kid, and more members.
func (x *fixture) withKid(kid string, more ...string) string {
	return compact(`{"alg":"ES256","kid":`+jsonText(kid)+strings.Join(more, "")+`}`, jsonText(x.claims()), es256)
}

func TestKeysOfAnIssuerAreFetchedKeptAndRenewed(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		fetches := func(want int64) {
			t.Helper()
			if got := n.count.Load(); got != want {
				t.Errorf("%d fetches, want %d", got, want)
			}
		}
		fetches(0) // nothing is fetched before it is needed
		n.set(serving(`{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `]}`))
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
			nil, serving("{}"), serving(`{"keys":[]}`), serving("<html>"), serving(`{"keys":[{"kty":"oct","k":"AA"}]}`),
			serving(`{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `],"pad":"` + strings.Repeat("x", 256<<10) + `"}`),
			func(*http.Request) (int, string, http.Header) {
				return 500, `{"keys":[` + ecJWK(t, "b", &theForeign.ec.PublicKey) + `]}`, nil
			},
		} {
			n.set(bad)
			x.advance(10 * time.Minute)
			before := n.count.Load()
			x.accepted(x.withKid("a"))
			x.accepted(x.withKid("a"))
			fetches(before + 1)
		}
		// A key that the issuer has taken back verifies no more.
		n.set(serving(`{"keys":[` + ecJWK(t, "b", &theForeign.ec.PublicKey) + `]}`))
		x.advance(10 * time.Minute)
		x.refused(x.withKid("a"))
		x.accepted(x.withKid("b"))
	})
}

func TestKeysAreNotFetchedFromAnotherHost(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		good := `{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `]}`
		to := func(where string) func(*http.Request) (int, string, http.Header) {
			return func(r *http.Request) (int, string, http.Header) {
				if r.URL.String() == jwksURL {
					return 302, "", http.Header{"Location": {where}}
				}
				return 200, good, nil
			}
		}
		for _, where := range []string{"https://evil.example/keys", "http://jwks.example/keys", "https://jwks.example:8443/keys", "//evil.example/"} {
			n.set(to(where))
			before := n.count.Load()
			x.refused(x.withKid("a"))
			if got := n.count.Load() - before; got != 1 {
				t.Errorf("%s: %d requests", where, got)
			}
			x.advance(time.Minute)
		}
		n.set(to("/other"))
		x.accepted(x.withKid("a"))
	})
}

func TestUnfitKeysOfASetAreSteppedOver(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		key := ecJWK(t, "a", &theForeign.ec.PublicKey)
		for _, unfit := range []string{
			strings.Replace(key, "{", `{"use":"enc",`, 1), strings.Replace(key, "{", `{"alg":"ES384",`, 1), strings.Replace(key, "P-256", "P-384", 1),
			strings.Replace(key, `"x":"`, `"x":"A`, 1), strings.Replace(key, `"kty":"EC"`, `"kty":"RSA"`, 1),
			`{"kty":"EC","crv":"P-256","kid":"a","x":"` + b64.EncodeToString(make([]byte, 32)) + `","y":"` + b64.EncodeToString(make([]byte, 32)) + `"}`,
			`{"kty":"RSA","kid":"a","n":"` + b64.EncodeToString(theForeign.rsa.N.Bytes()) + `","e":"AQAB"}`, `7`, `null`, `[]`,
		} {
			n.set(serving(`{"keys":[` + unfit + `]}`))
			x.refused(x.withKid("a"))
			x.advance(time.Minute)
			n.set(serving(`{"keys":[` + unfit + `,` + strings.Replace(key, "{", `{"use":"sig","alg":"ES256",`, 1) + `]}`))
			x.accepted(x.withKid("a"))
			x.advance(10 * time.Minute)
			n.set(serving(`{"keys":[` + ecJWK(t, "other", &theForeign.ec.PublicKey) + `]}`))
			x.accepted(x.withKid("other"))
			x.advance(10 * time.Minute)
		}
	})
}

func TestS06KeysInTheTokenAreNotLookedAt(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		n.set(func(r *http.Request) (int, string, http.Header) {
			if r.URL.String() != jwksURL {
				t.Errorf("fetched %s", r.URL)
			}
			return 200, `{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `]}`, nil
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
			`,"jwk":` + ecJWK(t, "a", &other.PublicKey), `,"jku":"https://evil.example/keys"`, `,"x5u":"https://evil.example/cert"`, `,"x5c":["MIIB"]`,
			`,"jku":"https://jwks.example/keys"`,
		} {
			x.refused(compact(`{"alg":"ES256","kid":"a"`+more+`}`, jsonText(x.claims()), sign))
		}
	})
}

func TestS07KidIsOnlyCompared(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		n.set(serving(`{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `]}`))
		x.accepted(x.withKid("a"))
		kids := []string{"../../dev/null", "/dev/null", "' OR 1=1 --", "https://evil.example/keys", "file:///etc/passwd", "a\x00", "A", " a", "a;id", strings.Repeat("k", 300)}
		for _, kid := range kids {
			x.refused(x.withKid(kid))
		}
		if got := n.count.Load(); got != 1 {
			t.Errorf("%d requests", got)
		}
		// An issuer with one key compares nothing, and still takes nothing that looks like an attempt.
		x.issuers()
		x.accepted(x.withKid("2026-11/key+1="))
		for _, kid := range append(kids[:6:6], "") {
			x.refused(x.withKid(kid))
		}
		x.refused(compact(`{"alg":"ES256","kid":7}`, jsonText(x.claims()), es256))
		// Ours name their key.
		x.app("one")
		own := x.mint(tenant.NewToken{App: "one", User: "u"}).Text
		x.accepted(own)
		_, rest, _ := strings.Cut(own, ".")
		for _, h := range []string{`{"alg":"ES256","typ":"JWT"}`, `{"alg":"ES256","typ":"JWT","kid":"x"}`} {
			x.refused(b64.EncodeToString([]byte(h)) + "." + rest)
		}
	})
}

func TestS102ManyUnknownKidsFetchOnceAMinute(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		n.set(serving(`{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `]}`))
		x.accepted(x.withKid("a"))
		x.advance(time.Minute)
		payload := jsonText(x.claims())
		const tokens = 10_000
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := range tokens / 4 {
					token := compact(fmt.Sprintf(`{"alg":"ES256","kid":"k%d-%d"}`, part, i), payload, func(string) []byte { return make([]byte, 64) })
					if _, err := x.auth(tenant.KindGateway, tenant.TokenHeader, token); err == nil {
						t.Error("an unknown key verified")
					}
				}
			})
		}
		wg.Wait()
		if got := n.count.Load(); got != 2 {
			t.Errorf("%d fetches, want the first and one more", got)
		}
		x.advance(time.Minute)
		x.refused(x.withKid("z"))
		if got := n.count.Load(); got != 3 {
			t.Errorf("%d fetches a minute later, want 3", got)
		}
	})
}

// The request that has the keys fetched may be cancelled; those who wait for the same keys must not suffer.
func TestAFetchOutlivesTheRequestThatBeganIt(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		n := x.remote()
		n.set(serving(`{"keys":[` + ecJWK(t, "a", &theForeign.ec.PublicKey) + `]}`))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { x.accepted(x.withKid("a")) })
		}
		wg.Wait()
		if got := n.count.Load(); got != 1 {
			t.Errorf("%d fetches for eight at once", got)
		}
	})
}

func TestIssuersAreCheckedAndKeepTheirIDs(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		good := tenant.Issuer{ID: "idp", Issuer: idpURL, Alg: tenant.ES256, Key: publicPEM(t, &theForeign.ec.PublicKey)}
		for _, tt := range []struct {
			path   string
			change func(*tenant.Issuer)
		}{
			{"id: ", func(i *tenant.Issuer) { i.ID = "" }},
			{"id: ", func(i *tenant.Issuer) { i.ID = "airlock" }},
			{"id: ", func(i *tenant.Issuer) { i.ID = "a/b" }},
			{"id: ", func(i *tenant.Issuer) { i.ID = "A" }},
			{"issuer: ", func(i *tenant.Issuer) { i.Issuer = "" }},
			{"alg: ", func(i *tenant.Issuer) { i.Alg = "HS256" }},
			{"alg: ", func(i *tenant.Issuer) { i.Alg = "none" }},
			{"key: ", func(i *tenant.Issuer) { i.Alg = tenant.RS256 }},
			{"key: ", func(i *tenant.Issuer) { i.Key = "hello" }},
			{"key: ", func(i *tenant.Issuer) { i.Key += i.Key }},
			{"key, jwks: ", func(i *tenant.Issuer) { i.Key = "" }},
			{"key, jwks: ", func(i *tenant.Issuer) { i.JWKS = jwksURL }},
			{"jwks: ", func(i *tenant.Issuer) { i.Key, i.JWKS = "", "http://idp.example/keys" }},
			{"jwks: ", func(i *tenant.Issuer) { i.Key, i.JWKS = "", "https://u:p@idp.example/keys" }},
			{"jwks: ", func(i *tenant.Issuer) { i.Key, i.JWKS = "", "file:///etc/passwd" }},
			{"audience.0: ", func(i *tenant.Issuer) { i.Audience = []string{""} }},
			{"azp_patterns.1: ", func(i *tenant.Issuer) { i.AzpPatterns = []string{"a", "*"} }},
			{"issuer: ", func(i *tenant.Issuer) { i.Issuer = "airlock" }},
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
		x.s.Issuers = []tenant.Issuer{taken}
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
