package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Server is one instance on one data folder.
type Server struct {
	cfg     Config
	log     *slog.Logger
	parts   *parts
	metrics *serverMetrics
	gate    gate
	flights flights

	url, adminURL string
	adminListener net.Listener // nil = admin routes are on the API's listener

	cut     chan struct{}
	cutOnce sync.Once
	closed  sync.Once
	sweeps  sweeper
}

// ErrShutdown is the cause with which turns end that are still running when the grace is over.
var ErrShutdown = errors.New("the server is shutting down")

// ErrNoSandbox is returned by Open when no sandbox can be made on this host, or not by this user.
var ErrNoSandbox = errors.New("this host cannot run sandboxes")

// Open prepares everything and starts nothing that listens. It refuses set-ups that settings or host make unsafe. Call
// Close at the end, also when Serve was never called.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log := newLog(&cfg)
	cfg.Version = wire.NewBuild(cfg.Version.Version, cfg.Version.Commit, cfg.Version.Date)
	p, err := build(ctx, &cfg, log)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: log, parts: p, cut: make(chan struct{}),
		metrics: newMetrics(p.containers.LiveCount),
	}
	s.metrics.watchRoom(p.containers.Admission, p.guard)
	s.metrics.showDriver(p.caps)
	s.metrics.watchAccounts(p.containers, p.usage)
	p.tenants.PublicURL = func() string { return cmp.Or(s.cfg.Identity.PublicURL, s.url) }
	p.tenants.Erase = s.erase
	p.audit.Start(ctx)
	p.containers.Start(ctx)
	p.pool.Start(ctx)
	s.sweeps.start(ctx, log, p.files.Sweep, p.tenants.Sweep, p.audit.Sweep)
	return s, nil
}

// Listen opens the listeners of the configuration and says in the data folder where they are. It returns the API's.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.url = s.base(l.Addr())
	s.adminURL = s.url
	if address := s.cfg.adminAddress(); address != "" {
		if s.adminListener, err = lc.Listen(ctx, "tcp", address); err != nil {
			return nil, errors.Join(fmt.Errorf("listen for admin routes: %w", err), l.Close())
		}
		s.adminURL = s.base(s.adminListener.Addr())
	}
	if err := s.parts.data.announce(s.url, s.adminURL); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// base is the URL under which this machine reaches an address.
func (s *Server) base(a net.Addr) string {
	scheme := "http"
	if s.cfg.TLS.Cert != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return scheme + "://" + a.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// URL is the base address of the API once Listen returned.
func (s *Server) URL() string { return s.url }

// AdminURL is the base address of the admin routes once Listen returned.
func (s *Server) AdminURL() string { return s.adminURL }

// AdminKey is the secret admin key of the data folder, for client commands that work on the folder itself.
func (s *Server) AdminKey() string { return s.parts.adminKey }

// muxes gives the handlers of the API's listener and of the admin listener.
func (s *Server) muxes() (api, adm *wire.Mux) {
	api, adm = &wire.Mux{Log: s.log}, &wire.Mux{Log: s.log}
	for _, r := range s.routes() {
		pattern := r.Method + " " + r.Pattern
		if r.onBoth() || !r.onAdmin() || s.adminListener == nil {
			open := r
			if s.adminListener != nil && r.mixed() {
				open.Kind &^= tenant.Administration // admin keys work on their own address
			}
			api.Handle(pattern, s.serve(open))
		}
		if r.onBoth() || r.onAdmin() || r.mixed() {
			adm.Handle(pattern, s.serve(r))
		}
	}
	return api, adm
}

// Serve answers on l, and on the admin listener if there is one, until ctx ends. Then it drains: /readyz says 503, new
// turns are refused, running ones get Config.ShutdownGrace or until Cut. Turns that still run then are cancelled with
// ErrShutdown. The error is nil after an orderly end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Requests live on while the server drains.
	turns, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	api, adm := s.muxes()
	servers := []*http.Server{s.httpServer(turns, api)}
	listeners := []net.Listener{l}
	if s.adminListener != nil {
		servers, listeners = append(servers, s.httpServer(turns, adm)), append(listeners, s.adminListener)
	}
	failed := make(chan error, len(servers))
	var running sync.WaitGroup
	for i, srv := range servers {
		running.Go(func() {
			if err := s.serveOn(srv, listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve: %w", err)
			}
		})
	}
	s.log.InfoContext(ctx, "serving", "url", s.url, "instance", s.parts.data.instance)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain(turns, cancel, servers)
	running.Wait()
	return err
}

func (s *Server) httpServer(turns context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return turns },
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
	}
}

func (s *Server) serveOn(srv *http.Server, l net.Listener) error {
	if s.cfg.TLS.Cert != "" {
		return srv.ServeTLS(l, s.cfg.TLS.Cert, s.cfg.TLS.Key)
	}
	return srv.Serve(l)
}

// lastWords is how long cancelled turns have to settle and to send their error event.
const lastWords = 10 * time.Second

// drain ends the turns, then the connections. The listeners stay open while turns run, so that /readyz can say no.
func (s *Server) drain(turns context.Context, cancel context.CancelCauseFunc, servers []*http.Server) {
	s.log.InfoContext(turns, "draining", "grace", s.cfg.ShutdownGrace)
	empty := s.gate.close()
	grace := time.NewTimer(s.cfg.ShutdownGrace)
	defer grace.Stop()
	select {
	case <-empty:
	case <-grace.C:
		s.log.WarnContext(turns, "shutdown grace is over")
	case <-s.cut:
		s.log.WarnContext(turns, "drain cut short")
	}
	// Uploads and downloads that are under way get what is left of the grace.
	s.shutdown(turns, servers, grace.C)
	cancel(ErrShutdown)
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-empty:
	case <-late.C:
		s.log.ErrorContext(turns, "turns did not end in time")
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(turns), time.Second)
	defer done()
	for _, srv := range servers {
		if err := srv.Shutdown(ctx); err != nil {
			// Whatever still sends is cut off; it was cancelled before.
			_ = srv.Close()
		}
	}
}

// shutdown waits for connections without a turn, unless turns still run or the drain was cut.
func (s *Server) shutdown(turns context.Context, servers []*http.Server, grace <-chan time.Time) {
	ctx, done := context.WithCancel(turns)
	defer done()
	select {
	case <-s.gate.close():
	default:
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, srv := range servers {
			if err := srv.Shutdown(ctx); err != nil {
				return // the caller closes what is left
			}
		}
	}()
	select {
	case <-ended:
	case <-grace:
	case <-s.cut:
	}
	done()
	<-ended
}

// Cut ends a drain at once: the second signal.
func (s *Server) Cut() { s.cutOnce.Do(func() { close(s.cut) }) }

// Close destroys the sandboxes of this process, closes the stores and gives back the lock. Containers, files and
// workspaces stay. It may be repeated.
func (s *Server) Close() (err error) {
	s.closed.Do(func() {
		s.sweeps.stop()
		if s.adminListener != nil {
			// Served and closed already, unless Serve was never called.
			if e := s.adminListener.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
				err = e
			}
		}
		err = errors.Join(err, s.parts.close(context.Background())) //nolint:forbidigo // a Closer has no context; close limits its time itself
	})
	return err
}
