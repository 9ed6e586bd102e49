package tenant

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// signingFresh is how long the keys are used as they were read: another server on the database may have rotated them.
	signingFresh = time.Minute
	// signingBetween bounds how often an unknown kid has them read again: who sends one unknown kid after the other causes
	// one query in that time.
	signingBetween = time.Second
	// DefaultSigningOverlap is how long a key that signs no more still verifies, if nothing else is asked for.
	DefaultSigningOverlap = 30 * 24 * time.Hour
)

// signingKey is a key of ours. It signs until a newer one is there, and verifies until ends.
type signingKey struct {
	kid     string
	private *ecdsa.PrivateKey
	ends    *time.Time
}

// signing are our own keys, newest first. It is the source of keys of our own tokens.
type signing struct {
	s *Service

	mu   sync.Mutex
	set  []signingKey
	read time.Time
	// tried is when an unknown kid had the keys read last.
	tried time.Time
}

// current gives the keys that still count, newest first. An unknown kid may be that of a key that another server on the
// database made a moment ago. With fresh they are read in any case.
func (g *signing) current(ctx context.Context, kid string, fresh bool) ([]signingKey, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.s.now()
	age := now.Sub(g.read)
	if kid != "" && !g.read.IsZero() && !hasKid(g.set, kid) {
		if since := now.Sub(g.tried); g.tried.IsZero() || since >= signingBetween || since < 0 {
			fresh, g.tried = true, now
		}
	}
	if fresh || g.read.IsZero() || age >= signingFresh || age < 0 {
		set, err := g.load(ctx)
		if err != nil {
			return nil, err
		}
		g.set, g.read = set, now
	}
	var alive []signingKey
	for _, k := range g.set {
		if k.ends == nil || now.Before(*k.ends) {
			alive = append(alive, k)
		}
	}
	return alive, nil
}

func hasKid(set []signingKey, kid string) bool {
	for _, k := range set {
		if k.kid == kid {
			return true
		}
	}
	return false
}

// Keys gives the key of ours that a token names.
func (g *signing) Keys(ctx context.Context, kid string, hasKid bool) ([]crypto.PublicKey, error) {
	set, err := g.current(ctx, kid, false)
	if err != nil {
		return nil, err
	}
	for _, k := range set {
		if hasKid && k.kid == kid {
			return []crypto.PublicKey{&k.private.PublicKey}, nil
		}
	}
	return nil, refusal("no such key of ours") // ours always name their key
}

func (g *signing) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = time.Time{}
}

// load reads the keys and makes the first one.
func (g *signing) load(ctx context.Context) ([]signingKey, error) {
	rows, err := selectSigningKeys(ctx, g.s.DB.Read())
	if err == nil && len(rows) == 0 {
		err = g.s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
			// Of two servers that start on an empty database one makes the key.
			if err := lockOldestApp(ctx, g.s.DB, tx); err != nil && !errors.Is(err, db.ErrNotFound) {
				return err
			}
			if rows, err = selectSigningKeys(ctx, tx); err != nil || len(rows) > 0 {
				return err
			}
			row, err := newSigningRow(g.s.now())
			if err != nil {
				return err
			}
			rows = []*signingRow{row}
			return insertSigningKey(ctx, tx, row)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	set := make([]signingKey, len(rows))
	for i, r := range rows {
		key, err := x509.ParsePKCS8PrivateKey(r.Private)
		private, ok := key.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("read signing key %s: the stored value is damaged", r.KID)
		}
		set[i] = signingKey{kid: r.KID, private: private, ends: microsPtr(r.EndsAt)}
	}
	return set, nil
}

func newSigningRow(now time.Time) (*signingRow, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	sum := sha256.Sum256(public)
	return &signingRow{KID: base64.RawURLEncoding.EncodeToString(sum[:12]), Private: private, CreatedAt: now.UnixMicro()}, nil
}

// SigningKey is a key of ours without its secret.
type SigningKey struct {
	KID string
	// EndsAt is when it verifies no more; nil is the key that signs.
	EndsAt *time.Time
}

// RotateSigningKey makes a new key for tokens. Those of the keys before are taken for overlap more, 0 = from now on not.
func (s *Service) RotateSigningKey(ctx context.Context, overlap time.Duration) (*SigningKey, error) {
	if overlap < 0 || overlap > maxKeyTTL {
		return nil, wire.Invalid("overlap_seconds: expected an integer from 0 to %d.", int64(maxKeyTTL/time.Second))
	}
	now := s.now()
	row, err := newSigningRow(now)
	if err != nil {
		return nil, err
	}
	err = s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		// Of two rotations at once the second ends the key of the first too.
		if err := lockOldestApp(ctx, s.DB, tx); err != nil && !errors.Is(err, db.ErrNotFound) {
			return err
		}
		if err := endSigningKeys(ctx, tx, now.Add(overlap).UnixMicro()); err != nil {
			return err
		}
		return insertSigningKey(ctx, tx, row)
	})
	if err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	s.own().forget()
	return &SigningKey{KID: row.KID}, nil
}

func (s *Service) signingOverlap() time.Duration {
	if s.SigningOverlap > 0 {
		return s.SigningOverlap
	}
	return DefaultSigningOverlap
}

// sign makes a token of claims with the newest key.
func (g *signing) sign(ctx context.Context, claims map[string]any) (string, error) {
	// A key that another server has ended signs nothing any more.
	set, err := g.current(ctx, "", true)
	if err != nil {
		return "", err
	}
	if len(set) == 0 {
		return "", errors.New("there is no signing key")
	}
	header, err := json.Marshal(map[string]string{"alg": string(jwt.ES256), "typ": "JWT", "kid": set[0].kid})
	if err != nil {
		return "", fmt.Errorf("encode token: %w", err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode token: %w", err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	signed := enc(header) + "." + enc(payload)
	sum := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, set[0].private, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	v.FillBytes(sig[32:])
	return signed + "." + enc(sig), nil
}

// PublicKeys are our keys that still verify, as members of a JWK set, and the PEM text of the one that signs.
func (s *Service) PublicKeys(ctx context.Context) (set []map[string]string, active string, err error) {
	keys, err := s.own().current(ctx, "", false)
	if err != nil {
		return nil, "", err
	}
	for i, k := range keys {
		j, err := jwt.PublicJWK(k.kid, &k.private.PublicKey)
		if err != nil {
			return nil, "", err
		}
		set = append(set, j)
		if i > 0 {
			continue
		}
		der, err := x509.MarshalPKIXPublicKey(&k.private.PublicKey)
		if err != nil {
			return nil, "", fmt.Errorf("encode public key: %w", err)
		}
		active = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	return set, active, nil
}
