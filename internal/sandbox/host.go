package sandbox

import (
	"fmt"
	"log/slog"
)

// Host names the server instance to which sandboxes belong. Every cgroup and runtime folder is called
// "airlock-<ID>-<sandbox id>", so that a sweep can tell its own from a neighbour's.
type Host struct {
	// ID is the instance id of the data folder: lower-case letters and digits.
	ID string
	// RunDir holds runtime folders of this instance. Sweep removes those that carry the instance's name.
	RunDir string
	// LeaseDir is the host-wide folder of the id range locks; if empty, /run/airlock/ids.
	LeaseDir string
	// FirstUID is the first host uid and gid of the leased ranges; if 0, 1,879,048,192, which no other tool is known
	// to use.
	FirstUID uint32
	// Ranges is how many ranges of 65,536 ids there are; if 0, 4096.
	Ranges int
	// CgroupParent, if set, is the cgroup below which groups are made, from the root of each hierarchy, in place of the
	// server's own group.
	CgroupParent string
	// Log is optional.
	Log *slog.Logger
}

// Validate refuses a host whose names could not be told from another's.
func (h Host) Validate() error {
	if h.ID == "" || len(h.ID) > 32 {
		return fmt.Errorf("instance id %q is empty or longer than 32 bytes", h.ID)
	}
	for _, r := range h.ID {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			// A '-' would let "a" sweep what belongs to "a-b".
			return fmt.Errorf("instance id %q has a character that is not a lower-case letter or digit", h.ID)
		}
	}
	return nil
}

// Prefix begins every name that belongs to the instance.
func (h Host) Prefix() string { return "airlock-" + h.ID + "-" }

// Logger is Log, or one that writes nothing.
func (h Host) Logger() *slog.Logger {
	if h.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Log
}
