package script

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// Transport is a http.RoundTripper that calls a handler in this process. The
// goroutine of a call ends with the handler; a cancelled request ends both.
type Transport struct {
	Handler http.Handler
}

// New returns a transport to a new scripted model.
func New() *Transport { return &Transport{Handler: &Server{}} }

// RoundTrip implements http.RoundTripper. It returns when the handler has
// written its header.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(r.Context())
	w := &responseWriter{header: http.Header{}, pw: pw, begun: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = pw.CloseWithError(context.Canceled) }) // never fails
	in := r.Clone(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	go func() {
		defer cancel()
		defer stop()
		t.Handler.ServeHTTP(w, in)
		w.WriteHeader(http.StatusOK)
		// A handler that gave up must not look like one that finished.
		_ = pw.CloseWithError(ctx.Err()) // nil means the end; never fails
		_ = in.Body.Close()
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done():
		cancel()
		return nil, context.Cause(r.Context())
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Header: w.header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Request: r,
		Body: &body{PipeReader: pr, cancel: cancel},
	}, nil
}

// body ends the handler when the client closes early.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *body) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

type responseWriter struct {
	header http.Header
	pw     *io.PipeWriter
	once   sync.Once
	status int
	begun  chan struct{}
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.begun)
	})
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pw.Write(p)
}

// Flush is there for http.ResponseController; a pipe holds nothing back.
func (w *responseWriter) Flush() {}
