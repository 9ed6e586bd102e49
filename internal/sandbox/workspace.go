package sandbox

import (
	"log/slog"
	"os"
	"sync"
)

// Workspaces keeps the persistent disks of sandboxes: one sparse ext4 image per id, copied from a formatted template.
// The size and the number of inodes of an image are the disk limit. Safe for concurrent use, also by several servers:
// an image can be attached once only, which a lock on the image guards.
type Workspaces struct {
	// Dir holds "<id>.img" and the templates.
	Dir string
	// Log is optional.
	Log *slog.Logger

	mu sync.Mutex // guards the making of templates
}

// Workspace is one image. It goes: Attach, any number of sandboxes one after the other, Detach.
type Workspace struct {
	// ID is the name under which the image is kept.
	ID string

	path  string
	busy  sync.Mutex // held while the workspace is attached, synced or detached
	image *os.File   // open and locked while attached; belongs to the holder of busy

	mu        sync.Mutex // guards the fields below; only the holder of busy sets mount
	detaching *detaching
	mount     *os.File // detached mount of the image; keeps the file system alive between two sandboxes
}

// detaching is a Detach at work, perhaps longer than those who asked for it wait.
type detaching struct {
	done chan struct{} // closed at the end, after err was set
	err  error
}

// WorkspaceFolders are the folders at the top of a workspace; each is mounted at the path of the same name.
func WorkspaceFolders() []string { return []string{"workspace", "tmp", "files"} }
