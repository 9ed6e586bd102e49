package server

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// serve surrounds a route. The order is fixed, from the outside in: metrics; request id, recovery, log line and error
// body (wire.Handler); proxy rule; drain gate; body limit; version and betas; authentication; declared length; disk;
// limits; list of running requests; handler.
func (s *Server) serve(route Route) http.Handler {
	return s.metrics.measure(route.Method+" "+route.Pattern, wire.Handler(s.log, func(w http.ResponseWriter, r *http.Request) error {
		if err := s.fromProxy(r); err != nil {
			return err
		}
		if route.Turn {
			if !s.gate.enter() {
				return wire.Overloaded(5*time.Second, "The server is shutting down; send the request again.").WithCode("draining")
			}
			defer s.gate.leave()
		}
		r.Body = limitBody(r.Body, route.Limit)
		if err := s.checkVersion(r); err != nil {
			return err
		}
		caller, err := s.authenticate(r, route.Kind)
		if err != nil {
			return err
		}
		if r.ContentLength > route.Limit && route.Limit != noBody {
			return tooLarge(route.Limit)
		}
		if err := s.checkDisk(r.Context(), route.Writes); err != nil {
			return err
		}
		if route.Kind == everyone {
			return route.Handler(w, r, caller)
		}
		release, told, err := s.parts.tenants.Admit(r.Context(), caller, workOf(route))
		defer release()
		maps.Copy(w.Header(), told)
		if err != nil {
			return err
		}
		r, leave := s.flights.enter(r, caller)
		defer leave()
		err = ended(r, route.Handler(w, r, caller))
		s.noteMiss(r, caller, err)
		return err
	}))
}

func (s *Server) authenticate(r *http.Request, kind tenant.Kind) (tenant.Caller, error) {
	if kind == tenant.KindNone {
		return tenant.Caller{}, nil
	}
	return s.parts.tenants.Authenticate(r, kind)
}

func (s *Server) checkDisk(ctx context.Context, w writes) error {
	switch w {
	case writesBulk:
		return s.parts.guard.admitNew(ctx)
	case writesSome:
		return s.parts.guard.admitWrite(ctx)
	case writesNothing:
	}
	return nil
}

// fromProxy lets only the configured proxy and this machine in, when TLS ends at a proxy: anybody else would send keys
// in the clear.
func (s *Server) fromProxy(r *http.Request) error {
	if s.cfg.TLS.BehindProxy == "" {
		return nil
	}
	network, err := netip.ParsePrefix(s.cfg.TLS.BehindProxy)
	if err != nil {
		return wire.Internal(err)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return wire.Internal(err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return wire.Internal(err)
	}
	if ip = ip.Unmap().WithZone(""); ip.IsLoopback() || network.Contains(ip) {
		return nil
	}
	return wire.Forbidden("This server is reached through its proxy only.")
}

// checkVersion applies to the compatible routes only. Under the gateway's prefix clients send neither version nor beta with
// files; what they send of betas must have the form of one.
func (s *Server) checkVersion(r *http.Request) error {
	if strings.HasPrefix(r.URL.Path, gatewayPrefix) {
		return wire.CheckBetas(r.Header, nil)
	}
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		return nil
	}
	if _, err := wire.Version(r.Header); err != nil {
		return err
	}
	if s.cfg.StrictBetas {
		return wire.CheckBetas(r.Header, knownBetas)
	}
	return wire.CheckBetas(r.Header, nil)
}

// knownBetas matters with strict_betas only.
var knownBetas = set(
	"code-execution-2025-05-22", "code-execution-2025-08-25", "code-execution-web-tools-2026-02-09",
	"advanced-tool-use-2025-11-20", "skills-2025-10-02", "files-api-2025-04-14", "structured-outputs-2025-11-13",
	"fine-grained-tool-streaming-2025-05-14", "interleaved-thinking-2025-05-14", "context-management-2025-06-27",
	"managed-agents-2026-04-01", "message-threads-2026-08-12", "message-batches-2024-09-24", "token-counting-2024-11-01",
	"prompt-caching-2024-07-31", "pdfs-2024-09-25", "extended-cache-ttl-2025-04-11",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// limitBody makes reading beyond the limit a 413, for bodies that declare no length.
func limitBody(body io.ReadCloser, limit int64) io.ReadCloser {
	if body == nil || body == http.NoBody {
		return body
	}
	return &limitedBody{body, limit, limit}
}

type limitedBody struct {
	io.ReadCloser
	left, limit int64
}

func (l *limitedBody) Read(p []byte) (int, error) {
	// One byte more than allowed is asked for, so that a body of exactly the limit passes.
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	if int64(n) > l.left {
		return int(l.left), tooLarge(l.limit)
	}
	l.left -= int64(n)
	return n, err
}

func tooLarge(limit int64) error {
	return wire.TooLarge("The request body is larger than the limit of %s (%d bytes).", wire.FormatSize(limit), limit)
}
