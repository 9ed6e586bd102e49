package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// HandlerFunc is a route. It returns an error in place of writing one.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// Time limits of a connection. They bound silence, never the whole transfer.
const (
	readIdle    = 60 * time.Second
	lingerTime  = 5 * time.Second
	lingerBytes = 1 << 30
)

type requestIDKey struct{}

// RequestID gives the id of the request in ctx, or "" outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithRequestID gives a context that carries id, for work that outlives or precedes a request.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// Handler makes an http.Handler out of h. It sets the request id (keeping the one a handler further
// out has set), recovers panics, bounds silence while a body is read, logs one line per request, and
// is the only writer of error bodies. log nil means slog.Default().
func Handler(log *slog.Logger, h HandlerFunc) http.Handler {
	if log == nil {
		log = slog.Default()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		id := RequestID(r.Context())
		if id == "" {
			id = NewID("req")
			r = r.WithContext(WithRequestID(r.Context(), id))
		}
		w.Header().Set("request-id", id)
		rw := &responseWriter{ResponseWriter: w}
		body := &idleReader{body: r.Body, rc: http.NewResponseController(w)}
		r.Body = body
		err := call(h, rw, r)
		finish(log, rw, r, body, err)
		body.giveUp(r)
		log.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("request_id", id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Int("status", rw.status), slog.Int64("bytes", rw.bytes), slog.Duration("took", time.Since(start)))
		if err != nil && rw.started && !rw.wroteError {
			// A half-sent answer must look broken to the client.
			panic(http.ErrAbortHandler)
		}
	})
}

type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return "panic in handler" }

func call(h HandlerFunc, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler: // a deliberate cut, not a fault
			panic(v)
		default:
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return h(w, r)
}

// finish turns err into a body, or into a log line when the answer is already on its way.
func finish(log *slog.Logger, w *responseWriter, r *http.Request, body *idleReader, err error) {
	if err == nil {
		if !w.started {
			w.WriteHeader(http.StatusOK)
		}
		return
	}
	e := AsError(err)
	logError(log, r, e, err)
	if w.started {
		return
	}
	writeError(w, r, e, !body.whole && r.ContentLength != 0)
	if !body.done {
		linger(w, r, body)
	}
}

func logError(log *slog.Logger, r *http.Request, e *Error, err error) {
	level := slog.LevelDebug
	switch {
	case e.HTTPStatus() == http.StatusInternalServerError:
		level = slog.LevelError
	case e.Type == TypeOverloaded && e.Err != nil:
		level = slog.LevelWarn // the host lacks something
	}
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		// The client left; nobody has to look at that.
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{slog.String("request_id", RequestID(r.Context())), slog.String("error", e.Error())}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.Any("panic", p.value), slog.String("stack", string(p.stack)))
	}
	log.LogAttrs(r.Context(), level, "request failed", attrs...)
}

func writeError(w *responseWriter, r *http.Request, e *Error, unread bool) {
	h := w.Header()
	for _, k := range []string{"Content-Length", "Content-Disposition", "Etag", "Last-Modified", "Accept-Ranges"} {
		h.Del(k)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	if e.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	b := ErrorBody(r.Context(), e)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	if unread {
		h.Set("Connection", "close")
		// Without this the server swallows part of the body before it sends the answer, and then closes
		// the read side, so that linger below could not read on.
		_ = http.NewResponseController(w).EnableFullDuplex() // not offered by HTTP/2 and test recorders, which do not need it
	}
	w.wroteError = true
	w.WriteHeader(e.HTTPStatus())
	if r.Method != http.MethodHead {
		_, _ = w.Write(b) // the client left; there is nobody to tell
	}
}

// linger reads what the client is still sending after it was refused. Closing at once would make the
// kernel send a reset, and many clients then report a broken pipe and never see the answer.
func linger(w *responseWriter, r *http.Request, body *idleReader) {
	if r.ContentLength == 0 || r.Header.Get("Expect") != "" || body.body == nil {
		return
	}
	rc := http.NewResponseController(w)
	if rc.Flush() != nil || rc.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, body.body, lingerBytes) // whatever ends it, the answer is out
}

// responseWriter remembers whether the answer has started.
type responseWriter struct {
	http.ResponseWriter
	started    bool
	wroteError bool
	status     int
	bytes      int64
}

// Unwrap lets http.ResponseController reach the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) WriteHeader(status int) {
	if status >= 200 && !w.started {
		w.started, w.status = true, status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom keeps the way open on which the kernel sends a file by itself.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	n, err := io.Copy(w.ResponseWriter, r)
	w.bytes += n
	return n, err
}

// Flush keeps http.Flusher working for code that asserts it.
func (w *responseWriter) Flush() {
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a writer that cannot flush sends at once anyway
}

// idleReader gives up when a client that announced a body stays silent.
type idleReader struct {
	body io.ReadCloser
	rc   *http.ResponseController
	done bool // nothing more comes
	// whole is done with all that was announced. A connection whose body broke off cannot carry another request: net/http
	// has taken the failed read for the client's leaving.
	whole bool
}

func (b *idleReader) Read(p []byte) (int, error) {
	if b.body == nil {
		return 0, io.EOF
	}
	armed := b.rc.SetReadDeadline(time.Now().Add(readIdle)) == nil
	n, err := b.body.Read(p)
	if err != nil {
		b.done, b.whole = true, errors.Is(err, io.EOF)
	}
	if armed {
		// The server watches the connection for the client's leaving; an old deadline would look like that.
		var until time.Time
		if b.done && !b.whole {
			until = time.Now() // net/http would wait for the rest, for ever, to use the connection again
		}
		_ = b.rc.SetReadDeadline(until) // it worked a moment ago; if the connection is gone Read says so
	}
	return n, err
}

// giveUp bounds how long net/http reads on, after the answer, for what the client announced and nobody read.
func (b *idleReader) giveUp(r *http.Request) {
	if b.body != nil && !b.done && r.ContentLength != 0 {
		_ = b.rc.SetReadDeadline(time.Now().Add(lingerTime)) // not offered by test recorders, which have no connection
	}
}

func (b *idleReader) Close() error {
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}
