package main

import (
	"context"
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
	if err := c.becomeApp(ctx, o.conn.app); err != nil {
		stop()
		return nil, nil, err
	}
	return c, stop, nil
}
