package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// apiVersion is what we speak to upstreams. The later version only refuses
// parameters that this one passes on.
const apiVersion = "2023-06-01"

// maxAnswer bounds an answer, read whole or streamed: what a model says is kept until the response ends.
const maxAnswer = 64 << 20

var errAnswerTooLarge = errors.New("answer too large")

// Endpoint is one upstream. It is safe for concurrent use.
type Endpoint struct {
	Name   string
	Kind   Kind
	base   *url.URL
	key    string
	models []string
	retry  Retry
	http   *http.Client
	now    func() time.Time
}

// Call is one request to an upstream.
type Call struct {
	Body  []byte
	Betas []string
}

func defaultTransport() http.RoundTripper {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		// A compressed stream would be held back until a block is full.
		DisableCompression: true,
	}
}

// Open sends a request with "stream": true and returns when the answer has
// begun, repeats included, which may take up to wait. An error is a *wire.Error
// with the real status, or the cause of ctx.
func (e *Endpoint) Open(ctx context.Context, c Call, wait time.Duration) (*Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(wait, func() { cancel(errSilent) })
	resp, err := e.send(ctx, http.MethodPost, "/v1/messages", c, "text/event-stream")
	if timer.Stop() && err == nil {
		return newStream(e, resp, cancel), nil
	}
	cancel(nil)
	if err == nil {
		_ = resp.Body.Close() // it came too late to be used
		err = errSilent
	}
	if errors.Is(err, errSilent) {
		err = timeoutError(e.Name, err)
	}
	return nil, err
}

// Message sends a request that is not streamed and returns the answer as it is.
func (e *Endpoint) Message(ctx context.Context, c Call) (*claude.Node, error) {
	return e.whole(ctx, http.MethodPost, "/v1/messages", c, messageLimit)
}

// CountTokens sends a count_tokens request.
func (e *Endpoint) CountTokens(ctx context.Context, c Call) (*claude.Node, error) {
	return e.whole(ctx, http.MethodPost, "/v1/messages/count_tokens", c, lookUpLimit)
}

// Limits of answers that are read whole, repeats included. The official clients do not wait longer for a message
// either; the others need no model.
const (
	messageLimit = 15 * time.Minute
	lookUpLimit  = time.Minute
)

func (e *Endpoint) whole(ctx context.Context, method, path string, c Call, limit time.Duration) (*claude.Node, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	n, err := e.readWhole(limited, method, path, c)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errSilent) {
		return nil, timeoutError(e.Name, errSilent)
	}
	return n, err
}

func (e *Endpoint) readWhole(ctx context.Context, method, path string, c Call) (*claude.Node, error) {
	resp, err := e.send(ctx, method, path, c, "application/json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, e.callError(ctx, err)
	}
	if len(body) > maxAnswer {
		return nil, e.unreadable(errAnswerTooLarge)
	}
	n, err := claude.Parse(body)
	switch {
	case err != nil:
		return nil, e.unreadable(err)
	case !n.Is(claude.Object):
		return nil, e.unreadable(errors.New("answer is no JSON object"))
	case n.Type() == "error":
		return nil, e.EventError(n)
	}
	return n, nil
}

// unreadable says that the answer is not what the API promises.
func (e *Endpoint) unreadable(err error) error {
	return &wire.Error{
		Type: wire.TypeAPI, Status: http.StatusBadGateway, Message: "The upstream's answer could not be read.",
		Err: fmt.Errorf("read answer of upstream %s: %w", e.Name, err),
	}
}

// send returns an answer with a success status.
func (e *Endpoint) send(ctx context.Context, method, path string, c Call, accept string) (*http.Response, error) {
	resp, err := e.retry.do(ctx, e.http, e.now, func() (*http.Request, error) {
		return e.request(ctx, method, path, c, accept)
	})
	if err != nil {
		return nil, e.callError(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, e.answerError(resp)
	}
	return resp, nil
}

func (e *Endpoint) request(ctx context.Context, method, path string, c Call, accept string) (*http.Request, error) {
	u := *e.base
	path, u.RawQuery, _ = strings.Cut(path, "?")
	u.Path += path
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(c.Body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Anthropic-Version", apiVersion)
	req.Header.Set("User-Agent", "airlock")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.key != "" {
		req.Header.Set("X-Api-Key", e.key)
	}
	if len(c.Betas) > 0 {
		betas := append([]string(nil), c.Betas...)
		sort.Strings(betas)
		req.Header.Set("Anthropic-Beta", strings.Join(betas, ","))
	}
	return req, nil
}

// Models returns the first upstream's list of models.
func (s *Set) Models(ctx context.Context, query string) (*claude.Node, error) {
	if err := s.any(); err != nil {
		return nil, err
	}
	path := "/v1/models"
	if query != "" {
		path += "?" + query
	}
	return s.Endpoints[0].whole(ctx, http.MethodGet, path, Call{}, lookUpLimit)
}

// Model returns one model as the upstream that serves it describes it.
func (s *Set) Model(ctx context.Context, id string) (*claude.Node, error) {
	e, err := s.For(id)
	if err != nil {
		return nil, err
	}
	if id == "" || strings.ContainsAny(id, "/\\?#%") || id == "." || id == ".." {
		return nil, wire.NotFound()
	}
	return e.whole(ctx, http.MethodGet, "/v1/models/"+id, Call{}, lookUpLimit)
}
