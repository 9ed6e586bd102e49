package server

import (
	"net/http"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Route is one line of the table.
type Route struct {
	Method  string
	Pattern string
	Kind    tenant.Kind // whose credential it takes; KindNone = everybody
	Limit   int64       // of the body; 0 = no body is read
	Turn    bool        // runs code or a model: refused while draining, waited for
	Writes  writes
	Summary string
	Handler handler
}

// handler is the form of every route of a noun.
type handler func(w http.ResponseWriter, r *http.Request, c tenant.Caller) error

// writes says when a filling disk refuses a route.
type writes string

const (
	writesNothing writes = ""     // reads and deletes: never
	writesSome    writes = "some" // from 95 % on
	writesBulk    writes = "bulk" // from 85 % on
)

const (
	noBody     = 0
	smallBody  = 1 << 20
	jsonBody   = wire.MaxJSONBody
	formExtra  = 1 << 20 // what a form adds to the file in it
	everyone   = tenant.KindNone
	apiKey     = tenant.KindAPIKey
	either     = tenant.KindAPIKey | tenant.KindUser
	admin      = tenant.KindAdmin
	operator   = tenant.KindAdmin | tenant.KindOperator
	auditor    = tenant.Administration
	gateway    = tenant.KindGateway
	person     = tenant.KindHuman
	metricsURL = "/metrics"
)

// routes is every path of the server. Nothing is served that is not listed here; a golden test prints it.
func (s *Server) routes() []Route {
	m, f, t, c, d := s.parts.messages, s.parts.files, s.parts.tenants, s.parts.containers, s.parts.direct
	file := s.cfg.File.MaxBytes
	const box, app = "/airlock/v1/containers/{id}", "/airlock/v1/apps/{id}"
	return append([]Route{
		{"POST", "/v1/messages", either, jsonBody, true, writesSome, "Create a message", m.Create},
		{"POST", "/v1/messages/count_tokens", either, jsonBody, false, writesNothing, "Count the tokens of a message", m.CountTokens},
		{"GET", "/v1/models", either, noBody, false, writesNothing, "List models", m.Models},
		{"GET", "/v1/models/{id}", either, noBody, false, writesNothing, "Get a model", m.Model},

		{"POST", "/v1/files", either, file + formExtra, false, writesBulk, "Upload a file", f.ServeUpload},
		{"GET", "/v1/files", either, noBody, false, writesNothing, "List files", f.ServeList},
		{"GET", "/v1/files/{id}", either, noBody, false, writesNothing, "Get the metadata of a file", f.ServeGet},
		{"GET", "/v1/files/{id}/content", either, noBody, false, writesNothing, "Download a file", f.ServeDownload},
		{"DELETE", "/v1/files/{id}", either, noBody, false, writesNothing, "Delete a file", f.ServeDelete},

		{"POST", "/airlock/v1/containers", either, smallBody, true, writesBulk, "Create a container", c.ServeCreate},
		{"GET", "/airlock/v1/containers", either, noBody, false, writesNothing, "List containers", c.ServeList},
		{"GET", box, either, noBody, false, writesNothing, "Get a container", c.ServeGet},
		{"DELETE", box, either, noBody, false, writesNothing, "Delete a container", c.ServeDelete},
		{"POST", box + "/fork", either, noBody, true, writesBulk, "Create a container with a copy of another's files", c.ServeFork},
		{"POST", box + "/exec", either, jsonBody, true, writesSome, "Run a command in a container", d.ServeExec},
		{"GET", box + "/files/{path...}", either, noBody, true, writesNothing, "Read a file of a container, or list a folder", d.ServeGetFile},
		{"PUT", box + "/files/{path...}", either, file, true, writesSome, "Write a file of a container", d.ServePutFile},
		{"DELETE", box + "/files/{path...}", either, noBody, true, writesNothing, "Delete a file of a container", d.ServeDeleteFile},

		{"POST", "/airlock/v1/apps", operator, smallBody, false, writesSome, "Create an app", t.ServeCreateApp},
		{"GET", "/airlock/v1/apps", auditor, noBody, false, writesNothing, "List apps", t.ServeListApps},
		{"GET", app, auditor, noBody, false, writesNothing, "Get an app", t.ServeGetApp},
		{"PATCH", app, operator, smallBody, false, writesNothing, "Change an app, disable or enable it", t.ServeUpdateApp},
		{"GET", app + "/env", operator, noBody, false, writesSome, "Get what an application proves itself with", t.ServeAppEnv},
		{"POST", app + "/rotate-identity", operator, smallBody, false, writesSome, "Make a new identity token of an app", t.ServeRotateIdentity},
		{"POST", "/airlock/v1/keys", operator, smallBody, false, writesSome, "Create an API key", t.ServeCreateKey},
		{"GET", "/airlock/v1/keys", auditor, noBody, false, writesNothing, "List keys", t.ServeListKeys},
		{"DELETE", "/airlock/v1/keys/{id}", operator, noBody, false, writesNothing, "Revoke a key", t.ServeRevokeKey},
		{"POST", "/airlock/v1/keys/revoke", operator, smallBody, false, writesNothing, "Revoke a key, given itself or its id", t.ServeRevokeKeyItself},
		{"POST", "/airlock/v1/keys/signing/rotate", admin, smallBody, false, writesSome, "Make a new key for signing tokens", t.ServeRotateSigning},
		{"POST", "/airlock/v1/tokens", apiKey | operator, smallBody, false, writesSome, "Make a token of a user or of an app's owner", t.ServeMintToken},
		{"POST", "/airlock/v1/tokens/exchange", gateway | apiKey | operator, smallBody, false, writesSome, "Turn another issuer's token into one of ours", t.ServeExchangeToken},
		{"POST", "/airlock/v1/tokens/revoke", operator, smallBody, false, writesNothing, "Revoke a token", t.ServeRevokeToken},
		{"GET", "/airlock/v1/issuers", auditor, noBody, false, writesNothing, "List the issuers of tokens", t.ServeListIssuers},
		{"POST", "/airlock/v1/issuers", admin, smallBody, false, writesSome, "Add an issuer, or change one", t.ServePutIssuer},
		{"DELETE", "/airlock/v1/issuers/{id}", admin, noBody, false, writesNothing, "Remove an issuer", t.ServeRemoveIssuer},
		{"GET", "/airlock/v1/users", auditor, noBody, false, writesNothing, "List users", t.ServeListUsers},
		{"GET", "/airlock/v1/users/{id}", auditor, noBody, false, writesNothing, "Get a user", t.ServeGetUser},
		{"PATCH", "/airlock/v1/users/{id}", operator, smallBody, false, writesNothing, "Block or unblock a user", t.ServeUpdateUser},
		{"DELETE", "/airlock/v1/users/{id}", operator, noBody, false, writesNothing, "Block a user of an app and delete what is the user's alone", t.ServeDeleteUser},
		{"GET", "/airlock/v1/limits", auditor, noBody, false, writesNothing, "List the limits that are set", t.ServeListLimits},
		{"PUT", "/airlock/v1/limits", operator, smallBody, false, writesSome, "Set the limits of an app or of a user in it", t.ServeSetLimit},
		{"DELETE", "/airlock/v1/limits", operator, noBody, false, writesNothing, "Remove such limits", t.ServeRemoveLimit},
		{"GET", "/airlock/v1/audit", apiKey | auditor, noBody, false, writesNothing, "List what was refused and changed", t.ServeAudit},

		{"GET", "/.well-known/jwks.json", everyone, noBody, false, writesNothing, "Our public keys", t.ServeJWKS},
		{"GET", "/api/auth/jwks", everyone, noBody, false, writesNothing, "Our public keys, and the one that signs as PEM", t.ServeAuthJWKS},
		{"POST", "/api/auth/mint-app-token", person, smallBody, false, writesSome, "Make an app's owner token", t.ServeMintAppToken},
		{"POST", "/api/apps/{id}/identity-token", person, smallBody, false, writesSome, "Get an app's identity token", t.ServeIdentityToken},

		{"GET", "/healthz", everyone, noBody, false, writesNothing, "Is the process alive", s.serveHealth},
		{"GET", "/readyz", everyone, noBody, false, writesNothing, "May this server be sent new requests", s.serveReady},
		{"GET", "/version", everyone, noBody, false, writesNothing, "Which build and which instance this is", s.serveVersion},
		{"GET", "/airlock/openapi.json", everyone, noBody, false, writesNothing, "This table as OpenAPI", s.serveOpenAPI},
		{"GET", metricsURL, everyone, noBody, false, writesNothing, "Prometheus metrics", s.serveMetrics},
	}, s.gatewayRoutes()...)
}

// onAdmin reports whether a route answers on the admin address only.
func (r *Route) onAdmin() bool {
	return (r.Kind != everyone && r.Kind&^tenant.Administration == 0) || r.Pattern == metricsURL
}

// mixed reports whether a route takes admin keys and others.
func (r *Route) mixed() bool {
	return r.Kind&tenant.Administration != 0 && r.Kind&^tenant.Administration != 0
}

// onBoth reports whether a route answers on every address.
func (r *Route) onBoth() bool { return r.Kind == everyone && r.Pattern != metricsURL }

// kindNames say each kind; of the roles of an admin key the least one that will do stands for all.
var kindNames = []struct {
	kind tenant.Kind
	name string
}{
	{tenant.KindAPIKey, "api key"},
	{tenant.KindUser, "user"},
	{tenant.KindGateway, "gateway"},
	{tenant.KindHuman, "person"},
	{tenant.KindAuditor, "auditor"},
	{tenant.KindOperator, "operator"},
	{tenant.KindAdmin, "admin key"},
}

func kindName(k tenant.Kind) string {
	if k == everyone {
		return "none"
	}
	var names []string
	for _, n := range kindNames {
		if k&n.kind == 0 {
			continue
		}
		names = append(names, n.name)
		if tenant.Administration&n.kind != 0 {
			break
		}
	}
	return strings.Join(names, "|")
}
