package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// maxErrorBody bounds what is read of an error answer.
const maxErrorBody = 256 << 10

// ofAccount recognises texts that tell of the operator's account with the upstream, such as those about its limits.
var ofAccount = regexp.MustCompile(`(?i)\b(organi[sz]ations?|workspaces?|accounts?|billing|credits?|(x-)?api[- ]?keys?)\b|\b(org|wrkspc|req|sk)[-_]`)

// knownType reports whether an error type goes on to the client as it is.
func knownType(t wire.ErrorType) bool {
	switch t {
	case wire.TypeInvalidRequest, wire.TypeNotFound, wire.TypeTooLarge, wire.TypeRateLimit, wire.TypeOverloaded, wire.TypeTimeout, wire.TypeAPI:
		return true
	default:
		return false
	}
}

// answerError translates an answer that is no success. The message goes on only
// when it is one that the Messages API means for its client; what concerns our
// own credentials or account stays in the log.
func (e *Endpoint) answerError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a cut body only loses the message
	t, msg, details := parseError(body)
	out := &wire.Error{Status: resp.StatusCode, Err: fmt.Errorf("upstream %s answered %d (%s)", e.Name, resp.StatusCode, t)}
	if d, ok := retryAfter(resp.Header, e.now()); ok {
		out.RetryAfter = d
	}
	out.NoRetry = resp.Header.Get("X-Should-Retry") == "false"
	refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusPaymentRequired || resp.StatusCode == http.StatusForbidden
	if refused || resp.StatusCode == http.StatusBadRequest && strings.Contains(msg, "credit balance") {
		out.Type, out.Status, out.NoRetry = wire.TypeAPI, http.StatusBadGateway, true
		out.Message = "The upstream refused this server's own credentials or account. The operator must check its key."
		return out
	}
	out.Type, out.Message = t, msg
	if !knownType(t) {
		out.Type = typeOf(resp.StatusCode)
	}
	if !knownType(t) || msg == "" || ofAccount.MatchString(msg) {
		out.Message = fmt.Sprintf("The upstream answered with status %d.", resp.StatusCode)
	}
	switch {
	case resp.StatusCode < 400:
		out.Status, out.Message = http.StatusBadGateway, "The upstream answered with a redirect, which is not followed."
	case resp.StatusCode > 599:
		out.Status = http.StatusBadGateway // a number that clients would not know what to do with
	}
	out.Code = details.Get("error_code").Str()
	return out
}

// EventError translates an error event of a stream.
func (e *Endpoint) EventError(event *claude.Node) *wire.Error {
	t := wire.ErrorType(event.At("error", "type").Str())
	msg := event.At("error", "message").Str()
	if !knownType(t) {
		t, msg = wire.TypeAPI, ""
	}
	if msg == "" || ofAccount.MatchString(msg) {
		msg = "The upstream ended its answer with an error."
	}
	return &wire.Error{Type: t, Message: msg, Err: fmt.Errorf("upstream %s sent an error event (%s)", e.Name, t)}
}

// parseError reads the error object of an answer; the type is "" for a body of
// any other form.
func parseError(body []byte) (wire.ErrorType, string, *claude.Node) {
	n, err := claude.Parse(body)
	if err != nil {
		return "", "", nil
	}
	o := n.Get("error")
	return wire.ErrorType(o.Type()), o.Get("message").Str(), o.Get("details")
}

func typeOf(status int) wire.ErrorType {
	switch status {
	case http.StatusNotFound:
		return wire.TypeNotFound
	case http.StatusRequestEntityTooLarge:
		return wire.TypeTooLarge
	case http.StatusTooManyRequests:
		return wire.TypeRateLimit
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return wire.TypeTimeout
	case 529:
		return wire.TypeOverloaded
	}
	if status >= 400 && status < 500 {
		return wire.TypeInvalidRequest
	}
	return wire.TypeAPI
}

// callError translates a request that got no answer.
func (e *Endpoint) callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return timeoutError(e.Name, err)
	}
	return &wire.Error{
		Type: wire.TypeAPI, Status: http.StatusBadGateway, RetryAfter: time.Second,
		Message: "The upstream could not be reached.", Err: fmt.Errorf("call upstream %s: %w", e.Name, err),
	}
}

func timeoutError(name string, err error) error {
	return &wire.Error{Type: wire.TypeTimeout, Message: "The upstream did not begin to answer in time.", Err: fmt.Errorf("call upstream %s: %w", name, err)}
}
