package tenant

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ScopeHeader states the scope of what a request creates.
const ScopeHeader = "X-Deepspace-Sandbox-Scope"

// bodyLimit is ample for the few strings these routes take.
const bodyLimit = 64 << 10

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
	// Owner is <issuer id>/<subject>.
	Owner         string   `json:"owner"`
	Origin        *string  `json:"origin"`
	RequireBind   bool     `json:"require_token_app_binding"`
	AllowedModels []string `json:"allowed_models"`
}

func appShape(a *App) appJSON {
	j := appJSON{
		ID: a.ID, Type: "app", Name: a.Name, CreatedAt: wire.FormatTime(a.CreatedAt), DisabledAt: wire.FormatTimePtr(a.DisabledAt),
		Owner: a.OwnerIssuer + "/" + a.OwnerSub, RequireBind: a.RequireTokenBinding, AllowedModels: a.AllowedModels,
	}
	if a.Origin != "" {
		j.Origin = &a.Origin
	}
	if j.AllowedModels == nil {
		j.AllowedModels = []string{}
	}
	return j
}

type keyJSON struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// AppID is null and Role is set for an admin key.
	AppID     *string  `json:"app_id"`
	Role      *string  `json:"role,omitempty"`
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
		ID: k.ID, Type: "key", Name: k.Name, Scopes: k.Scopes, Hint: k.Hint,
		CreatedAt: wire.FormatTime(k.CreatedAt), ExpiresAt: wire.FormatTimePtr(k.ExpiresAt), RevokedAt: wire.FormatTimePtr(k.RevokedAt),
	}
	if j.Scopes == nil {
		j.Scopes = []string{}
	}
	if k.AppID != "" {
		j.AppID = &k.AppID
	}
	if k.Role != "" {
		j.Role = &k.Role
	}
	return j
}

// ServeCreateApp answers POST /airlock/v1/apps {"name", "owner"}; owner is <issuer id>/<subject> for good, or a subject of
// our own tokens.
func (s *Service) ServeCreateApp(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		Name  string `json:"name"`
		Owner string `json:"owner"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	a, err := s.CreateAppFor(r.Context(), in.Name, in.Owner)
	if err != nil {
		return err
	}
	s.record(r, c, a.ID, "app.created", a.Name)
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

// ServeUpdateApp answers PATCH /airlock/v1/apps/{id} {"disabled", "origin", "require_token_app_binding", "allowed_models"};
// what is absent stays.
func (s *Service) ServeUpdateApp(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		Disabled *bool     `json:"disabled"`
		Origin   *string   `json:"origin"`
		Require  *bool     `json:"require_token_app_binding"`
		Models   *[]string `json:"allowed_models"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if in.Disabled == nil && in.Origin == nil && in.Require == nil && in.Models == nil {
		return wire.Invalid("disabled: expected true or false, or another setting of the app.")
	}
	a, err := s.UpdateApp(r.Context(), r.PathValue("id"), AppChange{
		Disabled: in.Disabled, Origin: in.Origin, RequireTokenBinding: in.Require, AllowedModels: in.Models,
	})
	if err != nil {
		return err
	}
	if in.Disabled != nil {
		s.record(r, c, a.ID, map[bool]string{true: "app.disabled", false: "app.enabled"}[*in.Disabled], a.Name)
	}
	var what []string
	if in.Origin != nil {
		what = append(what, "origin="+strconv.Quote(a.Origin))
	}
	if in.Require != nil {
		what = append(what, "require_token_app_binding="+strconv.FormatBool(a.RequireTokenBinding))
	}
	if in.Models != nil {
		what = append(what, fmt.Sprintf("allowed_models=%q", a.AllowedModels))
	}
	if what != nil {
		s.record(r, c, a.ID, "app.changed", a.Name+": "+strings.Join(what, ", "))
	}
	return wire.WriteJSON(w, http.StatusOK, appShape(a))
}

// ServeCreateKey answers POST /airlock/v1/keys {"app", "name", "scopes", "ttl_seconds"}; app is an
// id or a name, "default" when absent. With "role" it makes an admin key, which takes the role admin.
func (s *Service) ServeCreateKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		App        string   `json:"app"`
		Role       string   `json:"role"`
		Name       string   `json:"name"`
		Scopes     []string `json:"scopes"`
		TTLSeconds *int64   `json:"ttl_seconds"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	n := NewKey{App: in.App, Role: in.Role, Name: in.Name, Scopes: in.Scopes}
	if n.App == "" && n.Role == "" {
		n.App = DefaultApp
	}
	if n.Role != "" && c.Role != RoleAdmin {
		return s.audited(r, c, wire.Forbidden("role: admin keys are made with the role admin."))
	}
	if in.TTLSeconds != nil {
		n.TTL = secondsToTTL(*in.TTLSeconds)
	}
	k, secret, err := s.CreateKey(r.Context(), n)
	if err != nil {
		return err
	}
	s.record(r, c, k.AppID, "key.created", k.ID+" "+k.Role)
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

// ServeListKeys answers GET /airlock/v1/keys?app=, or the admin keys with ?admin=true.
func (s *Service) ServeListKeys(w http.ResponseWriter, r *http.Request, _ Caller) error {
	limit, page, err := listParams(r)
	if err != nil {
		return err
	}
	app, admin := "", ""
	if err := queryTexts(r, map[string]*string{"app": &app, "admin": &admin}); err != nil {
		return err
	}
	if admin != "" && (admin != "true" || app != "") {
		return wire.Invalid("admin: expected true and no app, or nothing.")
	}
	list := func() ([]*Key, string, error) { return s.ListKeys(r.Context(), app, limit, page) }
	if admin != "" {
		list = func() ([]*Key, string, error) { return s.ListAdminKeys(r.Context(), limit, page) }
	}
	keys, next, err := list()
	if err != nil {
		return err
	}
	return writePage(w, keys, next, keyShape)
}

// ServeRevokeKey answers DELETE /airlock/v1/keys/{id}.
func (s *Service) ServeRevokeKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	id := r.PathValue("id")
	if strings.HasPrefix(id, keyPrefix) {
		return wire.Invalid("id: send the key itself to /airlock/v1/keys/revoke, not in an address.") // those are written into logs
	}
	return s.revokeKey(w, r, c, id)
}

// ServeRevokeKeyItself answers POST /airlock/v1/keys/revoke {"key"}: the key or its id.
func (s *Service) ServeRevokeKeyItself(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		Key string `json:"key"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if in.Key == "" {
		return wire.Invalid("key: expected a key, or its id.")
	}
	return s.revokeKey(w, r, c, in.Key)
}

func (s *Service) revokeKey(w http.ResponseWriter, r *http.Request, c Caller, idOrSecret string) error {
	k, err := s.RevokeKey(r.Context(), idOrSecret, c.Role == RoleAdmin)
	if err != nil {
		return s.audited(r, c, err)
	}
	s.record(r, c, k.AppID, "key.revoked", k.ID)
	return wire.WriteJSON(w, http.StatusOK, map[string]string{"id": k.ID, "type": "key_revoked"})
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
