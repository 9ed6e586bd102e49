// Package jwttest makes tokens of an issuer that exists in tests alone, good ones and such as no issuer would make, and answers for its
// address. It knows nothing of what verifies them.
package jwttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// B64 is the encoding of a token's segments.
var B64 = base64.RawURLEncoding

// Claims is a good payload of an issuer with changes, names and values in turn; nil removes.
func Claims(issuer string, now time.Time, changes ...any) map[string]any {
	c := map[string]any{"iss": issuer, "sub": "u", "aud": "files", "iat": now.Unix(), "exp": now.Unix() + 600}
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

// Keys are of one issuer, one of each kind.
type Keys struct {
	EC  *ecdsa.PrivateKey
	RSA *rsa.PrivateKey
	Ed  ed25519.PrivateKey
}

// Foreign are the keys of the issuer of the tests.
var Foreign = func() *Keys {
	f := &Keys{}
	var err error
	if f.EC, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		panic(err)
	}
	if f.RSA, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		panic(err)
	}
	if _, f.Ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		panic(err)
	}
	return f
}()

// PEM is a public key as settings have it.
func PEM(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// Text is a value as JSON.
func Text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// ES256 signs with the issuer's P-256 key.
func ES256(signed string) []byte {
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, Foreign.EC, sum[:])
	if err != nil {
		panic(err)
	}
	return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
}

// Compact joins header and payload, as texts, with what sign makes of them.
func Compact(header, payload string, sign func(signed string) []byte) string {
	signed := B64.EncodeToString([]byte(header)) + "." + B64.EncodeToString([]byte(payload))
	return signed + "." + B64.EncodeToString(sign(signed))
}

// PlainHeader is the header of a token that names no key.
const PlainHeader = `{"alg":"ES256","typ":"JWT"}`

// Network answers the requests for keys of a test. Without an answer it is unreachable.
type Network struct {
	// Count is how many came.
	Count  atomic.Int64
	mu     sync.Mutex
	answer func(r *http.Request) (int, string, http.Header)
}

// RoundTrip is http.RoundTripper.
func (n *Network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.Count.Add(1)
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

// Set replaces the answer: status, body and header; nil is none.
func (n *Network) Set(answer func(r *http.Request) (int, string, http.Header)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

// Serving is an answer with a body.
func Serving(body string) func(*http.Request) (int, string, http.Header) {
	return func(*http.Request) (int, string, http.Header) { return 200, body, nil }
}

// ECJWK is a P-256 key as a member of a set.
func ECJWK(t *testing.T, kid string, key *ecdsa.PublicKey) string {
	t.Helper()
	b, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":%q,"x":%q,"y":%q}`, kid, B64.EncodeToString(b[1:33]), B64.EncodeToString(b[33:]))
}
