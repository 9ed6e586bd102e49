package usage

import (
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// Kind of an execution.
type Kind string

// The kinds.
const (
	KindExec       Kind = "exec"       // by the direct door
	KindBash       Kind = "bash"       // a shell command of a model
	KindCell       Kind = "cell"       // a Python cell
	KindBackground Kind = "background" // between calls: file work, processes that a call left running
)

// Outcome is how an execution ended.
type Outcome string

// The outcomes.
const (
	OutcomeExited   Outcome = "exited"
	OutcomeTimedOut Outcome = "timed_out"
	OutcomeMemory   Outcome = "out_of_memory" // the limit killed a process of it, or the sandbox
	OutcomeCanceled Outcome = "canceled"      // whoever asked for it does not wait any more
	// OutcomeGone: the sandbox ended under it, by a crash, from outside, or with its container or the server. Whether the
	// call first heard of its container's end or of its sandbox's makes no difference.
	OutcomeGone Outcome = "gone"
)

// Execution is the account of one call, as the kernel counted it.
type Execution struct {
	ID          string
	ContainerID string
	Owner       tenant.Owner
	Kind        Kind
	Outcome     Outcome
	ExitCode    int // -1 = none, as of every OutcomeGone
	StartedAt   time.Time
	Wall, CPU   time.Duration // Wall is 0 for KindBackground
	PeakBytes   int64         // of memory, of the whole sandbox during the call
	BytesIn     int64         // code, standard input, and files put in since the call before
	BytesOut    int64         // both output streams, and output files
}
