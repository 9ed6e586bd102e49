package tenant

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Alg is a signature algorithm of tokens, as the header of a token names it.
type Alg string

// The algorithms. An issuer uses exactly one; there is none without a key, and none with a shared secret.
const (
	ES256 Alg = "ES256"
	RS256 Alg = "RS256"
	EdDSA Alg = "EdDSA"
)

const (
	maxToken   = 8 << 10
	maxSubject = 255
	// clockTolerance is how far the clocks of an issuer and of this server may be apart.
	clockTolerance = 5 * time.Second
)

// refusal is why a credential was not taken. It goes to the audit; the client is told nothing of it.
type refusal string

func (r refusal) Error() string { return string(r) }

// token is one taken apart, of which nothing is believed yet.
type token struct {
	alg    Alg
	kid    string
	hasKid bool
	claims claims
	// signed is what the signature covers.
	signed    []byte
	signature []byte
}

// claims are those members of a payload that count here. "" is absent.
type claims struct {
	issuer, subject, id, appID, scope, azp, origin, source string
	audience                                               []string
	expires                                                int64
	notBefore, issuedAt                                    *int64
}

// parseToken takes a compact token apart. It is strict where parsers differ: three segments of unpadded base64url without
// stray bits, one JSON object each, no member twice.
func parseToken(text string) (*token, error) {
	if len(text) > maxToken {
		return nil, refusal("token larger than 8 KiB")
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, refusal("token has not three segments")
	}
	raw := make([][]byte, 3)
	for i, p := range parts {
		b, err := decodeSegment(p)
		if err != nil {
			return nil, err
		}
		raw[i] = b
	}
	t := &token{signed: []byte(parts[0] + "." + parts[1]), signature: raw[2]}
	if err := t.readHeader(raw[0]); err != nil {
		return nil, err
	}
	return t, t.claims.read(raw[1])
}

// decodeSegment: Go's decoder steps over line breaks, which would give one token several texts.
func decodeSegment(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, refusal("token is not base64url")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, refusal("token is not base64url")
	}
	return b, nil
}

// members reads an object in which no name stands twice. Names are compared exactly, which decoding into a struct does not.
func members(b []byte, what string) (map[string]json.RawMessage, error) {
	if err := wire.CheckJSON(b); err != nil {
		return nil, refusal(what + " is not strict JSON")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || m == nil {
		return nil, refusal(what + " is no object")
	}
	return m, nil
}

func (t *token) readHeader(b []byte) error {
	m, err := members(b, "header")
	if err != nil {
		return err
	}
	if _, ok := m["crit"]; ok {
		return refusal("header has crit")
	}
	var alg, typ string
	if err := readText(m, "alg", &alg); err != nil {
		return err
	}
	if err := readText(m, "typ", &typ); err != nil {
		return err
	}
	if _, ok := m["typ"]; ok && typ != "JWT" {
		return refusal("typ is not JWT")
	}
	t.alg = Alg(alg)
	_, t.hasKid = m["kid"]
	return readText(m, "kid", &t.kid)
}

func (c *claims) read(b []byte) error {
	m, err := members(b, "payload")
	if err != nil {
		return err
	}
	for name, into := range map[string]*string{
		"iss": &c.issuer, "sub": &c.subject, "jti": &c.id, "app_id": &c.appID, "scope": &c.scope, "azp": &c.azp, originClaim: &c.origin, sourceClaim: &c.source,
	} {
		if err := readText(m, name, into); err != nil {
			return err
		}
		if _, ok := m[name]; ok && *into == "" {
			return refusal(name + " is empty")
		}
	}
	if err := checkSubject(c.subject); err != nil {
		return err
	}
	if c.audience, err = readAudience(m["aud"]); err != nil {
		return err
	}
	expires, err := readTime(m, "exp")
	if err != nil {
		return err
	}
	if expires == nil {
		return refusal("exp is missing")
	}
	c.expires = *expires
	if c.notBefore, err = readTime(m, "nbf"); err != nil {
		return err
	}
	c.issuedAt, err = readTime(m, "iat")
	return err
}

// checkSubject: a subject is stored, compared and shown.
func checkSubject(sub string) error {
	if sub == "" || len(sub) > maxSubject || !utf8.ValidString(sub) {
		return refusal("sub is missing or too long")
	}
	for _, r := range sub {
		if !unicode.IsPrint(r) {
			return refusal("sub is not printable")
		}
	}
	return nil
}

// readText leaves into alone where the member is absent.
func readText(m map[string]json.RawMessage, name string, into *string) error {
	raw, ok := m[name]
	if !ok {
		return nil
	}
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, into) != nil {
		return refusal(name + " is no text")
	}
	return nil
}

func readAudience(raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	var one string
	if raw[0] == '"' && json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var many []*string
	if raw[0] != '[' || json.Unmarshal(raw, &many) != nil {
		return nil, refusal("aud is neither a text nor a list of texts")
	}
	out := make([]string, len(many))
	for i, a := range many {
		if a == nil {
			return nil, refusal("aud is neither a text nor a list of texts")
		}
		out[i] = *a
	}
	return out, nil
}

// latest is the end of the year 9999 in seconds: no honest time is beyond it, and none of those before it overflows.
const latest = 253402300799

// readTime takes whole seconds since 1970.
func readTime(m map[string]json.RawMessage, name string) (*int64, error) {
	raw, ok := m[name]
	if !ok {
		return nil, nil //nolint:nilnil // absent
	}
	var n int64
	if json.Unmarshal(raw, &n) != nil || string(raw) == "null" || n < 0 || n > latest {
		return nil, refusal(name + " is no time in whole seconds")
	}
	return &n, nil
}

// checkTimes holds the claims against the clock.
func (c *claims) checkTimes(now time.Time) error {
	if !now.Before(time.Unix(c.expires, 0).Add(clockTolerance)) {
		return refusal("expired")
	}
	ahead := now.Add(clockTolerance)
	if c.notBefore != nil && time.Unix(*c.notBefore, 0).After(ahead) {
		return refusal("nbf is in the future")
	}
	if c.issuedAt != nil && time.Unix(*c.issuedAt, 0).After(ahead) {
		return refusal("iat is in the future")
	}
	return nil
}

// verifySignature reports whether sig is one of signed under the algorithm and the key. A key of another kind than the
// algorithm wants verifies nothing.
func verifySignature(alg Alg, key crypto.PublicKey, signed, sig []byte) bool {
	sum := sha256.Sum256(signed)
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		// The two numbers side by side, 32 bytes each; ecdsa.Verify refuses those outside 1 to n-1.
		if alg != ES256 || len(sig) != 64 {
			return false
		}
		return ecdsa.Verify(k, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
	case *rsa.PublicKey:
		return alg == RS256 && rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], sig) == nil
	case ed25519.PublicKey:
		return alg == EdDSA && len(k) == ed25519.PublicKeySize && ed25519.Verify(k, signed, sig)
	}
	return false
}
