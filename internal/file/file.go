package file

import (
	"errors"
	"io"
	"regexp"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ID is the public id of a file.
type ID string

var idPattern = regexp.MustCompile(`^file_[A-Za-z0-9_-]{1,100}$`)

// Valid says whether the text can be an id. Anything else is unknown without being asked for, since it may
// hold what a database refuses.
func (id ID) Valid() bool { return idPattern.MatchString(string(id)) }

// Origin says where the bytes came from. It decides whether they may be downloaded.
type Origin string

// The origins.
const (
	OriginUpload Origin = "upload"
	OriginOutput Origin = "output"
)

var (
	// ErrTooLarge is returned by CreateOutput when the body passes the size limit.
	ErrTooLarge = errors.New("file is larger than the limit")
	// ErrQuota is returned by CreateOutput when the app's storage is full.
	ErrQuota = errors.New("storage quota of the app is used up")
)

// Times and sizes of files.md.
const (
	// DefaultMaxBytes is the limit of one file.
	DefaultMaxBytes = 500 << 20
	// keepMetadata is how long an expired file stays listed.
	keepMetadata = 30 * 24 * time.Hour
	minExpiry    = 3600
	maxExpiry    = 7776000
)

// File is the metadata of a file.
type File struct {
	ID        ID
	Filename  string
	MIME      string // without parameters
	Size      int64
	SHA256    string // hex
	Origin    Origin
	CreatedAt time.Time
	ExpiresAt *time.Time
	// DeletedAt is set only on what AuthorizeQuoted returns for quoted ids.
	DeletedAt *time.Time
	// ContainerID and CallID name where an output was made; "" for uploads.
	ContainerID string
	CallID      string
	Owner       tenant.Owner

	blobKey string
}

// Expired says whether the content is gone at now.
func (f *File) Expired(now time.Time) bool { return f.ExpiresAt != nil && !now.Before(*f.ExpiresAt) }

// UploadParams is what a caller sends.
type UploadParams struct {
	// Filename as sent; Upload cleans and checks it. "" becomes unnamed plus the type's extension.
	Filename string
	// MIME as sent, "" when absent.
	MIME string
	// ExpiresIn in seconds; nil means never.
	ExpiresIn *int64
	Body      io.Reader
}

// OutputParams is a file that a container made. The name may be anything a Linux folder can hold.
type OutputParams struct {
	Filename    string
	Body        io.Reader
	ContainerID string
	CallID      string
}

func checkExpiry(seconds *int64) error {
	if seconds != nil && (*seconds < minExpiry || *seconds > maxExpiry) {
		return wire.Invalid("expires_in_seconds: expected an integer from %d to %d.", minExpiry, maxExpiry)
	}
	return nil
}

// errExpired is for a caller who was allowed to use the file; others get the plain 404.
func errExpired(id ID) *wire.Error {
	return &wire.Error{
		Type: wire.TypeNotFound, Message: "File `" + string(id) + "` has expired.",
		Code: "file_expired", NoRetry: true,
	}
}

func errNotDownloadable(id ID) *wire.Error {
	return wire.Invalid("File `%s` cannot be downloaded.", id).WithCode("file_not_downloadable")
}
