package main

import (
	"context"
	"net/http"
	"time"
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
