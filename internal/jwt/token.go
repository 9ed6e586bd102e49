package jwt

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
	// MaxSubject is the longest subject, in bytes.
	MaxSubject = 255
	// ClockTolerance is how far the clocks of an issuer and of this server may be apart.
	ClockTolerance = 5 * time.Second

	maxToken = 8 << 10
)

// Refusal is why a credential was not taken. It goes to the audit; the client is told nothing of it.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Expired is the refusal of a token whose signature verified and whose time is over.
const Expired Refusal = "expired"

// Token is one taken apart, of which nothing is believed before a Verifier has checked it.
type Token struct {
	// KID is the name of the key in the header; "" where there is none, or where it is empty.
	KID    string
	Claims Claims
	// Signed is what the signature covers.
	Signed []byte

	alg       Alg
	hasKid    bool
	signature []byte
}

// Claims are those members of a payload that count here. "" is absent.
type Claims struct {
	// Issuer is iss, Subject sub, ID jti.
	Issuer, Subject, ID string
	// AppID is app_id, the app that the token is for; Scope and AZP are scope and azp.
	AppID, Scope, AZP string
	// Origin and Source count in tokens of this server alone: OriginClaim and SourceClaim.
	Origin, Source string
	// Audience is aud, one or many.
	Audience []string
	// Expires is exp, in seconds since 1970 as the two others are; it is always there.
	Expires             int64
	NotBefore, IssuedAt *int64
}

// Parse takes a compact token apart. It is strict where parsers differ: three segments of unpadded base64url without
// stray bits, one JSON object each, no member twice.
func Parse(text string) (*Token, error) {
	if len(text) > maxToken {
		return nil, Refusal("token larger than 8 KiB")
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, Refusal("token has not three segments")
	}
	raw := make([][]byte, 3)
	for i, p := range parts {
		b, err := decodeSegment(p)
		if err != nil {
			return nil, err
		}
		raw[i] = b
	}
	t := &Token{Signed: []byte(parts[0] + "." + parts[1]), signature: raw[2]}
	if err := t.readHeader(raw[0]); err != nil {
		return nil, err
	}
	return t, t.Claims.read(raw[1])
}

// decodeSegment: Go's decoder steps over line breaks, which would give one token several texts.
func decodeSegment(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, Refusal("token is not base64url")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, Refusal("token is not base64url")
	}
	return b, nil
}

// members reads an object in which no name stands twice. Names are compared exactly, which decoding into a struct does not.
func members(b []byte, what string) (map[string]json.RawMessage, error) {
	if err := wire.CheckJSON(b); err != nil {
		return nil, Refusal(what + " is not strict JSON")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || m == nil {
		return nil, Refusal(what + " is no object")
	}
	return m, nil
}

func (t *Token) readHeader(b []byte) error {
	m, err := members(b, "header")
	if err != nil {
		return err
	}
	if _, ok := m["crit"]; ok {
		return Refusal("header has crit")
	}
	var alg, typ string
	if err := readText(m, "alg", &alg); err != nil {
		return err
	}
	if err := readText(m, "typ", &typ); err != nil {
		return err
	}
	if _, ok := m["typ"]; ok && typ != "JWT" {
		return Refusal("typ is not JWT")
	}
	t.alg = Alg(alg)
	_, t.hasKid = m["kid"]
	return readText(m, "kid", &t.KID)
}

func (c *Claims) read(b []byte) error {
	m, err := members(b, "payload")
	if err != nil {
		return err
	}
	for name, into := range map[string]*string{
		"iss": &c.Issuer, "sub": &c.Subject, "jti": &c.ID, "app_id": &c.AppID, "scope": &c.Scope, "azp": &c.AZP, OriginClaim: &c.Origin, SourceClaim: &c.Source,
	} {
		if err := readText(m, name, into); err != nil {
			return err
		}
		if _, ok := m[name]; ok && *into == "" {
			return Refusal(name + " is empty")
		}
	}
	if err := CheckSubject(c.Subject); err != nil {
		return err
	}
	if c.Audience, err = readAudience(m["aud"]); err != nil {
		return err
	}
	expires, err := readTime(m, "exp")
	if err != nil {
		return err
	}
	if expires == nil {
		return Refusal("exp is missing")
	}
	c.Expires = *expires
	if c.NotBefore, err = readTime(m, "nbf"); err != nil {
		return err
	}
	c.IssuedAt, err = readTime(m, "iat")
	return err
}

// CheckSubject refuses what cannot be a subject, which is stored, compared and shown: 1 to MaxSubject bytes of printable characters.
func CheckSubject(sub string) error {
	if sub == "" || len(sub) > MaxSubject || !utf8.ValidString(sub) {
		return Refusal("sub is missing or too long")
	}
	for _, r := range sub {
		if !unicode.IsPrint(r) {
			return Refusal("sub is not printable")
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
		return Refusal(name + " is no text")
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
		return nil, Refusal("aud is neither a text nor a list of texts")
	}
	out := make([]string, len(many))
	for i, a := range many {
		if a == nil {
			return nil, Refusal("aud is neither a text nor a list of texts")
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
		return nil, Refusal(name + " is no time in whole seconds")
	}
	return &n, nil
}

// checkTimes holds the claims against the clock.
func (c *Claims) checkTimes(now time.Time) error {
	if !now.Before(time.Unix(c.Expires, 0).Add(ClockTolerance)) {
		return Expired
	}
	ahead := now.Add(ClockTolerance)
	if c.NotBefore != nil && time.Unix(*c.NotBefore, 0).After(ahead) {
		return Refusal("nbf is in the future")
	}
	if c.IssuedAt != nil && time.Unix(*c.IssuedAt, 0).After(ahead) {
		return Refusal("iat is in the future")
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
