package upstream

import (
	"path"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// noUpstream names the settings, because this is the first thing a new operator
// meets.
const noUpstream = "This server has no upstream model. The operator sets ANTHROPIC_API_KEY (or AIRLOCK_UPSTREAM_KEY with upstream: anthropic), " +
	"or --upstream, AIRLOCK_UPSTREAM or `upstream` in the configuration file to anthropic, script or the base URL of a server of POST /v1/messages."

// For returns the first upstream that serves the model. The error is meant for
// the client.
func (s *Set) For(model string) (*Endpoint, error) {
	if err := s.any(); err != nil {
		return nil, err
	}
	for _, e := range s.Endpoints {
		if e.serves(model) {
			return e, nil
		}
	}
	return nil, &wire.Error{Type: wire.TypeNotFound, Message: "model: no upstream of this server serves the model that was asked for."}
}

func (s *Set) any() error {
	if s == nil || len(s.Endpoints) == 0 {
		e := wire.Invalid("%s", noUpstream)
		e.NoRetry = true
		return e
	}
	return nil
}

func (e *Endpoint) serves(model string) bool {
	if len(e.models) == 0 {
		return true
	}
	for _, p := range e.models {
		if ok, err := path.Match(p, model); err == nil && ok {
			return true
		}
	}
	return false
}
