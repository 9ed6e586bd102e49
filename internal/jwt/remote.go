package jwt

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	jwksFresh   = 10 * time.Minute // a set is used without asking again
	jwksBetween = time.Minute      // between two attempts to fetch one
	jwksWait    = 10 * time.Second // for an answer
	jwksMax     = 256 << 10        // bytes of an answer
	jwksKeys    = 64               // keys of a set
	jwksHops    = 3                // redirects
)

// Remote are an issuer's keys behind an address. The last good set is kept when the address does not answer.
type Remote struct {
	address string
	alg     Alg
	client  *http.Client
	now     func() time.Time
	log     *slog.Logger

	mu      sync.Mutex
	set     []namedKey
	fetched time.Time     // of set
	tried   time.Time     // of the last attempt
	failed  error         // of the last attempt; nil = it succeeded
	running chan struct{} // closed when the attempt under way has ended; nil = none
}

type namedKey struct {
	kid string
	key crypto.PublicKey
}

// NewRemote gives the keys of an issuer with an address. A nil transport is the network; log may be nil. Nothing is fetched yet.
func NewRemote(i Issuer, transport http.RoundTripper, now func() time.Time, log *slog.Logger) *Remote {
	return &Remote{address: i.JWKS, alg: i.Alg, client: jwksClient(transport), now: now, log: log}
}

// Keys answers from the set it has where that is fresh and names the kid, and asks the issuer otherwise, at most once a
// minute.
func (r *Remote) Keys(ctx context.Context, kid string, hasKid bool) ([]crypto.PublicKey, error) {
	r.mu.Lock()
	found := pick(r.set, kid, hasKid)
	stale := r.fetched.IsZero() || r.now().Sub(r.fetched) >= jwksFresh
	if len(found) > 0 && !stale {
		r.mu.Unlock()
		return found, nil
	}
	wait := r.running
	if wait == nil && (r.tried.IsZero() || r.now().Sub(r.tried) >= jwksBetween) {
		wait = make(chan struct{})
		r.running, r.tried = wait, r.now()
		r.mu.Unlock()
		r.fetch(ctx, wait)
	} else {
		failed := r.failed
		r.mu.Unlock()
		if len(found) > 0 || wait == nil {
			return known(found, failed)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return known(pick(r.set, kid, hasKid), r.failed)
}

// Try fetches the keys if none are there, and tells why there are still none; "" where there are some.
func (r *Remote) Try(ctx context.Context) string {
	if _, err := r.Keys(ctx, "", false); err == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = time.Time{} // this was no token's attempt: the first that comes makes its own
	switch {
	case r.failed != nil:
		return r.failed.Error()
	case len(r.set) == 0:
		return "there is no key of the algorithm " + string(r.alg) + " at the address"
	}
	return ""
}

// known refuses where no key was found. What the last attempt failed with stands in the log: it may tell of the operator's network.
func known(keys []crypto.PublicKey, failed error) ([]crypto.PublicKey, error) {
	if len(keys) == 0 {
		if failed != nil {
			return nil, Refusal("keys of the issuer could not be fetched")
		}
		return nil, Refusal("no such key of the issuer")
	}
	return keys, nil
}

// pick gives the keys of a kid; a token without one may be of any key.
func pick(set []namedKey, kid string, hasKid bool) []crypto.PublicKey {
	var out []crypto.PublicKey
	for _, k := range set {
		if !hasKid || k.kid == kid {
			out = append(out, k.key)
		}
	}
	return out
}

// fetch replaces the set and closes done. The request that made it may go away: others wait for it too.
func (r *Remote) fetch(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jwksWait)
	defer cancel()
	set, err := r.get(ctx)
	if err != nil && r.log != nil {
		r.log.WarnContext(ctx, "keys of an issuer", "jwks", r.address, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed = err; err == nil {
		r.set, r.fetched = set, r.now()
	}
	r.running = nil
	close(done)
}

func (r *Remote) get(ctx context.Context) (_ []namedKey, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, jwksMax+1))
	if err != nil {
		return nil, err
	}
	if len(b) > jwksMax {
		return nil, fmt.Errorf("the answer is larger than %d KiB", jwksMax>>10)
	}
	return parseJWKS(b, r.alg)
}

// jwksClient follows redirects on one host only. It sends no cookies and keeps few connections.
func jwksClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 8, IdleConnTimeout: time.Minute, DisableKeepAlives: true}
	}
	return &http.Client{
		Transport: transport, Timeout: jwksWait,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > jwksHops {
				return errors.New("too many redirects")
			}
			if !sameHost(req.URL, via[0].URL) {
				return errors.New("redirected to another host")
			}
			return nil
		},
	}
}

func sameHost(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// parseJWKS reads the keys of a set that fit the algorithm, and steps over the others.
func parseJWKS(b []byte, alg Alg) ([]namedKey, error) {
	m, err := members(b, "key set")
	if err != nil {
		return nil, err
	}
	var raw []json.RawMessage
	if json.Unmarshal(m["keys"], &raw) != nil || raw == nil {
		return nil, errors.New("the set has no list named keys")
	}
	if len(raw) > jwksKeys {
		return nil, fmt.Errorf("the set has more than %d keys", jwksKeys)
	}
	var set []namedKey
	for _, one := range raw {
		if k, ok := parseJWK(one, alg); ok {
			set = append(set, k)
		}
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("the set has no key for %s", alg)
	}
	return set, nil
}

// parseJWK reads a public key that may verify signatures of the algorithm.
func parseJWK(b []byte, alg Alg) (namedKey, bool) {
	var k namedKey
	m, err := members(b, "key")
	if err != nil {
		return k, false
	}
	text := func(name string) string {
		var v string
		if readText(m, name, &v) != nil {
			return ""
		}
		return v
	}
	if _, ok := m["alg"]; ok && Alg(text("alg")) != alg {
		return k, false
	}
	if _, ok := m["use"]; ok && text("use") != "sig" {
		return k, false
	}
	k.kid = text("kid")
	switch text("kty") {
	case "EC":
		k.key = ecKey(text("crv"), text("x"), text("y"))
	case "RSA":
		k.key = rsaKey(text("n"), text("e"))
	case "OKP":
		if x, err := decodeSegment(text("x")); err == nil && text("crv") == "Ed25519" && len(x) == ed25519.PublicKeySize {
			k.key = ed25519.PublicKey(x)
		}
	}
	return k, k.key != nil && fits(k.key, alg) == nil
}

// ecKey gives a P-256 key, nil for what is none: also for a point that is not on the curve.
func ecKey(curve, x, y string) crypto.PublicKey {
	bx, errX := decodeSegment(x)
	by, errY := decodeSegment(y)
	if curve != "P-256" || errX != nil || errY != nil || len(bx) != 32 || len(by) != 32 {
		return nil
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, bx...), by...))
	if err != nil {
		return nil
	}
	return key
}

func rsaKey(n, e string) crypto.PublicKey {
	bn, errN := decodeSegment(n)
	be, errE := decodeSegment(e)
	if errN != nil || errE != nil || len(be) == 0 || len(be) > 4 || len(bn) > 1024 {
		return nil
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(bn), E: int(new(big.Int).SetBytes(be).Int64())}
}

// PublicJWK is a public key of ours as a member of a set.
func PublicJWK(kid string, key *ecdsa.PublicKey) (map[string]string, error) {
	point, err := key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	return map[string]string{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": string(ES256), "kid": kid, "x": enc(point[1:33]), "y": enc(point[33:65]),
	}, nil
}
