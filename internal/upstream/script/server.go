package script

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"sync"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// maxCounted bounds the scripts whose errors are counted, because their hashes
// come from clients.
const maxCounted = 1024

// Server answers as the scripted model. The zero value is ready; it is safe for
// concurrent use.
type Server struct {
	mu      sync.Mutex
	counts  map[[32]byte]int
	counted []([32]byte)
}

// ServeHTTP serves /v1/messages, count_tokens and models.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", s.count)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /v1/models/{id}", s.model)
	mux.ServeHTTP(w, r)
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	req := readRequest(w, r)
	if req == nil {
		return
	}
	a, f := s.answer(req)
	if f != nil {
		send(w, f.status, f.body())
		return
	}
	if req.Stream() {
		stream(r.Context(), w, a)
		return
	}
	var sum claude.Accumulator
	if err := a.emit(r.Context(), sum.Add); err != nil {
		return // the client is gone
	}
	if a.mid != nil {
		send(w, a.mid.status, a.mid.body())
		return
	}
	send(w, http.StatusOK, sum.Message())
}

func readRequest(w http.ResponseWriter, r *http.Request) *claude.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil // the client is gone
	}
	req, err := claude.ParseRequest(body)
	if err != nil {
		send(w, http.StatusBadRequest, (&fault{status: http.StatusBadRequest, message: err.Error()}).body())
		return nil
	}
	return req
}

// answer finds the turn of the script that is due. A fault is what the request
// fails with.
func (s *Server) answer(req *claude.Request) (*answer, *fault) {
	refuse := func(err error) *fault {
		return &fault{status: http.StatusBadRequest, message: "scripted model: " + err.Error() + "."}
	}
	text, results := find(req.Messages())
	p, err := parse(text)
	if err != nil {
		return nil, refuse(err)
	}
	// The whole script is checked before its first action runs.
	for _, t := range p.turns {
		if _, err := compose(req, t); err != nil {
			return nil, refuse(err)
		}
	}
	t, err := p.next(results)
	if err != nil {
		return nil, refuse(err)
	}
	a, err := compose(req, t)
	if err != nil {
		return nil, refuse(err)
	}
	for _, f := range t.faults {
		if !s.due(text, f) {
			continue
		}
		if !f.mid {
			return nil, &f
		}
		a.mid = &f
		break
	}
	return a, nil
}

// due counts a fault and reports whether it strikes this time.
func (s *Server) due(text string, f fault) bool {
	if f.times == 0 {
		return true
	}
	key := sha256.Sum256([]byte(text + "\x00" + string(rune(f.ordinal))))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[[32]byte]int{}
	}
	if _, ok := s.counts[key]; !ok {
		s.counted = append(s.counted, key)
		if len(s.counted) > maxCounted {
			delete(s.counts, s.counted[0])
			s.counted = s.counted[1:]
		}
	}
	s.counts[key]++
	return s.counts[key] <= f.times
}

func stream(ctx context.Context, w http.ResponseWriter, a *answer) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	// An error means that the client is gone, and there is nobody to tell.
	_ = a.emit(ctx, func(e *claude.Node) error {
		if _, err := io.WriteString(w, "event: "+e.Type()+"\ndata: "+e.Text()+"\n\n"); err != nil {
			return err
		}
		return rc.Flush()
	})
}

func (s *Server) count(w http.ResponseWriter, r *http.Request) {
	req := readRequest(w, r)
	if req == nil {
		return
	}
	send(w, http.StatusOK, claude.NewObject("input_tokens", tokens(inputBytes(req.Root))))
}

func describe(id string) *claude.Node {
	return claude.NewObject("type", "model", "id", id, "display_name", "Scripted model", "created_at", "2026-01-01T00:00:00Z")
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	send(w, http.StatusOK, claude.NewObject("data", claude.NewArray(describe("script")), "has_more", false, "first_id", "script", "last_id", "script"))
}

// model knows every name, because the scripted model answers to every name.
func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	send(w, http.StatusOK, describe(r.PathValue("id")))
}

func send(w http.ResponseWriter, status int, body *claude.Node) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // an error means that the client is gone
}

// body is the error body; it serves as the error event of a stream too.
func (f *fault) body() *claude.Node {
	kind := "api_error"
	switch f.status {
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case http.StatusGatewayTimeout:
		kind = "timeout_error"
	case 529:
		kind = "overloaded_error"
	default:
		if f.status < 500 {
			kind = "invalid_request_error"
		}
	}
	message := f.message
	if message == "" {
		message = "scripted error"
	}
	return claude.NewObject("type", "error", "error", claude.NewObject("type", kind, "message", message))
}
