package container

import (
	"regexp"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ID names a container: "container_" and an opaque tail.
type ID string

// wellFormed is wider than what NewID makes, so that ids of a hosted service are unknown and not malformed.
var wellFormed = regexp.MustCompile(`^container_[A-Za-z0-9_-]{1,120}$`)

// otherID is the form of ids of other things; such a one is of no container.
var otherID = regexp.MustCompile(`^[a-z]{2,16}_[A-Za-z0-9_-]{1,120}$`)

// Validate refuses what cannot be an id. The empty id is malformed too; the id of something else is unknown.
func (id ID) Validate() error {
	switch {
	case wellFormed.MatchString(string(id)):
	case otherID.MatchString(string(id)):
		return wire.NotFound()
	default:
		return wire.Invalid("container: %q is not a container id; an id begins with \"container_\"", wire.Clip(string(id), 64))
	}
	return nil
}

// State of a row.
type State string

// The states of a container.
const (
	StateActive   State = "active"
	StateExpired  State = "expired"  // idle for too long, or too old; the workspace is gone
	StateLost     State = "lost"     // the workspace vanished, for example with a disk
	StateDeleting State = "deleting" // deletion began; a start finishes it after a crash
	StateDeleted  State = "deleted"
)

// Container is one row.
type Container struct {
	ID     ID
	Owner  tenant.Owner
	State  State
	RootFS string // its name; stays the same until the container ends
	// Home is the instance whose data folder holds the workspace.
	Home string
	// IdleTTL is how long the container lives after its last use.
	IdleTTL    time.Duration
	CreatedAt  time.Time
	LastUsedAt time.Time
	// ExpiresAt moves with each use; MaxExpiresAt never moves.
	ExpiresAt    time.Time
	MaxExpiresAt time.Time

	hasWorkspace bool // an image was made; from then on a missing image is a loss, unless it was packed
	// packKey names the blob that is the workspace while it is packed; "" = the image is.
	packKey, packSHA256 string

	repl    replState
	unsaved bool // the next use is to be told so
}

// packed reports whether a blob holds the workspace, and no image does.
func (c *Container) packed() bool { return c.packKey != "" }

// replState is what became of the variables of the interpreter in a container.
type replState string

const (
	replNone replState = ""
	replHeld replState = "held"
	replLost replState = "lost" // the interpreter is gone and nobody has been told
)

// expiryAfter is the rolling rule: a use at now lets the container live for its idle time, never past its maximum age.
func (c *Container) expiryAfter(now time.Time) time.Time {
	t := now.Add(c.IdleTTL)
	if t.After(c.MaxExpiresAt) {
		return c.MaxExpiresAt
	}
	return t
}

// touch records a use and reports whether that is worth writing down. Moves of less than a sixtieth of the idle time, and
// of ten seconds, are left out, so that a busy container does not cost a write of the database per command; what is shown
// is always what is stored.
func (c *Container) touch(now time.Time) bool {
	expires, small := c.expiryAfter(now), min(c.IdleTTL/60, 10*time.Second)
	// The expiry stands still at the maximum age; the last use does not, and packing goes by it.
	if !c.ExpiresAt.IsZero() && expires.Sub(c.ExpiresAt) < small && now.Sub(c.LastUsedAt) < small {
		return false
	}
	c.LastUsedAt, c.ExpiresAt = now, expires
	return true
}

// Expired reports whether the container can no longer be used at now because of time alone.
func (c *Container) Expired(now time.Time) bool {
	return c.State == StateExpired || !now.Before(c.ExpiresAt)
}

// usable says why a container cannot be used at now; nil means that it can. The answer is for a caller who may use it:
// everybody else has been given wire.NotFound before this is asked.
func (c *Container) usable(now time.Time) error {
	switch c.State {
	case StateLost:
		return lostError(c.ID)
	case StateDeleting, StateDeleted:
		return wire.NotFound()
	case StateExpired:
		return expiredError(c.ID)
	case StateActive:
	}
	if c.Expired(now) {
		return expiredError(c.ID)
	}
	return nil
}

// Codes a client finds in error.details.error_code.
const (
	CodeExpired = "container_expired"
	CodeLost    = "container_lost"
	CodeBusy    = "container_busy"
)

func expiredError(id ID) error {
	e := wire.NotFound()
	e.Code = CodeExpired
	e.NoRetry = true
	e.Message = "The container " + string(id) + " has expired and its workspace is gone. Send the request without " +
		"`container` to get a new one; files it exported stay available in the Files API."
	return e
}

func lostError(id ID) error {
	e := wire.NotFound()
	e.Code = CodeLost
	e.NoRetry = true
	e.Message = "The workspace of container " + string(id) + " no longer exists on this server. Send the request without " +
		"`container` to get a new one; files it exported stay available in the Files API."
	return e
}

func busyError() error {
	return wire.RateLimited(5*time.Second,
		"The container is busy with another request. One request at a time can use a container; retry later.").WithCode(CodeBusy)
}

// Input is a file of the Files API that the container holds under Path.
type Input struct {
	FileID string
	Path   string

	size int64
}
