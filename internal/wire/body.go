package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// MaxJSONBody is the limit of a JSON body that may hold a whole conversation, a script or its input.
const MaxJSONBody = 32 << 20

// ReadBody reads the whole body, at most limit bytes. More is a 413 that names the limit; a declared
// length over the limit is refused before a byte is read.
func ReadBody(r *http.Request, limit int64) ([]byte, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	if r.Body == nil {
		return nil, nil
	}
	size := int64(512)
	if r.ContentLength > 0 {
		size = r.ContentLength + 1
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, bodyTooLarge(limit)
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, BodyError(err)
		}
	}
}

func bodyTooLarge(limit int64) *Error {
	return TooLarge("The request body is larger than the limit of %s (%d bytes).", FormatSize(limit), limit)
}

// checkEncoding refuses compressed bodies, so that every limit counts the bytes we work on.
func checkEncoding(r *http.Request) error {
	enc := strings.TrimSpace(r.Header.Get("Content-Encoding"))
	if enc == "" || strings.EqualFold(enc, "identity") {
		return nil
	}
	e := Invalid("Content-Encoding: compressed request bodies are not accepted; send the body as it is.")
	e.Status = http.StatusUnsupportedMediaType
	return e
}

// BodyError says what went wrong while a client was sending: err came from reading its body. None of it is the server's
// fault.
func BodyError(err error) error {
	var ne net.Error
	var we *Error
	switch {
	case errors.As(err, &we):
		return we
	case errors.As(err, &ne) && ne.Timeout():
		e := Invalid("No part of the request body arrived for %d s.", int(readIdle.Seconds()))
		e.Status, e.Err = http.StatusRequestTimeout, err
		return e
	case errors.Is(err, context.Canceled):
		return err
	default:
		e := Invalid("The request body ended early or could not be read.")
		e.Err = err
		return e
	}
}

// FormatSize gives a size the way limits are named: whole binary units where they fit.
func FormatSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
