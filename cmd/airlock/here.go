package main

import (
	"context"
	"errors"
	"net/http"

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
