package wire

import (
	"io"
	"net/http"
)

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

// ReadMultipart calls fn for each part in the order sent.
func ReadMultipart(r *http.Request, fn func(p *Part) error) error { return nil }
