package jwt

import (
	"context"
	"crypto"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Source finds the keys that a token may have been signed with.
type Source interface {
	// Keys gives candidates for a token's kid, "" for none; no candidate is a Refusal.
	Keys(ctx context.Context, kid string, hasKid bool) ([]crypto.PublicKey, error)
}

// Verifier is an Issuer made ready.
type Verifier struct {
	Issuer
	Source Source

	azp []*regexp.Regexp
}

// NewVerifier makes a valid issuer ready, whose keys come from a source.
func NewVerifier(i Issuer, from Source) *Verifier {
	v := &Verifier{Issuer: i, Source: from}
	for _, p := range i.AzpPatterns {
		v.azp = append(v.azp, compileAzp(p))
	}
	return v
}

// Static is the source of an issuer with one known key.
type Static struct{ Key crypto.PublicKey }

// plainKid is what a kid may look like that selects nothing. Others are attempts at something.
var plainKid = regexp.MustCompile(`^[A-Za-z0-9+/=_.~-]{1,256}$`)

// Keys gives the one key, whatever kid names it.
func (o Static) Keys(_ context.Context, kid string, hasKid bool) ([]crypto.PublicKey, error) {
	if hasKid && (!plainKid.MatchString(kid) || strings.Contains(kid, "..") || strings.HasPrefix(kid, "/")) {
		return nil, Refusal("kid is malformed")
	}
	return []crypto.PublicKey{o.Key}, nil
}

// compileAzp makes a pattern in which '*' crosses no '/'. A leading "*." also takes the domain itself.
func compileAzp(pattern string) *regexp.Regexp {
	const anything = "[^/]+"
	text := regexp.QuoteMeta(pattern)
	head, rest, ok := strings.Cut(text, `\*\.`)
	if ok && (head == "" || strings.HasSuffix(head, "://")) {
		text = head + "(?:" + anything + `\.)?` + rest
	}
	return regexp.MustCompile(`\A` + strings.ReplaceAll(text, `\*`, anything) + `\z`)
}

// Check verifies a token that names this issuer: algorithm, signature, times, audience, party. What speaks against it is a Refusal;
// another error is a source that could not be asked.
func (v *Verifier) Check(ctx context.Context, t *Token, now time.Time) error {
	if t.alg != v.Alg {
		return Refusal("alg is not the issuer's")
	}
	keys, err := v.Source.Keys(ctx, t.KID, t.hasKid)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(keys, func(k crypto.PublicKey) bool { return verifySignature(v.Alg, k, t.Signed, t.signature) }) {
		return Refusal("signature does not verify")
	}
	if err := t.Claims.checkTimes(now); err != nil {
		return err
	}
	if len(v.Audience) > 0 && !slices.ContainsFunc(t.Claims.Audience, func(a string) bool { return slices.Contains(v.Audience, a) }) {
		return Refusal("aud does not match")
	}
	if t.Claims.AZP != "" && len(v.azp) > 0 &&
		!slices.ContainsFunc(v.azp, func(p *regexp.Regexp) bool { return p.MatchString(t.Claims.AZP) }) {
		return Refusal("azp does not match")
	}
	return nil
}
