package file

import (
	"net/http"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Under the gateway's prefix the same routes are for the users of an application.
const (
	// GatewayMaxBytes is the limit of one upload there.
	GatewayMaxBytes = 32 << 20
	// gatewayExpiry is when an upload ends that says nothing about it, in seconds.
	gatewayExpiry = 30 * 24 * 3600
)

// limitFor is the limit of an upload by this caller.
func (s *Service) limitFor(c tenant.Caller) int64 {
	if c.Gateway {
		return min(GatewayMaxBytes, s.maxBytes())
	}
	return s.maxBytes()
}

// expiryFor is when an upload of this caller ends; nil means never.
func expiryFor(c tenant.Caller, asked *int64) *int64 {
	if asked == nil && c.Gateway {
		return new(int64(gatewayExpiry))
	}
	return asked
}

// shapeFor is how answers to this caller look. The gateway's clients send no beta header with files, and page with either kind
// of cursor: they get both.
func shapeFor(r *http.Request, c tenant.Caller) shape {
	sh := shapeOf(wire.Betas(r.Header))
	if c.Gateway {
		sh.legacy, sh.half = false, true
	}
	return sh
}

// shownSince is the expiry up to which this caller's lists leave a file out.
func (s *Service) shownSince(c tenant.Caller) int64 {
	if c.Gateway {
		return s.now().UnixMicro()
	}
	return s.metadataLimit()
}
