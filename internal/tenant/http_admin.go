package tenant

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// The events of refusals.
const (
	eventKey      = "key.refused"
	eventToken    = "token.refused"
	eventIdentity = "identity.refused"
	// EventAccess is what a good credential may not use, or what is not there for it.
	EventAccess = "access.refused"
)

// events are all that the audit has.
var events = []string{
	EventAccess, "app.changed", "app.created", "app.disabled", "app.enabled", "audit.dropped", "identity.refused", "identity.rotated", "identity.shown",
	"issuer.removed", "issuer.set", "key.created", "key.refused", "key.revoked", "limit.removed", "limit.set", "signing.rotated", "token.exchanged",
	"token.minted", "token.refused", "token.revoked", "user.blocked", "user.deleted", "user.unblocked",
}

// auditDenial keeps why a credential was refused.
func (s *Service) auditDenial(r *http.Request, d *denial) {
	s.Audit.Write(r.Context(), audit.Event{Level: audit.Warn, AppID: d.appID, User: d.user, Event: d.event, Detail: d.reason})
}

// audited keeps a refusal and gives the error that is answered.
func (s *Service) audited(r *http.Request, c Caller, err error) error {
	if d, ok := errors.AsType[*denial](err); ok {
		if d.appID == "" && c.AppProven {
			d.appID, d.user = c.AppID, c.who() // a token in the body, of a caller who is known
		}
		s.auditDenial(r, d)
		return d.answer
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		switch e.Type {
		case wire.TypeAuthentication, wire.TypePermission, wire.TypeNotFound:
			s.Audit.Write(r.Context(), audit.Event{
				Level: audit.Warn, AppID: c.AppID, User: c.who(), Event: EventAccess, Detail: r.Pattern + ": " + e.Message,
			})
		default:
		}
	}
	return err
}

// record keeps what was done.
func (s *Service) record(r *http.Request, c Caller, appID, event, detail string) {
	s.Audit.Write(r.Context(), audit.Event{AppID: appID, User: c.who(), Event: event, Detail: detail})
}

// who names a caller in the audit.
func (c Caller) who() string {
	switch {
	case c.Issuer != "":
		return c.Issuer + "/" + c.Subject
	case c.KeyID != "":
		return "key " + c.KeyID
	}
	return ""
}

type issuerJSON struct {
	Type string `json:"type"`
	jwt.Issuer
	// JWKSError is why the keys could not be fetched; only in the answer that adds the issuer.
	JWKSError string `json:"jwks_error,omitempty"`
}

func issuerShape(i jwt.Issuer) issuerJSON { return issuerJSON{Type: "issuer", Issuer: i} }

// ServeListIssuers answers GET /airlock/v1/issuers. There are few: it has one page.
func (s *Service) ServeListIssuers(w http.ResponseWriter, r *http.Request, _ Caller) error {
	all, err := s.ListIssuers(r.Context())
	if err != nil {
		return err
	}
	return writePage(w, all, "", issuerShape)
}

// ServePutIssuer answers POST /airlock/v1/issuers {"id", "issuer", "alg", "key" or "jwks", "audience", "azp_patterns",
// "binds_apps"}: it adds an issuer, or replaces the settings of the one with this id.
func (s *Service) ServePutIssuer(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in jwt.Issuer
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if err := s.PutIssuer(r.Context(), in); err != nil {
		return err
	}
	s.record(r, c, "", "issuer.set", in.ID+" "+in.Issuer)
	out := issuerShape(in)
	out.JWKSError = s.tryKeys(r.Context(), in)
	return wire.WriteJSON(w, http.StatusOK, out)
}

// ServeRemoveIssuer answers DELETE /airlock/v1/issuers/{id}.
func (s *Service) ServeRemoveIssuer(w http.ResponseWriter, r *http.Request, c Caller) error {
	id := r.PathValue("id")
	if err := s.RemoveIssuer(r.Context(), id); err != nil {
		return err
	}
	s.record(r, c, "", "issuer.removed", id)
	return wire.WriteJSON(w, http.StatusOK, map[string]string{"id": id, "type": "issuer_removed"})
}

type userJSON struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// AppID is null for the subject in every app.
	AppID       *string `json:"app_id"`
	User        string  `json:"user"`
	Issuer      string  `json:"issuer"`
	Subject     string  `json:"subject"`
	FirstSeenAt string  `json:"first_seen_at"`
	// LastSeenAt is exact to a day.
	LastSeenAt string  `json:"last_seen_at"`
	BlockedAt  *string `json:"blocked_at"`
	// DeletedAt is when what is the user's was deleted.
	DeletedAt *string `json:"deleted_at"`
}

func userShape(u *User) userJSON {
	j := userJSON{
		ID: u.ID, Type: "user", User: u.Issuer + "/" + u.Subject, Issuer: u.Issuer, Subject: u.Subject,
		FirstSeenAt: wire.FormatTime(u.FirstSeen), LastSeenAt: wire.FormatTime(u.LastSeen), BlockedAt: wire.FormatTimePtr(u.BlockedAt),
		DeletedAt: wire.FormatTimePtr(u.DeletedAt),
	}
	if u.AppID != "" {
		j.AppID = &u.AppID
	}
	return j
}

// ServeListUsers answers GET /airlock/v1/users?app=&user=&blocked=true.
func (s *Service) ServeListUsers(w http.ResponseWriter, r *http.Request, _ Caller) error {
	limit, page, err := listParams(r)
	if err != nil {
		return err
	}
	q := UserQuery{}
	blocked := ""
	if err := queryTexts(r, map[string]*string{"app": &q.App, "user": &q.User, "blocked": &blocked}); err != nil {
		return err
	}
	if blocked != "" && blocked != "true" {
		return wire.Invalid("blocked: expected true, or nothing.")
	}
	q.Blocked = blocked != ""
	users, next, err := s.ListUsers(r.Context(), q, limit, page)
	if err != nil {
		return err
	}
	return writePage(w, users, next, userShape)
}

func queryTexts(r *http.Request, into map[string]*string) error {
	q := r.URL.Query()
	for name, v := range into {
		var err error
		if *v, _, err = wire.QueryOne(q, name); err != nil {
			return err
		}
	}
	return nil
}

// ServeGetUser answers GET /airlock/v1/users/{id}?app=; the id may be <issuer id>/<subject>, escaped as one segment.
func (s *Service) ServeGetUser(w http.ResponseWriter, r *http.Request, _ Caller) error {
	app := ""
	if err := queryTexts(r, map[string]*string{"app": &app}); err != nil {
		return err
	}
	u, err := s.GetUser(r.Context(), r.PathValue("id"), app)
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, userShape(u))
}

// ServeUpdateUser answers PATCH /airlock/v1/users/{id} {"blocked", "app"}.
func (s *Service) ServeUpdateUser(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		Blocked *bool  `json:"blocked"`
		App     string `json:"app"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	if in.Blocked == nil {
		return wire.Invalid("blocked: expected true or false.")
	}
	u, err := s.BlockUser(r.Context(), r.PathValue("id"), in.App, *in.Blocked)
	if err != nil {
		return err
	}
	event := "user.unblocked"
	if *in.Blocked {
		event = "user.blocked"
	}
	s.record(r, c, u.AppID, event, u.Issuer+"/"+u.Subject)
	return wire.WriteJSON(w, http.StatusOK, userShape(u))
}

// ServeDeleteUser answers DELETE /airlock/v1/users/{id}?app=: it blocks a user of an app and deletes what is his alone. Finished is
// false while requests of his still run or something could not be deleted yet: that goes on by itself.
func (s *Service) ServeDeleteUser(w http.ResponseWriter, r *http.Request, c Caller) error {
	app := ""
	if err := queryTexts(r, map[string]*string{"app": &app}); err != nil {
		return err
	}
	u, gone, err := s.DeleteUser(r.Context(), r.PathValue("id"), app)
	if u != nil {
		s.record(r, c, u.AppID, "user.deleted", u.Issuer+"/"+u.Subject)
	}
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, map[string]any{
		"id": u.ID, "type": "user_deleted", "app_id": u.AppID, "user": u.Issuer + "/" + u.Subject,
		"files": gone.Files, "containers": gone.Containers, "finished": gone.Finished,
	})
}

type limitJSON struct {
	Type  string `json:"type"`
	AppID string `json:"app_id"`
	// User is null for the app itself.
	User     *string `json:"user"`
	Messages *int    `json:"messages_in_flight"`
	Requests *int    `json:"requests_per_minute"`
}

func limitShape(l Limit) limitJSON {
	j := limitJSON{Type: "limit", AppID: l.AppID}
	if l.User != "" {
		j.User = &l.User
	}
	if l.Messages > 0 {
		j.Messages = &l.Messages
	}
	if l.Requests > 0 {
		j.Requests = &l.Requests
	}
	return j
}

// ServeListLimits answers GET /airlock/v1/limits?app=.
func (s *Service) ServeListLimits(w http.ResponseWriter, r *http.Request, _ Caller) error {
	limit, page, err := listParams(r)
	if err != nil {
		return err
	}
	app := ""
	if err := queryTexts(r, map[string]*string{"app": &app}); err != nil {
		return err
	}
	all, next, err := s.ListLimits(r.Context(), app, limit, page)
	if err != nil {
		return err
	}
	return writePage(w, all, next, limitShape)
}

// ServeSetLimit answers PUT /airlock/v1/limits {"app", "user", "messages_in_flight", "requests_per_minute"}; what is absent
// is the server's default.
func (s *Service) ServeSetLimit(w http.ResponseWriter, r *http.Request, c Caller) error {
	var in struct {
		App      string `json:"app"`
		User     string `json:"user"`
		Messages *int   `json:"messages_in_flight"`
		Requests *int   `json:"requests_per_minute"`
	}
	if err := wire.ReadJSON(r, bodyLimit, &in); err != nil {
		return err
	}
	l := Limit{User: in.User}
	for _, v := range []struct{ from, into *int }{{in.Messages, &l.Messages}, {in.Requests, &l.Requests}} {
		if v.from == nil {
			continue
		}
		if *v.into = *v.from; *v.into == 0 {
			*v.into = -1 // given, and no limit
		}
	}
	set, err := s.SetLimit(r.Context(), in.App, l)
	if err != nil {
		return err
	}
	s.record(r, c, set.AppID, "limit.set", set.User)
	return wire.WriteJSON(w, http.StatusOK, limitShape(*set))
}

// ServeRemoveLimit answers DELETE /airlock/v1/limits?app=&user=.
func (s *Service) ServeRemoveLimit(w http.ResponseWriter, r *http.Request, c Caller) error {
	var app, user string
	if err := queryTexts(r, map[string]*string{"app": &app, "user": &user}); err != nil {
		return err
	}
	existed, err := s.RemoveLimit(r.Context(), app, user)
	if err != nil {
		return err
	}
	s.record(r, c, "", "limit.removed", app+" "+user)
	return wire.WriteJSON(w, http.StatusOK, map[string]any{"type": "limit_removed", "existed": existed})
}

type auditJSON struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	At        string `json:"at"`
	Level     string `json:"level"`
	AppID     string `json:"app_id"`
	User      string `json:"user"`
	RequestID string `json:"request_id"`
	Event     string `json:"event"`
	Detail    string `json:"detail"`
	// Count is of equal events from at to last_at, at most an hour.
	Count  int64  `json:"count"`
	LastAt string `json:"last_at"`
}

func auditShape(e audit.Entry) auditJSON {
	return auditJSON{
		ID: e.ID, Type: "audit_entry", At: wire.FormatTime(e.At), Level: string(e.Level), AppID: e.AppID, User: e.User,
		RequestID: e.RequestID, Event: e.Event.Event, Detail: e.Detail, Count: e.Count, LastAt: wire.FormatTime(e.LastAt),
	}
}

// ServeAudit answers GET /airlock/v1/audit?app=&user=&event=&request=&since=: everything for an admin, for an API key what concerns
// its app.
func (s *Service) ServeAudit(w http.ResponseWriter, r *http.Request, c Caller) error {
	limit, page, err := listParams(r)
	if err != nil {
		return err
	}
	q := audit.Query{Limit: limit, Page: page}
	app, since := "", ""
	if err := queryTexts(r, map[string]*string{"app": &app, "user": &q.User, "event": &q.Event, "request": &q.RequestID, "since": &since}); err != nil {
		return err
	}
	if q.Event != "" && !slices.Contains(events, q.Event) {
		return wire.Invalid("event: there is no event %q; there are %s.", q.Event, strings.Join(events, ", "))
	}
	if q.RequestID != "" && !strings.HasPrefix(q.RequestID, "req_") {
		return wire.Invalid("request: expected the id of a request, as answers have it: req_….")
	}
	if since != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			return wire.Invalid("since: expected a time like 2026-01-31T12:00:00Z.")
		}
	}
	if q.AppID, err = s.auditedApp(r, c, app); err != nil {
		return err
	}
	entries, next, err := s.Audit.List(r.Context(), q)
	if err != nil {
		return err
	}
	return writePage(w, entries, next, auditShape)
}

// auditedApp is the app whose entries a caller asks for; "" is all.
func (s *Service) auditedApp(r *http.Request, c Caller, app string) (string, error) {
	if !c.Admin && c.AppID == "" {
		return "", wire.NotFound() // without an app the filter would be none
	}
	if app == "" {
		return c.AppID, nil
	}
	a, err := s.GetApp(r.Context(), app)
	if err != nil {
		return "", err
	}
	if !c.Admin && a.ID != c.AppID {
		return "", noApp()
	}
	return a.ID, nil
}
