package setup

import "github.com/airlock-sandbox/airlock/internal/sandbox/walls"

// Config is all that the process inside is told. It arrives over the socket and never in arguments or environment, which
// the code inside could read through /proc.
type Config struct {
	Hostname string
	// Mounts are moved to their targets in this order; the first is the root. The file descriptors travel beside the
	// message in the same order.
	Mounts []string
	// Scratch, if set, is a tmpfs that stands in for the workspace.
	Scratch *walls.Tmpfs
	// Shm is /dev/shm.
	Shm walls.Tmpfs
	// Limits of every process, in the order resource, soft, hard.
	Rlimits [][3]uint64
	// Seccomp is the assembled program, eight bytes an instruction.
	Seccomp []byte
}

// Encode is the message as it goes over the socket.
func (c Config) Encode() ([]byte, error) {
	if len(c.Mounts) > walls.MaxMounts {
		return nil, walls.ErrTooLong
	}
	return walls.Encode(c)
}
