package tenant

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ScopeHeader states the scope of what a request creates.
const ScopeHeader = "X-Deepspace-Sandbox-Scope"

// bodyLimit is ample for the few strings these routes take.
const bodyLimit = 64 << 10

// Authenticate gives the caller of r if its credential is of a kind in want. A missing, unknown, expired
// or revoked key and a key of a disabled app are a 401, a good key of another kind is a 403, a bad scope
// header a 400. With KindNone the request is not looked at.
func (s *Service) Authenticate(r *http.Request, want Kind) (Caller, error) {
	if want == KindNone {
		return Caller{}, nil
	}
	secret, err := credential(r.Header)
	if err != nil {
		return Caller{}, err
	}
	row, err := selectKeyByHash(r.Context(), s.DB.Read(), hashSecret(secret))
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return Caller{}, fmt.Errorf("authenticate: %w", err)
	}
	if err != nil || !row.usable(s.now()) {
		return Caller{}, wire.Unauthorized("Invalid API key.")
	}
	if err := row.mayServe(want); err != nil {
		return Caller{}, err
	}
	if row.Kind == kindAdmin {
		return Caller{KeyID: row.ID, Admin: true, Role: row.Role}, nil
	}
	scope, err := scopeOf(r.Header)
	if err != nil {
		return Caller{}, err
	}
	return Caller{AppID: *row.AppID, KeyID: row.ID, Scope: scope, Scopes: strings.Fields(row.Scopes)}, nil
}

func (r *keyRow) usable(now time.Time) bool {
	return r.RevokedAt == nil && r.AppDisabledAt == nil && (r.ExpiresAt == nil || now.UnixMicro() < *r.ExpiresAt)
}

func (r *keyRow) mayServe(want Kind) error {
	switch {
	case r.Kind == kindAdmin && want&KindAdmin == 0:
		return wire.Forbidden("The admin key works under /airlock/v1 only, for administration. Make an API key for this: airlock key create.")
	case r.Kind == kindAPI && want&KindAPIKey == 0:
		return wire.Forbidden("This needs the admin key.")
	}
	return nil
}

// credential finds the one key of a request. SDKs send it as x-api-key or as a Bearer token, some as both.
func credential(h http.Header) (string, error) {
	keys, auth := h.Values("X-Api-Key"), h.Values("Authorization")
	if len(keys) > 1 || len(auth) > 1 {
		return "", wire.Unauthorized("More than one credential was sent.")
	}
	found := ""
	if len(keys) == 1 {
		found = keys[0]
	}
	if len(auth) == 1 {
		scheme, token, _ := strings.Cut(auth[0], " ")
		token = strings.TrimSpace(token)
		if !strings.EqualFold(scheme, "Bearer") {
			return "", wire.Unauthorized("The Authorization header must be: Bearer, a space, and the key.")
		}
		if found != "" && token != found {
			return "", wire.Unauthorized("x-api-key and Authorization hold different keys.")
		}
		found = token
	}
	if found == "" {
		return "", wire.Unauthorized("An API key is missing: send it as x-api-key or as Authorization: Bearer.")
	}
	return found, nil
}

func scopeOf(h http.Header) (Scope, error) {
	v := h.Values(ScopeHeader)
	if len(v) == 0 {
		return ScopeUser, nil
	}
	if len(v) == 1 && (Scope(v[0]) == ScopeUser || Scope(v[0]) == ScopeApp) {
		return Scope(v[0]), nil
	}
	return "", wire.Invalid("%s: expected one of user, app.", strings.ToLower(ScopeHeader))
}

type appJSON struct {
	ID         string  `json:"id"`
	Type       string  `json:"type"`
	Name       string  `json:"name"`
	CreatedAt  string  `json:"created_at"`
	DisabledAt *string `json:"disabled_at"`
}

func appShape(a *App) appJSON {
	return appJSON{
		ID: a.ID, Type: "app", Name: a.Name, CreatedAt: wire.FormatTime(a.CreatedAt),
		DisabledAt: wire.FormatTimePtr(a.DisabledAt),
	}
}

type keyJSON struct {
	ID        string   `json:"id"`
	Type      string   `json:"type"`
	AppID     string   `json:"app_id"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	Hint      string   `json:"hint"`
	CreatedAt string   `json:"created_at"`
	ExpiresAt *string  `json:"expires_at"`
	RevokedAt *string  `json:"revoked_at"`
	// Key is the secret; present only in the answer to creation.
	Key string `json:"key,omitempty"`
}

func keyShape(k *Key) keyJSON {
	j := keyJSON{
		ID: k.ID, Type: "key", AppID: k.AppID, Name: k.Name, Scopes: k.Scopes, Hint: k.Hint,
		CreatedAt: wire.FormatTime(k.CreatedAt), ExpiresAt: wire.FormatTimePtr(k.ExpiresAt), RevokedAt: wire.FormatTimePtr(k.RevokedAt),
	}
	if j.Scopes == nil {
		j.Scopes = []string{}
	}
	return j
}

// ServeCreateApp answers POST /airlock/v1/apps {"name"}.
func (s *Service) ServeCreateApp(w http.ResponseWriter, r *http.Request, _ Caller) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	a, err := s.CreateApp(r.Context(), in.Name)
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, appShape(a))
}

// ServeListApps answers GET /airlock/v1/apps.
func (s *Service) ServeListApps(w http.ResponseWriter, r *http.Request, _ Caller) error {
	limit, page, err := listParams(r)
	if err != nil {
		return err
	}
	apps, next, err := s.ListApps(r.Context(), limit, page)
	if err != nil {
		return err
	}
	return writePage(w, apps, next, appShape)
}

// ServeGetApp answers GET /airlock/v1/apps/{id}; a name is taken for the id.
func (s *Service) ServeGetApp(w http.ResponseWriter, r *http.Request, _ Caller) error {
	a, err := s.GetApp(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, appShape(a))
}

// ServeUpdateApp answers PATCH and POST /airlock/v1/apps/{id} {"disabled"}.
func (s *Service) ServeUpdateApp(w http.ResponseWriter, r *http.Request, _ Caller) error {
	var in struct {
		Disabled *bool `json:"disabled"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if in.Disabled == nil {
		return wire.Invalid("disabled: expected true or false.")
	}
	set := s.EnableApp
	if *in.Disabled {
		set = s.DisableApp
	}
	a, err := set(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, appShape(a))
}

// ServeCreateKey answers POST /airlock/v1/keys {"app", "name", "scopes", "ttl_seconds"}; app is an
// id or a name, "default" when absent.
func (s *Service) ServeCreateKey(w http.ResponseWriter, r *http.Request, _ Caller) error {
	var in struct {
		App        string   `json:"app"`
		Name       string   `json:"name"`
		Scopes     []string `json:"scopes"`
		TTLSeconds *int64   `json:"ttl_seconds"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	n := NewKey{App: in.App, Name: in.Name, Scopes: in.Scopes}
	if n.App == "" {
		n.App = DefaultApp
	}
	if in.TTLSeconds != nil {
		n.TTL = secondsToTTL(*in.TTLSeconds)
	}
	k, secret, err := s.CreateKey(r.Context(), n)
	if err != nil {
		return err
	}
	out := keyShape(k)
	out.Key = secret
	return wire.WriteJSON(w, http.StatusOK, out)
}

// secondsToTTL keeps 0 and overflowing values out of range instead of letting them mean something else.
func secondsToTTL(n int64) time.Duration {
	if n <= 0 || n > int64(maxKeyTTL/time.Second) {
		return -1
	}
	return time.Duration(n) * time.Second
}

// ServeListKeys answers GET /airlock/v1/keys?app=.
func (s *Service) ServeListKeys(w http.ResponseWriter, r *http.Request, _ Caller) error {
	limit, page, err := listParams(r)
	if err != nil {
		return err
	}
	app, _, err := wire.QueryOne(r.URL.Query(), "app")
	if err != nil {
		return err
	}
	keys, next, err := s.ListKeys(r.Context(), app, limit, page)
	if err != nil {
		return err
	}
	return writePage(w, keys, next, keyShape)
}

// ServeRevokeKey answers DELETE /airlock/v1/keys/{id}.
func (s *Service) ServeRevokeKey(w http.ResponseWriter, r *http.Request, _ Caller) error {
	id := r.PathValue("id")
	if err := s.RevokeKey(r.Context(), id); err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, map[string]string{"id": id, "type": "key_revoked"})
}

func listParams(r *http.Request) (limit int, page string, err error) {
	q := r.URL.Query()
	if limit, err = wire.QueryLimit(q, 20, 1000); err != nil {
		return 0, "", err
	}
	page, _, err = wire.QueryOne(q, "page")
	return limit, page, err
}

func writePage[T, J any](w http.ResponseWriter, items []T, next string, shape func(T) J) error {
	out := wire.Page[J]{Data: make([]J, len(items))}
	for i, it := range items {
		out.Data[i] = shape(it)
	}
	if next != "" {
		out.NextPage = &next
	}
	return wire.WriteJSON(w, http.StatusOK, out)
}
