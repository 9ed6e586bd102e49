package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// OwnIssuer is the id of this server as an issuer of tokens.
	OwnIssuer = "airlock"
	// OriginClaim names, in a token of ours, the issuer whose subject it is for.
	OriginClaim = "airlock_issuer"
	// SourceClaim says, in a token of ours that was exchanged, under what the token before would be revoked.
	SourceClaim = "airlock_source"

	minRSABits = 2048
)

// Issuer says whose tokens are taken, and how they are verified. Its subjects are those of this id alone: the same subject
// of another issuer is somebody else.
type Issuer struct {
	// ID is short and chosen by the operator: letters a-z, digits and '-'. It is part of stored owners, so it stays.
	ID string `json:"id" yaml:"id"`
	// Issuer must equal the claim iss.
	Issuer string `json:"issuer" yaml:"issuer"`
	// Audience must share a value with the claim aud; empty is not checked.
	Audience []string `json:"audience,omitempty" yaml:"audience"`
	// AzpPatterns must match the claim azp where a token has one; '*' stands for anything but '/'. Empty is not checked.
	AzpPatterns []string `json:"azp_patterns,omitempty" yaml:"azp_patterns"`
	// Alg is the one algorithm of its signatures.
	Alg Alg `json:"alg" yaml:"alg"`
	// Key is a public key as PEM; KeyFile names a file with one. Either of them, or JWKS.
	Key     string `json:"key,omitempty" yaml:"key"`
	KeyFile string `json:"-" yaml:"key_file"`
	// JWKS is the address of the issuer's keys: https, or http on this machine.
	JWKS string `json:"jwks,omitempty" yaml:"jwks"`
	// BindsApps lets the claim app_id of its tokens stand for the app, as in our own.
	BindsApps bool `json:"binds_apps,omitempty" yaml:"binds_apps"`
}

var issuerID = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// IsIssuerID reports whether text can be the id of an issuer, that of this server among them.
func IsIssuerID(text string) bool { return issuerID.MatchString(text) }

// Validate checks everything but the file of the key.
func (i *Issuer) Validate() error {
	switch {
	case !IsIssuerID(i.ID):
		return wire.Invalid("id: expected 1 to 40 characters of a-z, 0-9 and '-'.")
	case i.ID == OwnIssuer:
		return wire.Invalid("id: %s is this server itself.", OwnIssuer)
	case i.Issuer == "" || len(i.Issuer) > 512 || !whole(i.Issuer):
		return wire.Invalid("issuer: expected the value of the claim iss, up to 512 bytes.")
	case i.Alg != ES256 && i.Alg != RS256 && i.Alg != EdDSA:
		return wire.Invalid("alg: expected one of ES256, RS256, EdDSA.")
	}
	for n, a := range i.Audience {
		if a == "" || !whole(a) {
			return wire.Invalid("audience.%d: expected a text.", n)
		}
	}
	for n, p := range i.AzpPatterns {
		if p == "" || p == "*" || !whole(p) {
			return wire.Invalid("azp_patterns.%d: expected a pattern such as https://*.example.com.", n)
		}
		if strings.ContainsAny(p, `[]{}()?+^$|\`) {
			return wire.Invalid("azp_patterns.%d: only '*' stands for something, as in https://*.example.com; %q is no part of an origin.", n, p)
		}
	}
	return i.validateKey()
}

// whole: what a database of either kind can hold.
func whole(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func (i *Issuer) validateKey() error {
	given := 0
	for _, v := range []string{i.Key, i.KeyFile, i.JWKS} {
		if v != "" {
			given++
		}
	}
	if given != 1 {
		return wire.Invalid("key, key_file, jwks: expected exactly one of them.")
	}
	if i.Key != "" {
		if _, err := ParsePublicKey(i.Key, i.Alg); err != nil {
			return wire.Invalid("key: %s.", err)
		}
	}
	if i.JWKS != "" && !mayFetch(i.JWKS) {
		return wire.Invalid("jwks: expected an https address without user or fragment; http is taken for this machine only.")
	}
	return nil
}

// mayFetch: keys that came over a wire in the clear would be anybody's.
func mayFetch(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	host := u.Hostname()
	ip, err := netip.ParseAddr(host)
	return u.Scheme == "http" && (host == "localhost" || (err == nil && ip.Unmap().IsLoopback()))
}

// ParsePublicKey reads a PEM public key of the algorithm's kind.
func ParsePublicKey(text string, alg Alg) (crypto.PublicKey, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || strings.TrimSpace(string(rest)) != "" {
		return nil, fmt.Errorf("it is not one PEM block")
	}
	if block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("the PEM block is %q, expected PUBLIC KEY", block.Type)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	return key, fits(key, alg)
}

// fits refuses a key that is of another kind than the algorithm, or weak.
func fits(key crypto.PublicKey, alg Alg) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if alg == ES256 && k.Curve == elliptic.P256() {
			return nil
		}
	case *rsa.PublicKey:
		if alg == RS256 && k.N.BitLen() < minRSABits {
			return fmt.Errorf("an RSA key needs %d bits", minRSABits)
		}
		if alg == RS256 && k.E >= 3 && k.E%2 == 1 {
			return nil
		}
	case ed25519.PublicKey:
		if alg == EdDSA {
			return nil
		}
	}
	return fmt.Errorf("it is no key for %s", alg)
}
