package setup

import (
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// Where things lie in the jail in which runsc runs.
const (
	// Runsc is the program.
	Runsc = "/runsc"
	// Guest is the folder that holds this very program, for the sandbox.
	Guest = "/guest"
	// RootFS is the root file system of the sandbox.
	RootFS = "/rootfs"
	// Disk is the folder that holds the folders of the workspace.
	Disk = "/disk/"
	// State is what runsc remembers of its containers.
	State = "/state"
	// Bundle holds config.json.
	Bundle = "/bundle"
	// Image is where the checkpoint lies that a sandbox begins with; its folder on the host may be gone since.
	Image = "/image"
	// NewImage is where a checkpoint is written.
	NewImage = "/new-image"
)

// Container is the only id that runsc knows in a jail.
const Container = "sandbox"

// Jail is the message to the launcher. Descriptors of detached mounts travel beside it.
type Jail struct {
	// Mounts are attached at these paths of the jail, in this order.
	Mounts []string
	// Scratch, if set, is a tmpfs that stands in for the workspace.
	Scratch *walls.Tmpfs
	// Memory is how much the sandbox believes to have, in bytes.
	Memory int64
	// Bundle is the config.json of the sandbox.
	Bundle []byte
	// Rlimits hold for runsc's own processes.
	Rlimits [][3]uint64
	// Start are the arguments with which runsc makes the sandbox and leaves it running.
	Start []string
	// Direct, if set, is used in place of Start: gofer and sentry are started without runsc's help.
	Direct *Direct
}

// Direct is what a launcher has to know to start gofer and sentry by itself.
type Direct struct {
	// Flags are those of runsc that stand before a command.
	Flags []string
	// Mounts is how many bind mounts the bundle has.
	Mounts int
	// IDs is how many ids the jail has.
	IDs int
}

// The calls of the sentry that an Order may name. Each Pause must be followed by one Resume.
const (
	Pause  = "containerManager.Pause"
	Resume = "containerManager.Resume"
)

// Order asks the launcher of a living sandbox to call its sentry, or to run runsc once more. Mounts go beside it, as with Jail.
type Order struct {
	Call   string // "" = none, but Args
	Mounts []string
	Args   []string
	// Last says that the sandbox ends with it; otherwise its end is a crash.
	Last bool
}

// Inside is the message to the guest.
type Inside struct {
	// Seccomp is the assembled program, eight bytes an instruction.
	Seccomp []byte
	// Processes bounds the processes and threads of the code.
	Processes int
	// Shm is /dev/shm.
	Shm walls.Tmpfs
}
