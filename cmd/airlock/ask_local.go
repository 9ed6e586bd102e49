package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/airlock-sandbox/airlock/internal/server"
)

// serverAnswers reports whether the server that the data folder names is there. A file left by a killed server is not.
func serverAnswers(ctx context.Context, data string) bool {
	s, err := readServerFile(data)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
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
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := s.Listen(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	serving, drain := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(serving, l) }()
	stop = func() {
		drain()
		s.Cut() // the only client is this command, and it is done
		if err := errors.Join(<-ended, s.Close()); err != nil {
			n.line("server: %v", err)
		}
	}
	c := &client{url: s.URL(), adminURL: s.URL(), key: o.conn.key, http: &http.Client{}}
	if c.key == "" {
		c.key = s.AdminKey()
	}
	if err := c.becomeApp(ctx, o.conn.app); err != nil {
		stop()
		return nil, nil, err
	}
	return c, stop, nil
}
