package tenant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Lives of users' tokens, and at most of those made for another issuer's.
const (
	DefaultTokenTTL = time.Hour
	MinTokenTTL     = 10 * time.Second
	MaxTokenTTL     = 30 * 24 * time.Hour
	ExchangeTTL     = time.Hour
)

const (
	// OwnerTokenTTL is ten years: an owner's token is an app's configuration.
	OwnerTokenTTL = 10 * 365 * 24 * time.Hour
	// ScopeOwner is the claim scope of owner tokens, which are no person's.
	ScopeOwner = "owner"

	tokenPrefix = "tok_"

	// forever is when the use of an app by an identity token is forgotten: never.
	forever = math.MaxInt64
)

// Token is a token of ours that was just made.
type Token struct {
	// ID is the claim jti, under which it can be revoked.
	ID        string
	AppID     string
	Text      string
	ExpiresAt time.Time
}

// NewToken describes a token to be made.
type NewToken struct {
	// App is an app's id or name.
	App string
	// User is the subject; Owner makes a token of the app's registered owner instead.
	User  string
	Owner bool
	// TTL is its life: 0 is DefaultTokenTTL, and for an owner's OwnerTokenTTL.
	TTL time.Duration
}

// Validate checks everything that needs no database.
func (n NewToken) Validate() error {
	if n.App == "" || !storable(n.App) {
		return wire.Invalid("app: expected the id or name of an app.")
	}
	if n.Owner == (n.User != "") {
		return wire.Invalid("user, owner: expected exactly one of them.")
	}
	most := MaxTokenTTL
	if n.Owner {
		most = OwnerTokenTTL
	} else if jwt.CheckSubject(n.User) != nil {
		return wire.Invalid("user: expected 1 to %d bytes of printable characters.", jwt.MaxSubject)
	}
	if n.TTL != 0 && (n.TTL < MinTokenTTL || n.TTL > most) {
		return wire.Invalid("ttl_seconds: expected an integer from %d to %d.", int64(MinTokenTTL/time.Second), int64(most/time.Second))
	}
	return nil
}

// MintToken makes a token of ours, which is bound to its app.
func (s *Service) MintToken(ctx context.Context, n NewToken) (*Token, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	app, err := s.usableApp(ctx, n.App)
	if err != nil {
		return nil, err
	}
	c := map[string]any{"sub": n.User}
	ttl := n.TTL
	if n.Owner {
		c["sub"], c["scope"] = app.OwnerSub, ScopeOwner
		if app.OwnerIssuer != jwt.OwnIssuer {
			c[jwt.OriginClaim] = app.OwnerIssuer
		}
	}
	switch {
	case ttl > 0:
	case n.Owner:
		ttl = OwnerTokenTTL
	default:
		ttl = DefaultTokenTTL
	}
	return s.mint(ctx, app, c, ttl)
}

// usableApp finds an app for which something may be made.
func (s *Service) usableApp(ctx context.Context, idOrName string) (*appRow, error) {
	if !storable(idOrName) {
		return nil, wire.Invalid("app: there is no such app.")
	}
	row, err := selectApp(ctx, s.DB.Read(), idOrName)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return nil, wire.Invalid("app: there is no such app.")
	case err != nil:
		return nil, fmt.Errorf("find app: %w", err)
	case row.DisabledAt != nil:
		return nil, wire.Invalid("app: the app is disabled.")
	}
	return row, nil
}

// mint signs a token of an app with the claims and those that every token has.
func (s *Service) mint(ctx context.Context, app *appRow, c map[string]any, ttl time.Duration) (*Token, error) {
	now := s.now()
	t := &Token{ID: wire.NewID(strings.TrimSuffix(tokenPrefix, "_")), AppID: app.ID, ExpiresAt: now.Add(ttl).Truncate(time.Second).UTC()}
	c["iss"], c["app_id"], c["jti"] = s.tokenIssuer(), app.ID, t.ID
	c["iat"], c["exp"] = now.Unix(), t.ExpiresAt.Unix()
	if app.TokenUntil < t.ExpiresAt.UnixMicro() {
		err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
			// An hour more, so that tokens of a minute do not each write.
			return s.countAsUsed(ctx, tx, app, t.ExpiresAt.Add(time.Hour).UnixMicro())
		})
		if err != nil {
			return nil, fmt.Errorf("mint token: %w", err)
		}
	}
	var err error
	t.Text, err = s.own().sign(ctx, c)
	return t, err
}

// countAsUsed notes that somebody may hold a token or identity of the app until a moment. A second app in use asks MayAddApp.
func (s *Service) countAsUsed(ctx context.Context, tx db.Tx, app *appRow, until int64) error {
	if app.TokenUntil >= until {
		return nil
	}
	if err := s.checkSecondApp(ctx, tx, app.ID, false); err != nil {
		return err
	}
	return updateTokenUntil(ctx, tx, app.ID, until)
}

// ExchangeToken turns a token of a configured issuer into one of ours for the same subject in one app (id or name). It lives
// ttl, 0 = ExchangeTTL, and not longer than what it stands for, also when that is revoked. A token of ours cannot be exchanged,
// so that there are no chains.
func (s *Service) ExchangeToken(ctx context.Context, compact, app string, ttl time.Duration) (*Token, error) {
	if ttl == 0 {
		ttl = ExchangeTTL
	}
	if ttl < MinTokenTTL || ttl > ExchangeTTL {
		return nil, wire.Invalid("ttl_seconds: expected an integer from %d to %d.", int64(MinTokenTTL/time.Second), int64(ExchangeTTL/time.Second))
	}
	v, err := s.verify(ctx, compact)
	if why, ok := errors.AsType[refusal](err); ok {
		return nil, deniedToken(string(why))
	}
	if err != nil {
		return nil, err
	}
	if v.Issuer == s.tokenIssuer() {
		return nil, wire.Invalid("token: it is one of this server's already.")
	}
	row, err := s.usableApp(ctx, app)
	if err != nil {
		return nil, err
	}
	st, err := selectStanding(ctx, s.DB, question{
		appID: row.ID, verified: v, now: s.now().UnixMicro(),
	})
	if err != nil {
		return nil, fmt.Errorf("exchange token: %w", err)
	}
	if v.AppID != "" && v.AppID != row.ID {
		return nil, deniedToken("token is bound to another app")
	}
	// As if it came with the app's identity: an exchange must not get around what the gateway asks for.
	if d := st.refuse(v, pair{appID: row.ID, complete: true}, 0); d != nil {
		d.appID, d.user = row.ID, v.origin+"/"+v.Subject
		return nil, d
	}
	c := map[string]any{"sub": v.Subject, jwt.OriginClaim: v.origin, jwt.SourceClaim: v.tokenID}
	if v.Scope != "" {
		c["scope"] = v.Scope
	}
	left := time.Unix(v.Expires, 0).Sub(s.now())
	if left <= 0 {
		return nil, deniedToken("expired") // within the tolerance, and nothing is left to give
	}
	return s.mint(ctx, row, c, min(ttl, left))
}

// tokenForm is what the id of a token of ours looks like. Ids are not kept: one that was mistyped would pass for revoked.
var tokenForm = regexp.MustCompile(`^` + tokenPrefix + `01[1-9A-HJ-NP-Za-km-z]{22}$`)

// Revoked is a token that is refused now.
type Revoked struct {
	// ID is the claim jti; "" where the token has none.
	ID string
	// User is <issuer id>/<subject>; "" of a token that was given by its id.
	User string
}

// who names the token in the audit.
func (r Revoked) who() string {
	if r.User == "" {
		return r.ID
	}
	return strings.TrimPrefix(r.ID+" of "+r.User, " ")
}

// RevokeToken refuses a token from the next request on, and what was exchanged from it: one whose signature verifies, or, given the id that its minting
// answered, one of ours. It may be repeated.
func (s *Service) RevokeToken(ctx context.Context, textOrID string) (gone Revoked, err error) {
	row := &revokedRow{}
	switch {
	case tokenForm.MatchString(textOrID):
		gone.ID = textOrID
		row.ID, row.Until = hashSecret(jwt.OwnIssuer+"\njti\n"+gone.ID), s.now().Add(OwnerTokenTTL+jwt.ClockTolerance).UnixMicro()
	case strings.Count(textOrID, ".") != 2:
		return gone, wire.Invalid("token: expected a token, or the id that its minting answered (%s and 24 characters).", tokenPrefix)
	default:
		v, err := s.verify(ctx, textOrID)
		if why, ok := errors.AsType[refusal](err); ok {
			// Whoever asks holds the token or has the right to; what is wrong with it helps him.
			return gone, wire.Invalid("token: %s.", why)
		}
		if err != nil {
			return gone, err
		}
		gone.ID, gone.User = v.ID, v.origin+"/"+v.Subject
		row.ID, row.Until = v.tokenID, time.Unix(v.Expires, 0).Add(jwt.ClockTolerance).UnixMicro()
	}
	err = s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error { return insertRevoked(ctx, tx, row) })
	if err != nil {
		return Revoked{}, fmt.Errorf("revoke token: %w", err)
	}
	return gone, nil
}

// Environment is what an application needs to find this server and to prove itself there.
type Environment struct {
	AppID, OwnerToken, Identity string
}

// AppEnvironment makes an owner token of an app (id or name) and gives it with the app's identity token.
func (s *Service) AppEnvironment(ctx context.Context, app string) (*Environment, error) {
	id, identity, err := s.AppIdentity(ctx, app)
	if err != nil {
		return nil, err
	}
	t, err := s.MintToken(ctx, NewToken{App: id, Owner: true})
	if err != nil {
		return nil, err
	}
	return &Environment{AppID: id, OwnerToken: t.Text, Identity: identity}, nil
}

// ownedApp gives the app (by id) of a person who owns it, and a 404 otherwise: to somebody else, to a token that is no
// person's, and to one that stands for another issuer's.
func (s *Service) ownedApp(ctx context.Context, c Caller, id string) (*appRow, error) {
	if !storable(id) || c.TokenScope != "" || c.Exchanged || (c.BoundTo != "" && c.BoundTo != id) {
		return nil, wire.NotFound()
	}
	row, err := selectApp(ctx, s.DB.Read(), id)
	if errors.Is(err, db.ErrNotFound) {
		return nil, wire.NotFound()
	}
	if err != nil {
		return nil, fmt.Errorf("find app: %w", err)
	}
	if row.ID != id || row.DisabledAt != nil || row.OwnerIssuer != c.Issuer || row.OwnerSub != c.Subject {
		return nil, wire.NotFound()
	}
	return row, nil
}
