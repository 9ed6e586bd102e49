package tenant

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// The headers in which an application proves itself on the gateway.
const (
	AppHeader      = "X-App-Id"
	IdentityHeader = "X-App-Identity-Token"
)

// DefaultIdentityOverlap is how long an app's identity token is taken after a newer one was made.
const DefaultIdentityOverlap = 24 * time.Hour

// Codes of refusals that an application can act on.
const (
	CodeIdentityMissing = "app_identity_missing"
	CodeIdentityInvalid = "app_identity_invalid"
)

func errIdentityMissing() error {
	return wire.Unauthorized("missing app identity").WithCode(CodeIdentityMissing)
}

func errIdentityInvalid() *wire.Error {
	return wire.Unauthorized("invalid app identity").WithCode(CodeIdentityInvalid)
}

// pair is the app identity of a request.
type pair struct {
	appID, token string
	// complete: both headers were sent. One alone counts as none.
	complete bool
}

// identityPair reads the two headers. What a broken deployment sends in place of a value is refused at once.
func identityPair(h http.Header) (pair, error) {
	var p pair
	for name, into := range map[string]*string{AppHeader: &p.appID, IdentityHeader: &p.token} {
		v := h.Values(name)
		if len(v) > 1 {
			return pair{}, refusal("identity header sent twice")
		}
		if len(v) == 1 {
			*into = v[0]
		}
		if *into == "undefined" || *into == "null" {
			return pair{}, refusal("identity header is a placeholder")
		}
	}
	p.complete = p.appID != "" && p.token != ""
	return p, nil
}

// identityForm is v<generation>.<hex>; the hex alone is the original form.
var (
	identityForm = regexp.MustCompile(`^v([1-9][0-9]{0,8})\.([0-9a-f]{64})$`)
	originalForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// identityMAC is the proof of a generation of an app.
func identityMAC(secret []byte, appID string, gen int64) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("airlock-app-identity\n" + appID + "\n" + strconv.FormatInt(gen, 10)))
	return m.Sum(nil)
}

// checkIdentity verifies the proof itself and gives its generation, 0 for the original form. Whether app and generation
// still exist is for the database to say.
func (s *Service) checkIdentity(p pair) (gen int64, err error) {
	if m := identityForm.FindStringSubmatch(p.token); m != nil {
		gen, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return 0, refusal("identity token is malformed")
		}
		got, err := hex.DecodeString(m[2])
		if err != nil || len(s.IdentitySecret) == 0 || !hmac.Equal(got, identityMAC(s.IdentitySecret, p.appID, gen)) {
			return 0, refusal("identity token does not verify")
		}
		return gen, nil
	}
	if s.PlatformSecret == "" || !originalForm.MatchString(p.token) {
		return 0, refusal("identity token is malformed")
	}
	m := hmac.New(sha256.New, []byte(s.PlatformSecret))
	m.Write([]byte(p.appID))
	got, err := hex.DecodeString(p.token)
	if err != nil || !hmac.Equal(got, m.Sum(nil)) {
		return 0, refusal("identity token does not verify")
	}
	return 0, nil
}

func (s *Service) identityToken(appID string, gen int64) string {
	return fmt.Sprintf("v%d.%s", gen, hex.EncodeToString(identityMAC(s.IdentitySecret, appID, gen)))
}

// RotateIdentity makes a new identity token of an app. Those before are taken for overlap more; negative means
// Service.IdentityOverlap.
func (s *Service) RotateIdentity(ctx context.Context, idOrName string, overlap time.Duration) (appID, identity string, err error) {
	if overlap < 0 {
		overlap = s.identityOverlap()
	}
	if overlap > maxKeyTTL {
		return "", "", wire.Invalid("overlap_seconds: expected an integer from 0 to %d.", int64(maxKeyTTL/time.Second))
	}
	if !storable(idOrName) {
		return "", "", noApp()
	}
	now := s.now()
	err = s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		app, err := selectApp(ctx, tx, idOrName)
		if err != nil {
			return err
		}
		if err := s.countAsUsed(ctx, tx, app, forever); err != nil {
			return err
		}
		// Of two rotations at once the second sees what the first made. The app is locked after countAsUsed, as everywhere:
		// what asks for another app goes first.
		if err := lockApp(ctx, s.DB, tx, app.ID); err != nil {
			return err
		}
		gen, err := newestGeneration(ctx, tx, app.ID)
		if err != nil {
			return err
		}
		if err := endGenerations(ctx, tx, app.ID, now.Add(overlap).UnixMicro()); err != nil {
			return err
		}
		appID, identity = app.ID, s.identityToken(app.ID, gen+1)
		return insertGeneration(ctx, tx, &generationRow{AppID: app.ID, Gen: gen + 1, CreatedAt: now.UnixMicro()})
	})
	if errors.Is(err, db.ErrNotFound) {
		return "", "", noApp()
	}
	if err != nil {
		return "", "", fmt.Errorf("rotate identity: %w", err)
	}
	return appID, identity, nil
}

func (s *Service) identityOverlap() time.Duration {
	if s.IdentityOverlap > 0 {
		return s.IdentityOverlap
	}
	return DefaultIdentityOverlap
}

// AppIdentity gives an app's newest identity token. It counts as one that somebody holds.
func (s *Service) AppIdentity(ctx context.Context, idOrName string) (appID, identity string, err error) {
	if !storable(idOrName) {
		return "", "", noApp()
	}
	app, err := selectApp(ctx, s.DB.Read(), idOrName)
	if errors.Is(err, db.ErrNotFound) {
		return "", "", noApp()
	}
	if err != nil {
		return "", "", fmt.Errorf("app identity: %w", err)
	}
	if app.TokenUntil < forever {
		err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error { return s.countAsUsed(ctx, tx, app, forever) })
		if err != nil {
			return "", "", fmt.Errorf("app identity: %w", err)
		}
	}
	gen, err := newestGeneration(ctx, s.DB.Read(), app.ID)
	if err != nil {
		return "", "", fmt.Errorf("app identity: %w", err)
	}
	return app.ID, s.identityToken(app.ID, gen), nil
}
