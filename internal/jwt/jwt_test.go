package jwt_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
)

// fixture is a few issuers and a clock.
type fixture struct {
	t   *testing.T
	mu  sync.Mutex
	now time.Time
	set map[string]*jwt.Verifier // by the claim iss
}

func run(t *testing.T, fn func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	fn(t, newFixture(t))
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{t: t, now: time.Date(2026, 11, 29, 16, 0, 0, 0, time.UTC)}
}

func (x *fixture) clock() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

func (x *fixture) advance(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = x.now.Add(d)
}

const idpURL = "https://idp.example/auth"

// issuers are four: idp (ES256, with audience and parties), rsa, ed, and one with a key that nobody here signs with.
func (x *fixture) issuers() {
	x.t.Helper()
	x.set = map[string]*jwt.Verifier{}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, i := range []jwt.Issuer{
		{
			ID: "idp", Issuer: idpURL, Alg: jwt.ES256, Key: jwttest.PEM(x.t, &jwttest.Foreign.EC.PublicKey),
			Audience: []string{"files"}, AzpPatterns: []string{"https://*.app.example", "*.example.com"},
		},
		{ID: "rsa", Issuer: "https://rsa.example", Alg: jwt.RS256, Key: jwttest.PEM(x.t, &jwttest.Foreign.RSA.PublicKey)},
		{ID: "ed", Issuer: "https://ed.example", Alg: jwt.EdDSA, Key: jwttest.PEM(x.t, jwttest.Foreign.Ed.Public())},
		{ID: "own", Issuer: "airlock", Alg: jwt.ES256, Key: jwttest.PEM(x.t, &other.PublicKey)},
	} {
		if err := i.Validate(); err != nil {
			x.t.Fatal(err)
		}
		key, err := jwt.ParsePublicKey(i.Key, i.Alg)
		if err != nil {
			x.t.Fatal(err)
		}
		x.set[i.Issuer] = jwt.NewVerifier(i, jwt.Static{Key: key})
	}
}

const jwksURL = "https://jwks.example/keys"

// remote has an issuer whose keys are fetched from a network of the test.
func (x *fixture) remote() *jwttest.Network {
	x.t.Helper()
	n := &jwttest.Network{}
	i := jwt.Issuer{ID: "idp", Issuer: idpURL, Alg: jwt.ES256, JWKS: jwksURL}
	if err := i.Validate(); err != nil {
		x.t.Fatal(err)
	}
	x.set = map[string]*jwt.Verifier{idpURL: jwt.NewVerifier(i, jwt.NewRemote(i, n, x.clock, nil))}
	return n
}

// claims is a good payload of idp with changes; nil removes.
func (x *fixture) claims(changes ...any) map[string]any {
	return jwttest.Claims(idpURL, x.clock(), changes...)
}

// token is a good one of idp with changes.
func (x *fixture) token(changes ...any) string {
	return jwttest.Compact(jwttest.PlainHeader, jwttest.Text(x.claims(changes...)), jwttest.ES256)
}

// withKid is a good token under a header with a kid, and more members.
func (x *fixture) withKid(kid string, more ...string) string {
	return jwttest.Compact(`{"alg":"ES256","kid":`+jwttest.Text(kid)+strings.Join(more, "")+`}`, jwttest.Text(x.claims()), jwttest.ES256)
}

// check is what a server does with a token.
func (x *fixture) check(ctx context.Context, text string) (jwt.Claims, error) {
	t, err := jwt.Parse(text)
	if err != nil {
		return jwt.Claims{}, err
	}
	v := x.set[t.Claims.Issuer]
	if v == nil {
		return jwt.Claims{}, jwt.Refusal("unknown issuer")
	}
	return t.Claims, v.Check(ctx, t, x.clock())
}

// refused expects that what speaks against a token is a Refusal, and no fault of ours.
func (x *fixture) refused(token string) {
	x.t.Helper()
	_, err := x.check(x.t.Context(), token)
	if _, ok := errors.AsType[jwt.Refusal](err); !ok {
		x.t.Errorf("%v, want a refusal", err)
	}
}

func (x *fixture) accepted(token string) jwt.Claims {
	x.t.Helper()
	c, err := x.check(x.t.Context(), token)
	if err != nil {
		x.t.Errorf("a good token: %v", err)
	}
	return c
}
