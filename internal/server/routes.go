package server

import (
	"net/http"

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
	admin      = tenant.KindAdmin
	metricsURL = "/metrics"
)

// routes is every path of the server. Nothing is served that is not listed here; a golden test prints it.
func (s *Server) routes() []Route {
	m, f, t, c := s.parts.messages, s.parts.files, s.parts.tenants, s.parts.containers
	file := s.cfg.File.MaxBytes
	const box = "/airlock/v1/containers/{id}"
	return []Route{
		{"POST", "/v1/messages", apiKey, jsonBody, true, writesSome, "Create a message", m.Create},
		{"POST", "/v1/messages/count_tokens", apiKey, jsonBody, false, writesNothing, "Count the tokens of a message", m.CountTokens},
		{"GET", "/v1/models", apiKey, noBody, false, writesNothing, "List models", m.Models},
		{"GET", "/v1/models/{id}", apiKey, noBody, false, writesNothing, "Get a model", m.Model},

		{"POST", "/v1/files", apiKey, file + formExtra, false, writesBulk, "Upload a file", f.ServeUpload},
		{"GET", "/v1/files", apiKey, noBody, false, writesNothing, "List files", f.ServeList},
		{"GET", "/v1/files/{id}", apiKey, noBody, false, writesNothing, "Get the metadata of a file", f.ServeGet},
		{"GET", "/v1/files/{id}/content", apiKey, noBody, false, writesNothing, "Download a file", f.ServeDownload},
		{"DELETE", "/v1/files/{id}", apiKey, noBody, false, writesNothing, "Delete a file", f.ServeDelete},

		{"POST", "/airlock/v1/containers", apiKey, smallBody, true, writesBulk, "Create a container", c.ServeCreate},
		{"GET", "/airlock/v1/containers", apiKey, noBody, false, writesNothing, "List containers", c.ServeList},
		{"GET", box, apiKey, noBody, false, writesNothing, "Get a container", c.ServeGet},
		{"DELETE", box, apiKey, noBody, false, writesNothing, "Delete a container", c.ServeDelete},
		{"POST", box + "/fork", apiKey, noBody, true, writesBulk, "Create a container with a copy of another's files", c.ServeFork},
		{"POST", box + "/exec", apiKey, jsonBody, true, writesSome, "Run a command in a container", c.ServeExec},
		{"GET", box + "/files/{path...}", apiKey, noBody, true, writesNothing, "Read a file of a container, or list a folder", c.ServeGetFile},
		{"PUT", box + "/files/{path...}", apiKey, file, true, writesSome, "Write a file of a container", c.ServePutFile},
		{"DELETE", box + "/files/{path...}", apiKey, noBody, true, writesNothing, "Delete a file of a container", c.ServeDeleteFile},

		{"POST", "/airlock/v1/apps", admin, smallBody, false, writesSome, "Create an app", t.ServeCreateApp},
		{"GET", "/airlock/v1/apps", admin, noBody, false, writesNothing, "List apps", t.ServeListApps},
		{"GET", "/airlock/v1/apps/{id}", admin, noBody, false, writesNothing, "Get an app", t.ServeGetApp},
		{"PATCH", "/airlock/v1/apps/{id}", admin, smallBody, false, writesNothing, "Disable or enable an app", t.ServeUpdateApp},
		{"POST", "/airlock/v1/keys", admin, smallBody, false, writesSome, "Create an API key", t.ServeCreateKey},
		{"GET", "/airlock/v1/keys", admin, noBody, false, writesNothing, "List API keys", t.ServeListKeys},
		{"DELETE", "/airlock/v1/keys/{id}", admin, noBody, false, writesNothing, "Revoke an API key", t.ServeRevokeKey},

		{"GET", "/healthz", everyone, noBody, false, writesNothing, "Is the process alive", s.serveHealth},
		{"GET", "/readyz", everyone, noBody, false, writesNothing, "May this server be sent new requests", s.serveReady},
		{"GET", "/version", everyone, noBody, false, writesNothing, "Which build and which instance this is", s.serveVersion},
		{"GET", "/airlock/openapi.json", everyone, noBody, false, writesNothing, "This table as OpenAPI", s.serveOpenAPI},
		{"GET", metricsURL, everyone, noBody, false, writesNothing, "Prometheus metrics", s.serveMetrics},
	}
}

// onAdmin reports whether a route answers on the admin address only.
func (r *Route) onAdmin() bool { return r.Kind == admin || r.Pattern == metricsURL }

// onBoth reports whether a route answers on every address.
func (r *Route) onBoth() bool { return r.Kind == everyone && r.Pattern != metricsURL }

func kindName(k tenant.Kind) string {
	switch k {
	case apiKey:
		return "api key"
	case admin:
		return "admin key"
	case everyone:
		return "none"
	}
	return "unknown"
}
