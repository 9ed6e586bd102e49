package server

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// serveOpenAPI answers the table as OpenAPI 3.1.
func (s *Server) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ tenant.Caller) error {
	return wire.WriteJSON(w, http.StatusOK, openAPI(s.routes(), s.cfg.Version.Version))
}

var wildcard = regexp.MustCompile(`\{([a-z]+)(\.\.\.)?\}`)

// openAPI describes paths, methods, parameters and credentials. Bodies of the compatible routes are those of the
// published API; ours are in docs.
func openAPI(routes []Route, version string) map[string]any {
	paths := make(map[string]map[string]any)
	for _, r := range routes {
		path := wildcard.ReplaceAllString(r.Pattern, "{$1}")
		if paths[path] == nil {
			paths[path] = make(map[string]any)
		}
		paths[path][strings.ToLower(r.Method)] = operation(r)
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "Airlock", "version": version},
		"paths":   paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{
				"apiKey":      map[string]any{"type": "apiKey", "in": "header", "name": "x-api-key"},
				"bearer":      map[string]any{"type": "http", "scheme": "bearer"},
				"userToken":   map[string]any{"type": "apiKey", "in": "header", "name": "x-auth-token", "description": "A user's token, bare."},
				"appID":       map[string]any{"type": "apiKey", "in": "header", "name": "x-app-id"},
				"appIdentity": map[string]any{"type": "apiKey", "in": "header", "name": "x-app-identity-token"},
				"adminKey":    map[string]any{"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The admin key."},
			},
			"schemas": map[string]any{"Error": errorSchema()},
		},
	}
}

func operation(r Route) map[string]any {
	op := map[string]any{
		"summary":     r.Summary,
		"operationId": operationID(r),
		"responses": map[string]any{
			"2XX": map[string]any{"description": "Success"},
			"default": map[string]any{
				"description": "An error",
				"content": map[string]any{"application/json": map[string]any{
					"schema": map[string]any{"$ref": "#/components/schemas/Error"},
				}},
			},
		},
		"security": security(r.Kind),
	}
	var params []any
	for _, m := range wildcard.FindAllStringSubmatch(r.Pattern, -1) {
		params = append(params, map[string]any{
			"name": m[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"},
		})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.Limit > 0 {
		op["x-airlock-body-limit"] = r.Limit
	}
	return op
}

var notLetter = regexp.MustCompile(`[^a-z0-9]+`)

func operationID(r Route) string {
	return strings.Trim(notLetter.ReplaceAllString(strings.ToLower(r.Method+" "+r.Pattern), "_"), "_")
}

// security lists the credentials of which one is enough.
func security(k tenant.Kind) []any {
	out := []any{} // of KindNone: no credential
	one := func(names ...string) {
		m := map[string]any{}
		for _, n := range names {
			m[n] = []any{}
		}
		out = append(out, m)
	}
	if k&apiKey != 0 {
		one("apiKey")
	}
	if k&tenant.Administration != 0 {
		one("adminKey")
	}
	if k&(tenant.KindUser|tenant.KindGateway|tenant.KindHuman) != 0 {
		one("userToken")
	}
	if k&tenant.KindGateway != 0 {
		one("userToken", "appID", "appIdentity")
	}
	if k != everyone {
		one("bearer")
	}
	return out
}

func errorSchema() map[string]any {
	text := map[string]any{"type": "string"}
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"type": map[string]any{"const": "error"},
			"error": map[string]any{
				"type":       "object",
				"properties": map[string]any{"type": text, "message": text, "details": map[string]any{"type": "object"}},
				"required":   []any{"type", "message"},
			},
			"request_id": text,
		},
		"required": []any{"type", "error", "request_id"},
	}
}
