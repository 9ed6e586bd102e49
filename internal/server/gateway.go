package server

import (
	"net/http"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// gatewayPrefix is where the users of applications speak for themselves, with the same handlers as /v1. What differs for
// them goes by Caller.Gateway.
const gatewayPrefix = "/api/proxy/anthropic/v1"

// gatewayRoutes are the routes under the prefix. Batches and skills are not among them.
func (s *Server) gatewayRoutes() []Route {
	m, f := s.parts.messages, s.parts.files
	const files = gatewayPrefix + "/files"
	return []Route{
		{"POST", gatewayPrefix + "/messages", gateway, jsonBody, true, writesSome, "Create a message for a user", m.Create},
		{"POST", gatewayPrefix + "/messages/count_tokens", gateway, jsonBody, false, writesNothing, "Count the tokens of a user's message", m.CountTokens},
		{"POST", files, gateway, file.GatewayMaxBytes + formExtra, false, writesBulk, "Upload a user's file", proven(f.ServeUpload)},
		{"GET", files, gateway, noBody, false, writesNothing, "List the files a user may use", proven(f.ServeList)},
		{"GET", files + "/{id}", gateway, noBody, false, writesNothing, "Get the metadata of a user's file", proven(f.ServeGet)},
		{"GET", files + "/{id}/content", gateway, noBody, false, writesNothing, "Download a user's file", proven(f.ServeDownload)},
		{"DELETE", files + "/{id}", gateway, noBody, false, writesNothing, "Delete a user's file", proven(f.ServeDelete)},
	}
}

// proven lets in only who proved an app. Of messages package messages asks it, which sees what they touch.
func proven(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
		if err := c.RequireApp(); err != nil {
			return err
		}
		return h(w, r, c)
	}
}

// workOf is what a request on the route is for the limits.
func workOf(route Route) tenant.Work {
	if strings.HasSuffix(route.Pattern, "/v1/messages") {
		return tenant.WorkMessage
	}
	return tenant.WorkRequest
}

// noteMiss counts and writes down that somebody asked for what is not there for him. For which of the reasons, nobody is told;
// what has expired of his own is no miss. Names of files in a container are not written down.
func (s *Server) noteMiss(r *http.Request, c tenant.Caller, err error) {
	if err == nil || c.Admin {
		return
	}
	e := wire.AsError(err)
	if e.Type != wire.TypeNotFound || e.Code != "" || e.Message != wire.NotFound().Message {
		return
	}
	s.parts.tenants.Miss(c)
	s.parts.audit.Write(r.Context(), audit.Event{
		Level: audit.Warn, AppID: c.AppID, User: c.UserID, Event: tenant.EventAccess, Detail: strings.TrimSpace(r.Pattern + " " + r.PathValue("id")),
	})
}
