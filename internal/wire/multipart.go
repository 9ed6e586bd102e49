package wire

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
)

// maxParts bounds the parts of one upload; ours have at most three.
const maxParts = 64

// readBuffer is large because each read of a part is otherwise one small read of the connection.
const readBuffer = 256 << 10

// Part is one part of a multipart/form-data body. It is read as a stream and is valid only while the
// function it was given to runs.
type Part struct {
	io.Reader
	// Name is the field's name. Parts are told apart by it, never by whether they have a filename.
	Name string
	// Filename is the decoded filename parameter: neither cut to its last component nor checked.
	Filename string
	// ContentType is the part's Content-Type header as sent, "" when absent.
	ContentType string
}

// ReadMultipart calls fn for each part in the order sent. Errors of fn are returned as they are; a body
// that is no multipart form, is broken or ends early is a 400 that says so. nil means that the closing
// boundary was seen: an upload cut off anywhere is an error.
func ReadMultipart(r *http.Request, fn func(p *Part) error) error {
	if err := checkEncoding(r); err != nil {
		return err
	}
	mr, err := multipartReader(r)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		raw, err := mr.NextRawPart()
		if err == io.EOF { //nolint:errorlint // only the bare value means the closing boundary; a wrapped one is a cut
			return nil
		}
		if err != nil {
			return multipartError(err)
		}
		if n == maxParts {
			return Invalid("body: more than %d parts.", maxParts)
		}
		if err := handPart(raw, fn); err != nil {
			return err
		}
	}
}

func multipartReader(r *http.Request) (*multipart.Reader, error) {
	t, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || t != "multipart/form-data" {
		return nil, Invalid("Content-Type: expected multipart/form-data.")
	}
	// RFC 2046 allows 70 characters.
	if b := params["boundary"]; b == "" || len(b) > 70 {
		return nil, Invalid("Content-Type: multipart/form-data without a valid boundary.")
	}
	if r.Body == nil {
		return nil, Invalid("body: the multipart body is missing.")
	}
	return multipart.NewReader(bufio.NewReaderSize(r.Body, readBuffer), params["boundary"]), nil
}

func handPart(raw *multipart.Part, fn func(p *Part) error) error {
	values := raw.Header.Values("Content-Disposition")
	if len(values) != 1 {
		return Invalid("body: a part has no Content-Disposition: form-data header with a name.")
	}
	d, err := parseDisposition(values[0])
	if err != nil {
		return err
	}
	return fn(&Part{
		Reader: partReader{raw}, Name: d.name, Filename: d.filename, ContentType: raw.Header.Get("Content-Type"),
	})
}

// partReader turns the failures of a sending client into 400s, so that what stores the bytes need not
// tell them from its own.
type partReader struct{ r io.Reader }

func (p partReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // as above
		err = multipartError(err)
	}
	return n, err
}

func multipartError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		e := Invalid("body: the multipart body ends before its closing boundary.")
		e.Err = err
		return e
	}
	e := AsError(readError(err))
	if e.Status == 0 && e.Type == TypeInvalidRequest {
		e.Message = "body: the multipart body is malformed or could not be read."
	}
	return e
}
