package airlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

// Files uploads into the gateway and downloads what sandboxes made. The scope of its options is that of the uploads: it
// must be the scope of the messages that are to use them.
type Files struct {
	client anthropic.Client
}

// NewFiles takes the options of [NewClient].
func NewFiles(env Env, opts ...ClientOption) (*Files, error) {
	client, err := NewClient(env, opts...)
	if err != nil {
		return nil, err
	}
	return &Files{client: client}, nil
}

// UploadOptions describes an upload.
type UploadOptions struct {
	// Filename is the name that code in the sandbox sees. It must not be empty.
	Filename string
	// MIMEType defaults to application/octet-stream.
	MIMEType string
	// ExpiresIn is a whole number of seconds, for the gateway to judge: an hour to 90 days. 0 is its default, 30 days.
	ExpiresIn time.Duration
}

// Upload streams r to the gateway; nothing is held in memory. What can be read twice ([io.ReaderAt] and [io.Seeker], such
// as a file or a [bytes.Reader]) is sent from its present position, with its length, and again after a failure that
// allows it. Any other reader is sent once, in chunks. It is not closed.
func (f *Files) Upload(ctx context.Context, r io.Reader, o UploadOptions) (*anthropic.FileMetadata, error) {
	form, err := newUploadForm(r, o)
	if err != nil {
		return nil, fmt.Errorf("airlock: upload: %w", err)
	}
	opts := []option.RequestOption{option.WithMiddleware(form.attach)}
	if form.again == nil {
		opts = append(opts, option.WithMaxRetries(0))
	}
	// Not Files.Upload of the SDK, which builds the whole form in memory first.
	var made anthropic.FileMetadata
	if err := f.client.Post(ctx, "v1/files", nil, &made, opts...); err != nil {
		return nil, err
	}
	return &made, nil
}

// Get gives the metadata of a file.
func (f *Files) Get(ctx context.Context, id string) (*anthropic.FileMetadata, error) {
	return f.client.Files.GetMetadata(ctx, id, anthropic.FileGetMetadataParams{})
}

// Download gives the content of a file that a sandbox made, as a stream with its content-type and content-disposition.
// The caller closes the body. Uploads cannot be downloaded.
func (f *Files) Download(ctx context.Context, id string) (*http.Response, error) {
	return f.client.Files.Download(ctx, id, anthropic.FileDownloadParams{})
}

// List gives one page of the files that the caller may use, newest first: at most limit of them (1 to 1,000; 0 is the
// gateway's default, 20), beginning at page, which is "" or what next was. next is "" on the last page.
func (f *Files) List(ctx context.Context, limit int64, page string) (files []anthropic.FileMetadata, next string, err error) {
	var params anthropic.FileListParams
	if limit != 0 {
		params.Limit = anthropic.Int(limit)
	}
	if page != "" {
		params.Page = anthropic.String(page)
	}
	res, err := f.client.Files.List(ctx, params)
	if err != nil {
		return nil, "", err
	}
	return res.Data, res.NextPage, nil
}

const allPageSize = 100

// All goes through the files of all pages. An error is the last thing it yields.
func (f *Files) All(ctx context.Context) iter.Seq2[anthropic.FileMetadata, error] {
	return func(yield func(anthropic.FileMetadata, error) bool) {
		page := ""
		for {
			files, next, err := f.List(ctx, allPageSize, page)
			if err == nil && next != "" && next == page {
				err = errors.New("airlock: list files: the page after this one is this one")
			}
			if err != nil {
				yield(anthropic.FileMetadata{}, err)
				return
			}
			for _, file := range files {
				if !yield(file, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			page = next
		}
	}
}

// Delete removes a file. Containers keep the copy they have.
func (f *Files) Delete(ctx context.Context, id string) error {
	_, err := f.client.Files.Delete(ctx, id, anthropic.FileDeleteParams{})
	return err
}
