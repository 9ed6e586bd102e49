package messages

import (
	"net/http"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Create serves POST /v1/messages.
func (s *Service) Create(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	req, err := s.read(r, false)
	if err != nil {
		return err
	}
	return s.create(r.Context(), c, req, newResponse(w, req.Stream()))
}

// response is where the answer of a request goes: one JSON value, or frames
// when stream is not nil.
type response struct {
	stream *wire.Stream
	json   func(v any) error
}

func newResponse(w http.ResponseWriter, streamed bool) response {
	to := response{json: func(v any) error { return wire.WriteJSON(w, http.StatusOK, v) }}
	if streamed {
		to.stream = wire.NewStream(w)
	}
	return to
}

// CountTokens serves POST /v1/messages/count_tokens.
func (s *Service) CountTokens(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	req, err := s.read(r, true)
	if err != nil {
		return err
	}
	answer, err := s.count(r.Context(), c, req)
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, answer)
}

// Models serves GET /v1/models: the list of the first upstream.
func (s *Service) Models(w http.ResponseWriter, r *http.Request, _ tenant.Caller) error {
	answer, err := s.Upstreams.Models(r.Context(), r.URL.RawQuery)
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, answer)
}

// Model serves GET /v1/models/{id}.
func (s *Service) Model(w http.ResponseWriter, r *http.Request, _ tenant.Caller) error {
	answer, err := s.Upstreams.Model(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, answer)
}

// read takes the request in and checks everything that needs no service.
func (s *Service) read(r *http.Request, counting bool) (*request, error) {
	version, err := wire.Version(r.Header)
	if err != nil {
		return nil, err
	}
	body, err := wire.ReadBody(r, wire.MaxJSONBody)
	if err != nil {
		return nil, err
	}
	req, err := parseRequest(body, counting)
	if err != nil {
		return nil, err
	}
	req.betas = upstreamBetas(wire.Betas(r.Header))
	if s.StrictVersion && version == wire.StrictVersion {
		return req, req.checkStrict()
	}
	return req, nil
}
