package wire

import (
	"log/slog"
	"net/http"
)

// Mux is an http.ServeMux whose own answers (404, 405) have our shape.
type Mux struct {
	// Log is given to Handler; nil means slog.Default().
	Log *slog.Logger
	mux http.ServeMux
}

// Handle registers h for a pattern of http.ServeMux.
func (m *Mux) Handle(pattern string, h http.Handler) { m.mux.Handle(pattern, h) }

// ServeHTTP serves the matching handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }
