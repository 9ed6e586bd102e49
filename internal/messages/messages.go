package messages

import (
	"log/slog"
	"time"

	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/upstream"
)

// Defaults of the Service.
const (
	DefaultMaxIterations = 50
	DefaultFirstEvent    = 60 * time.Second
	DefaultPingEvery     = 10 * time.Second
	DefaultIdle          = 10 * time.Minute
)

// Service serves the Messages API. The zero value of each field but the first
// three is useful.
type Service struct {
	Files      *file.Service
	Containers *container.Service
	Upstreams  *upstream.Set

	// UserKey makes the code under which the upstream knows a user.
	UserKey []byte

	Parked        codeexec.Parked  // code that waits for the client
	Library       codeexec.Library // what the root file system offers; told to the model
	Limits        codeexec.Limits  // zero = codeexec.DefaultLimits
	MaxIterations int              // upstream answers per response, 0 = 50
	FirstEvent    time.Duration    // wait for the upstream's first event, 0 = 60 s
	PingEvery     time.Duration    // silence before a ping, 0 = 10 s
	Idle          time.Duration    // silence of the upstream that ends a response, 0 = 10 min
	CompactResume bool             // see compact.go
	StrictVersion bool             // refuse what anthropic-version 2026-10-21 refuses
	Log           *slog.Logger     // nil = discard
	places        places           // nil = Containers; tests of the loop set their own
	store         fileStore        // nil = Files; likewise
}
