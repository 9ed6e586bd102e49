package file

import (
	"errors"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// ID is the public id of a file.
type ID string

// Origin says where the bytes came from. It decides whether they may be downloaded.
type Origin string

// The origins.
const (
	OriginUpload Origin = "upload"
	OriginOutput Origin = "output"
)

// ErrTooLarge is returned by CreateOutput when the body passes the size limit.
var ErrTooLarge = errors.New("file is larger than the limit")

// File is the metadata of a file.
type File struct {
	ID        ID
	Filename  string
	MIME      string
	Size      int64
	SHA256    string
	Origin    Origin
	CreatedAt time.Time
	ExpiresAt *time.Time
	// DeletedAt is set only on files that AuthorizeQuoted returns for quoted ids.
	DeletedAt   *time.Time
	ContainerID string
	CallID      string
	Owner       tenant.Owner

	blobKey string
}

// Expired says whether the content is gone at now.
func (f *File) Expired(now time.Time) bool { return f.ExpiresAt != nil && !now.Before(*f.ExpiresAt) }

// UploadParams is what a caller sends.
type UploadParams struct {
	// Filename as sent; cleaned and checked by Upload. "" becomes unnamed plus the type's extension.
	Filename string
	// MIME as sent, "" when absent.
	MIME string
	// ExpiresIn in seconds; nil means never.
	ExpiresIn *int64
	Body      interface{ Read(p []byte) (int, error) }
}

// OutputParams is a file a container made.
type OutputParams struct {
	Filename    string
	Body        interface{ Read(p []byte) (int, error) }
	ContainerID string
	CallID      string
}
