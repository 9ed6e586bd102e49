package server

import (
	"context"
	"net/http"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type status struct {
	Status string `json:"status"`
}

// serveHealth says that the process answers.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request, _ tenant.Caller) error {
	return wire.WriteJSON(w, http.StatusOK, status{"ok"})
}

// readyTimeout bounds the look at the stores: a load balancer that waits is worse served than by a no.
const readyTimeout = 2 * time.Second

// serveReady says whether this server should get new requests: it is not draining, and its stores answer.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request, _ tenant.Caller) error {
	if s.gate.shut() {
		return wire.WriteJSON(w, http.StatusServiceUnavailable, status{"draining"})
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	for name, ping := range map[string]func(context.Context) error{"database": s.parts.db.Ping, "blobs": s.parts.blobs.Ping} {
		if err := ping(ctx); err != nil {
			s.log.WarnContext(ctx, "not ready", "part", name, "error", err)
			return wire.WriteJSON(w, http.StatusServiceUnavailable, status{name + " unreachable"})
		}
	}
	return wire.WriteJSON(w, http.StatusOK, status{"ok"})
}

// serveVersion says which build this is, which data folder it serves (the address of a server may change, its instance id
// does not), and what stands between tenants.
func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request, _ tenant.Caller) error {
	return wire.WriteJSON(w, http.StatusOK, struct {
		wire.Build
		Instance string `json:"instance"`
		Driver   string `json:"sandbox_driver"`
		Shared   bool   `json:"shared_kernel"`
	}{s.cfg.Version, s.parts.data.instance, s.parts.caps.Driver, !s.parts.caps.Kernel})
}
