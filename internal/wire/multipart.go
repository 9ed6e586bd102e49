package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
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
	mr, tail, err := multipartReader(r)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		raw, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) && tail.closed() {
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

func multipartReader(r *http.Request) (*multipart.Reader, *tailReader, error) {
	t, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || t != "multipart/form-data" {
		return nil, nil, Invalid("Content-Type: expected multipart/form-data.")
	}
	// RFC 2046 allows 70 characters.
	boundary := params["boundary"]
	if boundary == "" || len(boundary) > 70 {
		return nil, nil, Invalid("Content-Type: multipart/form-data without a valid boundary.")
	}
	if r.Body == nil {
		return nil, nil, Invalid("body: the multipart body is missing.")
	}
	tail := &tailReader{r: bufio.NewReaderSize(r.Body, readBuffer), last: []byte("\n--" + boundary + "--")}
	return multipart.NewReader(tail, boundary), tail, nil
}

// tailReader keeps the end of what was read. mime/multipart reports the closing boundary and a body that is
// cut inside the headers of a part with the same io.EOF; only the first has the boundary near its end.
type tailReader struct {
	r    io.Reader
	tail []byte
	last []byte
}

// tailBytes is more than multipart.Reader reads ahead of the boundary it has come to.
const tailBytes = 16 << 10

func (t *tailReader) Read(p []byte) (int, error) {
	if t.tail == nil {
		t.tail = append(make([]byte, 0, 2*tailBytes), '\n') // the first boundary begins the body
	}
	n, err := t.r.Read(p)
	b := p[max(0, n-tailBytes):n]
	if len(t.tail)+len(b) > cap(t.tail) {
		t.tail = t.tail[:copy(t.tail, t.tail[max(0, len(t.tail)-tailBytes):])]
	}
	t.tail = append(t.tail, b...)
	return n, err
}

func (t *tailReader) closed() bool { return bytes.Contains(t.tail, t.last) }

// maxPartHeader bounds the headers of one part, which are kept in memory.
const maxPartHeader = 16 << 10

func handPart(raw *multipart.Part, fn func(p *Part) error) error {
	size := 0
	for name, values := range raw.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > maxPartHeader {
		return Invalid("body: the headers of a part are longer than %s.", FormatSize(maxPartHeader))
	}
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
	if err != nil && !errors.Is(err, io.EOF) {
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
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return Invalid("file: the header of a part is malformed, or the filename in it holds a control character.")
	}
	e := AsError(BodyError(err))
	if e.Status == 0 && e.Type == TypeInvalidRequest {
		e.Message = "body: the multipart body is malformed or could not be read."
	}
	return e
}
