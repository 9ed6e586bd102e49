package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ErrEnded is the error of an answer that ended before message_stop. Some
// upstreams leave that event out, so whoever saw a stop reason may take the
// answer as complete.
var ErrEnded = errors.New("answer ended before message_stop")

var errSilent = errors.New("answer went silent")

// Stream is an open streamed answer. It is used by one goroutine and must be
// closed.
type Stream struct {
	e       *Endpoint
	resp    *http.Response
	frames  *claude.FrameReader
	left    *io.LimitedReader
	cancel  context.CancelCauseFunc
	fresh   bool
	stopped bool
}

func newStream(e *Endpoint, resp *http.Response, cancel context.CancelCauseFunc) *Stream {
	left := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	return &Stream{e: e, resp: resp, frames: claude.NewFrameReader(left), left: left, cancel: cancel, fresh: true}
}

// Next returns the data of the next event, or io.EOF after message_stop. It
// waits at most the given time. An error event, an early end and silence are a
// *wire.Error; when nothing was received before, silence is a timeout_error.
func (s *Stream) Next(ctx context.Context, wait time.Duration) (*claude.Node, error) {
	if s.stopped {
		return nil, io.EOF
	}
	timer := time.AfterFunc(wait, func() { s.cancel(errSilent) })
	frame, err := s.frames.Next()
	if !timer.Stop() && err != nil {
		err = errSilent
	}
	if err != nil {
		return nil, s.readError(ctx, err)
	}
	first := s.fresh
	s.fresh = false
	event, err := claude.Parse(frame.Data)
	if err == nil && !event.Is(claude.Object) {
		err = errors.New("event is no JSON object")
	}
	if err != nil {
		return nil, s.e.unreadable(err)
	}
	switch event.Type() {
	case "error":
		return nil, s.eventError(event, first)
	case "message_stop":
		s.stopped = true
	}
	return event, nil
}

// eventError gives an error that came before anything else the status it should
// have had.
func (s *Stream) eventError(event *claude.Node, first bool) error {
	e := s.e.EventError(event)
	if !first {
		e.Status = 0
	}
	return e
}

func (s *Stream) readError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errSilent) {
		if s.fresh {
			return timeoutError(s.e.Name, err)
		}
		return &wire.Error{Type: wire.TypeTimeout, Message: "The upstream went silent in the middle of its answer.", Err: fmt.Errorf("upstream %s: %w", s.e.Name, err)}
	}
	if errors.Is(err, io.EOF) && s.left.N == 0 {
		return s.e.unreadable(errAnswerTooLarge)
	}
	if errors.Is(err, io.EOF) && s.fresh && !isEventStream(s.resp) {
		return s.e.unreadable(errors.New("answer is not an event stream"))
	}
	if errors.Is(err, io.EOF) {
		err = ErrEnded
	}
	return &wire.Error{Type: wire.TypeAPI, Status: http.StatusBadGateway, Message: "The upstream's answer broke off.", Err: fmt.Errorf("upstream %s: %w", s.e.Name, err)}
}

func isEventStream(resp *http.Response) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && t == "text/event-stream"
}

// Endpoint is the upstream that answers.
func (s *Stream) Endpoint() *Endpoint { return s.e }

// Close ends the answer; the upstream stops sampling when it was not finished.
func (s *Stream) Close() {
	s.cancel(nil)
	_ = s.resp.Body.Close() // nothing is lost: the answer is over or unwanted
}
