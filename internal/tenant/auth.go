package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// TokenHeader carries a user's token, bare.
const TokenHeader = "X-Auth-Token" //nolint:gosec // the name of a header

// Authenticate gives the caller of r if its credential is of a kind in want. A missing, unknown, expired or revoked one and
// a key of a disabled app are a 401, a good one of another kind a 403, as are a blocked user and a token for a disabled
// app; a bad scope header is a 400. Why a token was refused stands in the audit alone. With KindNone the request is not
// looked at.
func (s *Service) Authenticate(r *http.Request, want Kind) (Caller, error) {
	if want == KindNone {
		return Caller{}, nil
	}
	c, err := s.identify(r, want)
	if err == nil {
		return c, nil
	}
	if d, ok := errors.AsType[*denial](err); ok {
		s.auditDenial(r, d)
		return Caller{}, d.answer
	}
	if r.Context().Err() != nil {
		return Caller{}, r.Context().Err()
	}
	return Caller{}, fmt.Errorf("authenticate: %w", err)
}

// refusal is why a credential was not taken.
type refusal = jwt.Refusal

// denial is a refusal of a credential: what the client is told, and what the audit keeps.
type denial struct {
	answer error
	event  string
	reason string
	// appID and user are set where they are proven.
	appID, user string
}

func (d *denial) Error() string { return d.reason + ": " + d.answer.Error() }
func (d *denial) Unwrap() error { return d.answer }

func errInvalidToken() error { return wire.Unauthorized("invalid auth token") }

func deniedToken(reason string) *denial {
	return &denial{answer: errInvalidToken(), event: eventToken, reason: reason}
}

func deniedIdentity(reason string) *denial {
	return &denial{answer: errIdentityInvalid(), event: eventIdentity, reason: reason}
}

func (s *Service) identify(r *http.Request, want Kind) (Caller, error) {
	cred, err := readCredential(r.Header, want)
	if err != nil {
		return Caller{}, err
	}
	if cred.isToken {
		return s.byToken(r, want, cred.text)
	}
	return s.byKey(r, want, cred.text)
}

// credential is the one of a request.
type credential struct {
	text    string
	isToken bool
}

// takesKeys are the kinds that a key can be of.
const takesKeys = KindAPIKey | Administration

// readCredential finds the one credential of a request. SDKs send a key as x-api-key or as a Bearer token, some as both; a
// user's token comes as x-auth-token or as a Bearer token.
func readCredential(h http.Header, want Kind) (credential, error) {
	keys, auth, tokens := h.Values("X-Api-Key"), h.Values("Authorization"), h.Values(TokenHeader)
	if len(keys) > 1 || len(auth) > 1 || len(tokens) > 1 {
		return credential{}, &denial{wire.Unauthorized("More than one credential was sent."), eventKey, "a credential header was sent twice", "", ""}
	}
	bearer, err := readBearer(auth)
	if err != nil {
		return credential{}, err
	}
	key, tok := one(keys), one(tokens)
	// What looks like no key is a token, and everything is one where keys are not taken.
	isToken := want&takesKeys == 0 && !strings.HasPrefix(bearer, keyPrefix) || strings.Count(bearer, ".") == 2
	switch {
	case bearer == "":
	case isToken && tok != "" && bearer != tok, !isToken && key != "" && bearer != key:
		return credential{}, &denial{wire.Unauthorized("Two different credentials were sent."), eventKey, "two credentials differ", "", ""}
	case isToken:
		tok = bearer
	default:
		key = bearer
	}
	switch {
	case key != "" && tok != "":
		return credential{}, &denial{wire.Unauthorized("A key and a token were sent; send one of them."), eventKey, "a key and a token were sent", "", ""}
	case tok != "":
		return credential{tok, true}, nil
	case key == "" && want&takesKeys == 0:
		return credential{}, &denial{wire.Unauthorized("missing auth token"), eventToken, "no token", "", ""}
	case key == "":
		return credential{}, &denial{
			wire.Unauthorized("An API key is missing: send it as x-api-key or as Authorization: Bearer."), eventKey, "no key", "", "",
		}
	case want&takesKeys == 0:
		return credential{}, &denial{wire.Unauthorized("missing auth token"), eventKey, "a key where a token is taken", "", ""}
	}
	return credential{key, false}, nil
}

func one(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func readBearer(auth []string) (string, error) {
	if len(auth) == 0 {
		return "", nil
	}
	scheme, text, _ := strings.Cut(auth[0], " ")
	text = strings.TrimSpace(text)
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return "", &denial{
			wire.Unauthorized("The Authorization header must be: Bearer, a space, and the key or token."), eventKey, "Authorization is malformed", "", "",
		}
	}
	return text, nil
}

func (s *Service) byKey(r *http.Request, want Kind, secret string) (Caller, error) {
	row := new(keyRow)
	err := hotKeyByHash.Scan(r.Context(), s.DB, row, hashSecret(secret))
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return Caller{}, err
	}
	if err != nil || !row.usable(s.now()) {
		d := &denial{answer: wire.Unauthorized("Invalid API key."), event: eventKey, reason: "no such key"}
		if err == nil {
			d.reason = "the key has ended or its app is disabled"
			d.appID = text(row.AppID)
		}
		return Caller{}, d
	}
	if err := row.mayServe(want); err != nil {
		what := "an API key"
		if row.Kind == kindAdmin {
			what = "role " + row.Role
		}
		return Caller{}, &denial{err, EventAccess, what + ": " + r.Pattern, text(row.AppID), Caller{KeyID: row.ID}.who()}
	}
	if row.Kind == kindAdmin {
		return Caller{KeyID: row.ID, Admin: true, Role: row.Role}, nil
	}
	scope, err := scopeOf(r.Header)
	if err != nil {
		return Caller{}, err
	}
	return Caller{
		AppID: *row.AppID, KeyID: row.ID, Scope: scope, Scopes: strings.Fields(row.Scopes), AppProven: true,
		Models: modelList(text(row.AllowedModels)), Limits: row.limits(),
	}, nil
}

func (r *keyRow) usable(now time.Time) bool {
	return r.RevokedAt == nil && r.AppDisabledAt == nil && (r.ExpiresAt == nil || now.UnixMicro() < *r.ExpiresAt)
}

// roleKinds are the kinds of route that each role serves.
var roleKinds = map[string]Kind{
	RoleAdmin: KindAdmin | KindOperator | KindAuditor, RoleOperator: KindOperator | KindAuditor, RoleAuditor: KindAuditor,
}

func (r *keyRow) mayServe(want Kind) error {
	switch {
	case r.Kind == kindAPI && want&KindAPIKey == 0:
		return wire.Forbidden("This needs the admin key.")
	case r.Kind == kindAPI:
		return nil
	case want&Administration == 0:
		return wire.Forbidden("The admin key works under /airlock/v1 only, for administration. Make an API key for this: airlock key create.")
	case roleKinds[r.Role]&want == 0:
		return wire.Forbidden("This admin key has the role %s, which may not do this.", r.Role)
	}
	return nil
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// verified is a token whose signature, times and issuer are good.
type verified struct {
	jwt.Claims
	// origin is the id of the issuer whose subject it is for.
	origin string
	// binds: the claim app_id stands for the app.
	binds bool
	// tokenID is under what the token would be revoked, sourceID what it was exchanged from.
	tokenID, sourceID string
	// ownKID is the key of ours that signed it.
	ownKID string
}

// verify checks everything about a token that needs no app. Beside jwt.Expired it gives whose a token of ours was.
func (s *Service) verify(ctx context.Context, compact string) (verified, error) {
	t, err := jwt.Parse(compact)
	if err != nil {
		return verified{}, err
	}
	set, err := s.issuerSet(ctx)
	if err != nil {
		return verified{}, err
	}
	v := set.byName[t.Claims.Issuer]
	if v == nil {
		return verified{}, refusal("unknown issuer")
	}
	checked := v.Check(ctx, t, s.now())
	if checked != nil && (v.ID != jwt.OwnIssuer || !errors.Is(checked, jwt.Expired)) {
		return verified{}, checked
	}
	out := verified{Claims: t.Claims, origin: v.ID, binds: v.BindsApps || v.ID == jwt.OwnIssuer, tokenID: tokenID(v.ID, t)}
	if v.ID == jwt.OwnIssuer {
		out.ownKID = t.KID
	}
	if v.ID == jwt.OwnIssuer && t.Claims.Origin != "" {
		out.sourceID = t.Claims.Source
		// A token of ours for another issuer's subject is worth nothing once that issuer is not trusted any more.
		if set.byID[t.Claims.Origin] == nil {
			return verified{}, refusal("unknown issuer of origin")
		}
		out.origin = t.Claims.Origin
	}
	return out, checked
}

// tokenID names a token among the revoked ones: its jti, or a hash of what is signed. The signature is no part of it, as
// there may be two good ones.
func tokenID(issuer string, t *jwt.Token) string {
	if t.Claims.ID != "" {
		return hashSecret(issuer + "\njti\n" + t.Claims.ID)
	}
	sum := sha256.Sum256(t.Signed)
	return hashSecret(issuer + "\nhash\n" + hex.EncodeToString(sum[:]))
}

func (s *Service) byToken(r *http.Request, want Kind, compact string) (Caller, error) {
	ctx := r.Context()
	v, err := s.verify(ctx, compact)
	if why, ok := errors.AsType[refusal](err); ok {
		d := deniedToken(string(why))
		s.attribute(r, want, d, v)
		return Caller{}, d
	}
	if err != nil {
		return Caller{}, err
	}
	switch {
	case want&KindGateway != 0:
		return s.onGateway(r, v)
	case want&KindUser != 0:
		if v.AppID == "" || !v.binds {
			return Caller{}, deniedToken("token is bound to no app")
		}
		return s.stand(r, v, pair{appID: v.AppID}, 0)
	case want&KindHuman != 0:
		return s.stand(r, v, pair{}, 0)
	}
	return Caller{}, &denial{wire.Forbidden("This takes no user's token."), EventAccess, "a token where a key is taken", "", ""}
}

// attribute says in a refusal whose it is, as far as that is proven: by the identity of an app beside a token, or by our signature
// under a token that has expired since; v is empty of every other. What a token or a header only claims counts for nothing, or
// anybody could write into an app's audit.
func (s *Service) attribute(r *http.Request, want Kind, d *denial, v verified) {
	ctx := r.Context()
	if want&KindGateway != 0 {
		if p, err := identityPair(r.Header); err == nil && p.complete {
			if gen, err := s.checkIdentity(p); err == nil {
				d.appID = s.provenApp(ctx, p, gen)
			}
		}
	}
	if v.ownKID == "" || (d.appID != "" && d.appID != v.AppID) {
		return
	}
	// The key that signed must count still: one that was ended may have leaked.
	st, err := selectStanding(ctx, s.DB, question{appID: v.AppID, verified: v, now: s.now().UnixMicro()})
	if err == nil && st.AppID != nil && st.Signing > 0 {
		d.appID, d.user = *st.AppID, v.origin+"/"+v.Subject
	}
}

// provenApp is the app of an identity that verified, "" where the app or the generation is gone.
func (s *Service) provenApp(ctx context.Context, p pair, gen int64) string {
	st, err := selectStanding(ctx, s.DB, question{appID: p.appID, gen: gen, now: s.now().UnixMicro()})
	if err != nil || (gen > 0 && st.Generations == 0) {
		return ""
	}
	return text(st.AppID)
}

// onGateway joins the two proofs of a request there.
func (s *Service) onGateway(r *http.Request, v verified) (Caller, error) {
	p, err := identityPair(r.Header)
	if why, ok := errors.AsType[refusal](err); ok {
		return Caller{}, deniedIdentity(string(why))
	}
	if !p.complete {
		p = pair{}
		if v.binds {
			p.appID = v.AppID
		}
		c, err := s.stand(r, v, p, 0)
		c.Gateway, c.AppProven = true, false
		return c, err
	}
	gen, err := s.checkIdentity(p)
	if why, ok := errors.AsType[refusal](err); ok {
		return Caller{}, deniedIdentity(string(why))
	}
	if v.AppID != "" && v.AppID != p.appID {
		d := deniedToken("token is bound to another app")
		d.appID = s.provenApp(r.Context(), p, gen)
		return Caller{}, d
	}
	c, err := s.stand(r, v, p, gen)
	c.Gateway = true
	return c, err
}

// stand asks the database about the app of p, the subject and the token, and gives the caller if nothing speaks against it.
// gen is the generation of an identity that verified.
func (s *Service) stand(r *http.Request, v verified, p pair, gen int64) (Caller, error) {
	ctx := r.Context()
	st, err := selectStanding(ctx, s.DB, question{
		appID: p.appID, gen: gen, verified: v, now: s.now().UnixMicro(),
	})
	if err != nil {
		return Caller{}, err
	}
	c := Caller{
		AppID: p.appID, UserID: v.origin + "/" + v.Subject, Subject: v.Subject, Issuer: v.origin, TokenScope: v.Scope,
		AppProven: p.appID != "", Models: modelList(text(st.Models)), Limits: st.limits(), Exchanged: v.Origin != "",
		BoundTo: v.AppID, Unnoted: st.LastSeen == nil || s.now().Sub(micros(*st.LastSeen)) >= seenAgain,
	}
	if text(st.OwnerIssuer) == v.origin && text(st.OwnerSub) == v.Subject {
		c.UserID = ""
	}
	if err := st.refuse(v, p, gen); err != nil {
		err.appID, err.user = text(st.AppID), v.origin+"/"+v.Subject
		return Caller{}, err
	}
	if c.Scope, err = scopeOf(r.Header); err != nil {
		return Caller{}, err
	}
	return c, nil
}

// refuse says what speaks against a token whose signature is good.
func (st *standing) refuse(v verified, p pair, gen int64) *denial {
	switch {
	case p.appID != "" && st.AppID == nil && p.complete:
		return deniedIdentity("no such app")
	case p.appID != "" && st.AppID == nil:
		return deniedToken("no such app")
	case gen > 0 && st.Generations == 0:
		return deniedIdentity("the identity token was rotated")
	case st.Revoked > 0:
		return deniedToken("token is revoked")
	case v.ownKID != "" && st.Signing == 0:
		return deniedToken("no such key of ours") // ended by another server, whose word this one has not read yet
	case p.complete && *st.RequireBinding && !boundTo(v, p.appID, *st.Origin):
		return deniedToken("token is not bound to the app")
	case st.DisabledAt != nil:
		return &denial{answer: wire.Forbidden("The app is disabled."), event: EventAccess, reason: "app is disabled"}
	case st.Blocked > 0:
		return &denial{answer: wire.Forbidden("The user is blocked."), event: EventAccess, reason: "user is blocked"}
	}
	return nil
}

// boundTo: an app may ask that each token names it, by its id or by its origin.
func boundTo(v verified, appID, origin string) bool {
	return v.AppID == appID || (origin != "" && (v.AZP == origin || slices.Contains(v.Audience, origin)))
}
