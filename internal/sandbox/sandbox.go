package sandbox

import (
	"context"
	"errors"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// The states a caller may have to tell apart. Everything else is an unknown error of the host.
var (
	// ErrGone: the sandbox has ended (destroyed, killed, crashed) before or while the call ran. ExitReason says why.
	ErrGone = guest.ErrGone
	// ErrTimeout: the guest did not end a command within the grace after its time limit; the sandbox was killed for it.
	// A command that the guest itself timed out is not an error: it is a Result with TimedOut set.
	ErrTimeout = errors.New("sandbox: time limit exceeded")
	// ErrOutOfMemory: the memory limit ended the guest itself, so the whole sandbox is gone. Wraps with ErrGone.
	ErrOutOfMemory = errors.New("sandbox: out of memory")
	// ErrCapacity: the host cannot carry another sandbox with its limits in force (ids, cgroups, loop devices, disk).
	// Nothing was left behind; the same call may succeed later.
	ErrCapacity = errors.New("sandbox: no capacity")
	// ErrCutOff: what was started for a new sandbox has ended without a reason of its own, twice in a row: killed from outside,
	// or crashed. Nothing of the caller has run and nothing was left behind; the same call may succeed later.
	ErrCutOff = errors.New("sandbox: ended while it was made")
	// ErrSnapshot: what was to be continued is of another build, another spec, or broken. Nothing was left behind; Create
	// makes the sandbox without its processes.
	ErrSnapshot = errors.New("sandbox: snapshot cannot be used")
	// ErrScarce: there is no memory for sandboxes that are only kept ready.
	ErrScarce = errors.New("sandbox: memory is scarce")
	// ErrUnsaved: not all of what was written in a workspace has reached the disk.
	ErrUnsaved = errors.New("sandbox: workspace was not saved")
	// ErrDamaged: the file system of a workspace is broken beyond repair; trying again does not help.
	ErrDamaged = errors.New("sandbox: workspace is damaged")
)

// The vocabulary of the guest, repeated here so that users of a sandbox need no second import.
type (
	// Command is one process to run, see guest.Command.
	Command = guest.Command
	// Result is how a command ended, see guest.Result.
	Result = guest.Result
	// Cell is one Python cell, see guest.Cell.
	Cell = guest.Cell
	// CellResult is how a cell ended, see guest.CellResult.
	CellResult = guest.CellResult
	// ToolCall is a call that a cell waits for, see guest.ToolCall.
	ToolCall = guest.ToolCall
	// ToolAnswer answers one, see guest.ToolAnswer.
	ToolAnswer = guest.ToolAnswer
	// FileInfo describes one file inside, see guest.FileInfo.
	FileInfo = guest.FileInfo
)

// Driver makes sandboxes. Implementations are safe for concurrent use.
type Driver interface {
	// Name is the setting's value: "native" or "gvisor".
	Name() string
	// Probe says what this host gives, by trying it under a time limit. An error means that no sandbox can be made here
	// and tells the remedy.
	Probe(ctx context.Context) (Capabilities, error)
	// Create returns when the guest said that it is ready and every limit of the spec is in force. On any error nothing
	// is left behind. It may be retried, and tries once more by itself what was cut off (ErrCutOff).
	Create(ctx context.Context, spec Spec) (*Sandbox, error)
	// Sweep removes what an earlier run of the same Host left (cgroups, folders), never anything of another one.
	Sweep(ctx context.Context) error
	// Close destroys all living sandboxes and waits for the driver's goroutines. Create fails afterwards.
	Close(ctx context.Context) error
}

// Instance is the part of a sandbox that differs per driver.
type Instance interface {
	// SetFrozen stops all processes inside without their notice, or continues them. It may be repeated.
	SetFrozen(ctx context.Context, frozen bool) error
	// Usage reads the counters of the sandbox; it works until Destroy.
	Usage(ctx context.Context) (Usage, error)
	// Exited is closed when the guest's process has been reaped; the function then tells whether the memory limit did it.
	Exited() (done <-chan struct{}, oom func() bool)
	// Destroy kills everything inside, waits for it, and gives all host resources back. It may be repeated, and
	// concurrent calls wait for the same end.
	Destroy(ctx context.Context) error
}

// Backgrounder is an Instance that can be made to yield the processors to others.
type Backgrounder interface {
	// SetBackground gives the sandbox a small share of contended processors, or its usual one again. Limits stay.
	SetBackground(ctx context.Context, on bool) error
}

// Checkpointer is an Instance that can write its processes to disk.
type Checkpointer interface {
	// Checkpoint writes everything that runs inside into dir, an empty folder. The instance has ended afterwards, whatever
	// the answer; its files are in the workspace as always.
	Checkpoint(ctx context.Context, dir string) error
}

// Restorer is a Driver that can continue what a Checkpointer wrote; Capabilities.Snapshot says so.
type Restorer interface {
	// Restore is Create with the processes of dir. The spec must have the root file system, the workspace and the limits of
	// the sandbox that was written. ErrSnapshot: start cold. A folder may be restored once: two sandboxes of one folder
	// would share what their interpreters believe to be random.
	Restore(ctx context.Context, spec Spec, dir string) (*Sandbox, error)
}

// Sandbox is one living isolated place. All methods are safe for concurrent use. File operations, Ping and Sync are those
// of the embedded connection; Exec and Cell are wrapped to put the sandbox's limits in and the reason of its end out.
type Sandbox struct {
	*guest.Conn
	spec Spec
	inst Instance
	fate fate
}

// Usage is what a sandbox has used so far.
type Usage struct {
	CPU          int64 // microseconds of processor time, of reaped and unreaped processes
	Throttled    int64 // microseconds in which the CPU limit held it back
	Memory       int64 // bytes now, page cache and tmpfs included
	Reclaimable  int64 // of Memory, the cache that the kernel takes back first
	MemoryPeak   int64 // bytes
	Processes    int64 // processes and threads now
	OOMKills     int64 // processes that the memory limit killed
	ProcessesMax int64 // how often the process limit refused a fork
}

// Capabilities says what a driver can enforce on this host.
type Capabilities struct {
	Driver       string `json:"driver"`
	CgroupMode   string `json:"cgroup_mode"` // v1, hybrid, v2
	MemoryLimit  bool   `json:"memory_limit"`
	SwapLimit    bool   `json:"swap_limit"`
	ProcessLimit bool   `json:"process_limit"`
	CPULimit     bool   `json:"cpu_limit"`
	DiskLimit    string `json:"disk_limit"` // loop-ext4, tmpfs
	Freeze       bool   `json:"freeze"`
	AtomicKill   bool   `json:"atomic_kill"` // cgroup.kill
	Kernel       bool   `json:"kernel_isolation"`
	Seccomp      bool   `json:"seccomp"`
	Snapshot     bool   `json:"snapshot"`    // Checkpoint and Restore
	ShareBytes   int64  `json:"share_bytes"` // what a sandbox takes of the host's memory that does nothing yet
}

// ExitReason says why a sandbox ended.
type ExitReason string

// The reasons.
const (
	ExitNone      ExitReason = ""          // still running
	ExitDestroyed ExitReason = "destroyed" // Destroy was called
	ExitTimeout   ExitReason = "timeout"   // the guest missed the deadline of a command
	ExitOOM       ExitReason = "oom"       // the memory limit ended the guest
	ExitDisk      ExitReason = "disk"      // it went on writing on a full disk of the host
	ExitProtocol  ExitReason = "protocol"  // the guest broke the frame rules or sent more than it was asked for
	ExitCrash     ExitReason = "crash"     // the guest ended by itself or was killed from outside
)
