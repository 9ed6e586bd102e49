//go:build linux

package main

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/airlock-sandbox/airlock/internal/server"
)

// localServer is a server in this process, for one command.
type localServer struct {
	url      string
	adminKey string
	http     *http.Client
	// stop ends it at once and returns what went wrong while it served.
	stop func() error
}

// serveHere serves in this process until stop is called. ctx bounds the start alone: the end of a command must not cut
// the server off before its sandboxes are gone.
func serveHere(ctx context.Context, cfg server.Config) (*localServer, error) {
	cfg.Version = version()
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l, err := s.Listen(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	serving, drain := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(serving, l) }()
	transport := &http.Transport{}
	return &localServer{
		url: s.URL(), adminKey: s.AdminKey(), http: &http.Client{Transport: transport},
		stop: func() error {
			transport.CloseIdleConnections()
			drain()
			s.Cut() // the only client is this command, and it is done
			return errors.Join(<-ended, s.Close())
		},
	}, nil
}

// startHere serves in this process, on a free loopback port, until stop is called.
func (o *askOptions) startHere(ctx context.Context, n notes) (_ *client, stop func(), err error) {
	cfg, err := server.LoadConfig(server.LoadOptions{
		Flags: map[string]string{"data": o.conn.data, "listen": "127.0.0.1:0"},
		Env:   os.Environ(),
	})
	if err != nil {
		return nil, nil, err
	}
	if cfg.LogLevel == "info" {
		cfg.LogLevel = "error" // the log of one call is noise here; AIRLOCK_LOG_LEVEL=debug shows it
	}
	n.line("no server on %s: serving here for this call", o.conn.data)
	here, err := serveHere(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		if err := here.stop(); err != nil {
			n.line("server: %v", err)
		}
	}
	c := &client{url: here.url, adminURL: here.url, key: o.conn.key, http: here.http}
	if c.key == "" {
		c.key = here.adminKey
	}
	if err := c.become(ctx, o.conn.app, o.conn.user); err != nil {
		stop()
		return nil, nil, err
	}
	return c, stop, nil
}

// dataFolder is the one of the settings.
func dataFolder() (string, error) {
	cfg, err := server.LoadConfig(server.LoadOptions{Env: os.Environ()})
	return cfg.Data, err
}
