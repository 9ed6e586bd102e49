package tenant

import (
	"net/http"
	"slices"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type tokenJSON struct {
	Type  string `json:"type"`
	Token string `json:"token"`
	// ID is the claim jti, for revocation.
	ID        string `json:"id"`
	AppID     string `json:"app_id"`
	ExpiresAt string `json:"expires_at"`
}

func tokenShape(t *Token) tokenJSON {
	return tokenJSON{Type: "token", Token: t.Text, ID: t.ID, AppID: t.AppID, ExpiresAt: wire.FormatTime(t.ExpiresAt)}
}

// tokenTTL reads ttl_seconds; what is out of every range stays so.
func tokenTTL(n *int64) time.Duration {
	if n == nil {
		return 0
	}
	return secondsToTTL(*n)
}

// forApp is the app that a caller may make tokens for: an API key for its own alone, and only with the right to.
func forApp(c Caller, app string) (string, error) {
	if c.Admin {
		if app == "" {
			return DefaultApp, nil
		}
		return app, nil
	}
	if c.KeyID != "" && !slices.Contains(c.Scopes, ScopeMintTokens) {
		return "", wire.Forbidden("This key may not make tokens: it lacks the scope %s.", ScopeMintTokens)
	}
	if app != "" && app != c.AppID {
		return "", wire.Forbidden("app: only the app's own id can be given with its credentials.")
	}
	return c.AppID, nil
}

// ServeMintToken answers POST /airlock/v1/tokens {"app", "user" or "owner": true, "ttl_seconds"}. An API key makes tokens of
// users, not of the owner: those outlive the key.
func (s *Service) ServeMintToken(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		App        string `json:"app"`
		User       string `json:"user"`
		Owner      bool   `json:"owner"`
		TTLSeconds *int64 `json:"ttl_seconds"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	app, err := forApp(c, in.App)
	if err != nil {
		return s.audited(r, c, err)
	}
	n := NewToken{App: app, User: in.User, Owner: in.Owner, TTL: tokenTTL(in.TTLSeconds)}
	if !c.Admin {
		if err := s.onlyUsers(r, c, n); err != nil {
			return s.audited(r, c, err)
		}
	}
	t, err := s.MintToken(r.Context(), n)
	if err != nil {
		return err
	}
	what := "for user " + n.User
	if n.Owner {
		what = "for the app's owner"
	}
	s.record(r, c, t.AppID, "token.minted", t.ID+" "+what)
	return wire.WriteJSON(w, http.StatusOK, tokenShape(t))
}

// onlyUsers keeps an API key from making tokens of the app's owner, also under the owner's name.
func (s *Service) onlyUsers(r *http.Request, c Caller, n NewToken) error {
	a, err := s.GetApp(r.Context(), c.AppID)
	if err != nil {
		return err
	}
	if n.Owner || (a.OwnerIssuer == jwt.OwnIssuer && a.OwnerSub == n.User) {
		return wire.Forbidden("A token of the app's owner is made with the admin key, not with an API key.")
	}
	return nil
}

// ServeExchangeToken answers POST /airlock/v1/tokens/exchange {"token", "app", "ttl_seconds"}. With an admin or API key the
// token to exchange stands in the body; otherwise it is the credential, and the app's identity stands beside it.
func (s *Service) ServeExchangeToken(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		Token      string `json:"token"`
		App        string `json:"app"`
		TTLSeconds *int64 `json:"ttl_seconds"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if c.Gateway {
		if err := c.RequireApp(); err != nil {
			return s.audited(r, c, err)
		}
		if in.Token != "" {
			return wire.Invalid("token: the credential of the request is what is exchanged.")
		}
		cred, err := readCredential(r.Header, KindGateway)
		if err != nil {
			return err
		}
		in.Token = cred.text
	}
	app, err := forApp(c, in.App)
	if err != nil {
		return s.audited(r, c, err)
	}
	if in.Token == "" {
		return wire.Invalid("token: expected the token of a configured issuer.")
	}
	t, err := s.ExchangeToken(r.Context(), in.Token, app, tokenTTL(in.TTLSeconds))
	if err != nil {
		return s.audited(r, c, err)
	}
	s.record(r, c, t.AppID, "token.exchanged", t.ID)
	return wire.WriteJSON(w, http.StatusOK, tokenShape(t))
}

// ServeRevokeToken answers POST /airlock/v1/tokens/revoke {"token"}: a token, or the id of one of ours. The answer has a "user" where a
// token was given: of ids it is not known whether there was such a token.
func (s *Service) ServeRevokeToken(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		Token string `json:"token"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	gone, err := s.RevokeToken(r.Context(), in.Token)
	if err != nil {
		return err
	}
	s.record(r, c, "", "token.revoked", gone.who())
	out := map[string]string{"id": gone.ID, "type": "token_revoked"}
	if gone.User != "" {
		out["user"] = gone.User
	}
	return wire.WriteJSON(w, http.StatusOK, out)
}

// ServeRotateSigning answers POST /airlock/v1/keys/signing/rotate {"overlap_seconds"}.
func (s *Service) ServeRotateSigning(w http.ResponseWriter, r *http.Request, c Caller) error {
	overlap := s.signingOverlap()
	if err := readOverlap(r, &overlap); err != nil {
		return err
	}
	k, err := s.RotateSigningKey(r.Context(), overlap)
	if err != nil {
		return err
	}
	s.record(r, c, "", "signing.rotated", k.KID)
	return wire.WriteJSON(w, http.StatusOK, map[string]any{
		"type": "signing_key", "kid": k.KID, "previous_end_at": wire.FormatTime(s.now().Add(overlap)),
	})
}

// readOverlap reads {"overlap_seconds"} into d, which stays where it is absent.
func readOverlap(r *http.Request, d *time.Duration) error {
	var in struct {
		Overlap *int64 `json:"overlap_seconds"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if in.Overlap == nil {
		return nil
	}
	if *in.Overlap < 0 || *in.Overlap > int64(maxKeyTTL/time.Second) {
		return wire.Invalid("overlap_seconds: expected an integer from 0 to %d.", int64(maxKeyTTL/time.Second))
	}
	*d = time.Duration(*in.Overlap) * time.Second
	return nil
}

// ServeJWKS answers GET /.well-known/jwks.json: our public keys as a JWK set.
func (s *Service) ServeJWKS(w http.ResponseWriter, r *http.Request, _ Caller) error {
	set, _, err := s.PublicKeys(r.Context())
	if err != nil {
		return err
	}
	return writePublic(w, map[string]any{"keys": set})
}

// ServeAuthJWKS answers GET /api/auth/jwks: the same set, and the key that signs as PEM.
func (s *Service) ServeAuthJWKS(w http.ResponseWriter, r *http.Request, _ Caller) error {
	set, active, err := s.PublicKeys(r.Context())
	if err != nil {
		return err
	}
	return writePublic(w, map[string]any{"keys": set, "publicKey": active})
}

func writePublic(w http.ResponseWriter, v any) error {
	w.Header().Set("Cache-Control", "public, max-age=60")
	return wire.WriteJSON(w, http.StatusOK, v)
}

// ServeMintAppToken answers POST /api/auth/mint-app-token {"appId"}: the owner token of an app, for the person who owns it.
func (s *Service) ServeMintAppToken(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		AppID string `json:"appId"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	row, err := s.ownedApp(r.Context(), c, in.AppID)
	if err != nil {
		return s.audited(r, c, err)
	}
	t, err := s.MintToken(r.Context(), NewToken{App: row.ID, Owner: true})
	if err != nil {
		return err
	}
	s.record(r, c, row.ID, "token.minted", t.ID+" for the app's owner")
	return wire.WriteJSON(w, http.StatusOK, map[string]string{"token": t.Text})
}

// ServeIdentityToken answers POST /api/apps/{id}/identity-token: the app's identity token, for the person who owns it.
func (s *Service) ServeIdentityToken(w http.ResponseWriter, r *http.Request, c Caller) error {
	row, err := s.ownedApp(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return s.audited(r, c, err)
	}
	_, identity, err := s.AppIdentity(r.Context(), row.ID)
	if err != nil {
		return err
	}
	s.record(r, c, row.ID, "identity.shown", "")
	return wire.WriteJSON(w, http.StatusOK, map[string]string{"token": identity})
}

// ServeAppEnv answers GET /airlock/v1/apps/{id}/env: the environment of an application. Each call makes a new owner token.
func (s *Service) ServeAppEnv(w http.ResponseWriter, r *http.Request, c Caller) error {
	e, err := s.AppEnvironment(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	address := ""
	if s.PublicURL != nil {
		address = s.PublicURL()
	}
	s.record(r, c, e.AppID, "identity.shown", "with an owner token")
	return wire.WriteJSON(w, http.StatusOK, map[string]string{
		"API_WORKER_URL": address, "APP_OWNER_JWT": e.OwnerToken, "DEEPSPACE_APP_ID": e.AppID, "APP_IDENTITY_TOKEN": e.Identity,
	})
}

// ServeRotateIdentity answers POST /airlock/v1/apps/{id}/rotate-identity {"overlap_seconds"}.
func (s *Service) ServeRotateIdentity(w http.ResponseWriter, r *http.Request, c Caller) error {
	overlap := s.identityOverlap()
	if err := readOverlap(r, &overlap); err != nil {
		return err
	}
	id, identity, err := s.RotateIdentity(r.Context(), r.PathValue("id"), overlap)
	if err != nil {
		return err
	}
	s.record(r, c, id, "identity.rotated", "")
	return wire.WriteJSON(w, http.StatusOK, map[string]string{
		"type": "app_identity", "app_id": id, "APP_IDENTITY_TOKEN": identity, "previous_end_at": wire.FormatTime(s.now().Add(overlap)),
	})
}
