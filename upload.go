package airlock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

// uploadForm is a multipart body around content that is read while it is sent.
type uploadForm struct {
	contentType string
	head, tail  []byte
	// again gives the content from its beginning, size bytes of it; nil if it can be read only once, through once.
	again func() io.Reader
	size  int64
	once  io.Reader
}

func newUploadForm(r io.Reader, o UploadOptions) (*uploadForm, error) {
	if o.Filename == "" {
		return nil, errors.New("the file has no name (UploadOptions.Filename)")
	}
	if o.MIMEType == "" {
		o.MIMEType = "application/octet-stream"
	}
	if _, _, err := mime.ParseMediaType(o.MIMEType); err != nil {
		return nil, fmt.Errorf("the MIME type %q: %w", o.MIMEType, err)
	}
	if o.ExpiresIn < 0 || o.ExpiresIn%time.Second != 0 {
		return nil, fmt.Errorf("the file expires in %v, not in a whole number of seconds", o.ExpiresIn)
	}
	f := &uploadForm{once: r}
	if err := f.frame(o); err != nil {
		return nil, err
	}
	return f, f.measure(r)
}

// frame writes what stands before and after the content. The expiry comes first, as the SDK sends it.
func (f *uploadForm) frame(o UploadOptions) error {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if o.ExpiresIn > 0 {
		if err := w.WriteField("expires_in_seconds", strconv.FormatInt(int64(o.ExpiresIn/time.Second), 10)); err != nil {
			return err
		}
	}
	_, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {multipart.FileContentDisposition("file", o.Filename)},
		"Content-Type":        {o.MIMEType},
	})
	if err != nil {
		return err
	}
	headSize := b.Len()
	if err := w.Close(); err != nil {
		return err
	}
	f.contentType = w.FormDataContentType()
	f.head, f.tail = b.Bytes()[:headSize], b.Bytes()[headSize:]
	return nil
}

// measure finds out whether r can be read from here more than once. ReaderAt is needed beside Seeker: a transport may
// still read the body of one attempt when the next begins.
func (f *uploadForm) measure(r io.Reader) error {
	at, canReadAt := r.(io.ReaderAt)
	seeker, canSeek := r.(io.Seeker)
	if !canReadAt || !canSeek {
		return nil
	}
	here, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil //nolint:nilerr // a pipe: it has the method and cannot
	}
	end, err := seeker.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := seeker.Seek(here, io.SeekStart); err != nil {
		return err
	}
	f.size = max(end-here, 0)
	f.again = func() io.Reader { return io.NewSectionReader(at, here, f.size) }
	return nil
}

// attach is a middleware that puts the form into each attempt.
func (f *uploadForm) attach(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	req.Header.Set("content-type", f.contentType)
	req.ContentLength = -1
	if f.again != nil {
		req.ContentLength = int64(len(f.head)) + f.size + int64(len(f.tail))
		req.GetBody = func() (io.ReadCloser, error) { return f.body(f.again()), nil }
		req.Body = f.body(f.again())
	} else {
		req.Body = f.body(f.once)
	}
	return next(req)
}

func (f *uploadForm) body(content io.Reader) io.ReadCloser {
	return io.NopCloser(io.MultiReader(bytes.NewReader(f.head), content, bytes.NewReader(f.tail)))
}
