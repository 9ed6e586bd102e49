package tenant

import (
	"context"
	"crypto"
	"time"
)

// VerifierOf gives the check of an ES256 issuer without a database.
func VerifierOf(key crypto.PublicKey, issuer string) func(context.Context, string, time.Time) error {
	v := &verifier{Issuer: Issuer{ID: "idp", Issuer: issuer, Alg: ES256}, source: onlyKey{key}}
	return func(ctx context.Context, text string, now time.Time) error {
		t, err := parseToken(text)
		if err != nil {
			return err
		}
		return v.check(ctx, t, now)
	}
}

// Remembered counts the callers that are remembered and those that are in flight.
func (s *Service) Remembered() (buckets, flying int) {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	return len(s.limiter.buckets), len(s.limiter.flight)
}
