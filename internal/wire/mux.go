package wire

import (
	"log/slog"
	"net/http"
	"path"
	"strings"
)

// Mux is an http.ServeMux whose own answers have our shape: 404 for an unknown path, 405 with Allow for
// a known path with another method. A path that is not in its shortest form, or that would need a slash at its end,
// is unknown, where ServeMux would redirect it, possibly to another route than a proxy in front has checked.
type Mux struct {
	// Log is given to Handler; nil means slog.Default().
	Log *slog.Logger
	mux http.ServeMux
}

// registered tells our handlers from those that ServeMux answers with itself.
type registered struct{ http.Handler }

// Handle registers h for a pattern of http.ServeMux.
func (m *Mux) Handle(pattern string, h http.Handler) { m.mux.Handle(pattern, registered{h}) }

// ServeHTTP serves the matching handler or the error body.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, _ := m.mux.Handler(r)
	if _, ours := h.(registered); ours && cleanPath(r.URL.Path) {
		m.mux.ServeHTTP(w, r) // again through the mux, which sets the path values
		return
	}
	allow := ""
	if cleanPath(r.URL.Path) {
		allow = allowed(h, r)
	}
	Handler(m.Log, func(w http.ResponseWriter, r *http.Request) error {
		if allow == "" {
			return &Error{Type: TypeNotFound, Message: "There is nothing at this path."}
		}
		w.Header().Set("Allow", allow)
		e := Invalid("%s is not allowed here; allowed: %s.", methodName(r.Method), allow)
		e.Status = http.StatusMethodNotAllowed
		return e
	}).ServeHTTP(w, r)
}

// cleanPath tells paths that ServeMux would serve as they are.
func cleanPath(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean == p
}

// allowed asks the mux's own answer to r which methods the path has; "" for none.
func allowed(h http.Handler, r *http.Request) string {
	rec := &headerRecorder{header: http.Header{}}
	h.ServeHTTP(rec, r)
	if rec.status != http.StatusMethodNotAllowed {
		return ""
	}
	return rec.header.Get("Allow")
}

// headerRecorder keeps the status and headers of an answer and drops its body.
type headerRecorder struct {
	header http.Header
	status int
}

func (h *headerRecorder) Header() http.Header         { return h.header }
func (h *headerRecorder) WriteHeader(s int)           { h.status = s }
func (h *headerRecorder) Write(b []byte) (int, error) { return len(b), nil }

func methodName(m string) string {
	if len(m) > 16 {
		return "This method"
	}
	return m
}
