package wire

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// frameDeadline bounds how long one frame may wait for a client that does not read.
const frameDeadline = 60 * time.Second

// Stream writes server-sent events. It is safe for concurrent use, so that pings can come from another
// goroutine than the events. No status is sent before the first frame.
type Stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController

	mu      sync.Mutex
	started bool
	err     error
}

// NewStream prepares w for events: it sets the headers that keep proxies from holding frames back.
func NewStream(w http.ResponseWriter) *Stream {
	return &Stream{w: w, rc: http.NewResponseController(w)}
}

// Started says whether a frame, and with it the status 200, has been sent.
func (s *Stream) Started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// Event sends one frame and flushes it. data is one JSON value; line breaks in it become several data
// lines, which clients join again. After an error every further call returns the same error.
func (s *Stream) Event(name string, data []byte) error {
	if strings.ContainsAny(name, "\r\n\x00") {
		return fmt.Errorf("event name %q holds a line break", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if !s.started {
		s.start()
	}
	_ = s.rc.SetWriteDeadline(time.Now().Add(frameDeadline)) // writers without deadlines are test recorders
	if _, err := s.w.Write(frame(name, data)); err != nil {
		s.err = fmt.Errorf("write frame: %w", err)
		return s.err
	}
	if err := s.rc.Flush(); err != nil {
		s.err = fmt.Errorf("flush frame: %w", err)
		return s.err
	}
	_ = s.rc.SetWriteDeadline(time.Time{}) // the end of the answer is written later, by the server
	return nil
}

func (s *Stream) start() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	h.Del("Content-Length")
	s.started = true
}

func frame(name string, data []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(name) + len(data) + 32)
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	// A lone CR ends a line for SSE parsers, so it is a line break like LF.
	if bytes.IndexByte(data, '\r') >= 0 {
		data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
