package guest

import (
	"context"
	"io"
)

// Options of NewConn.
type Options struct {
	// Env is the sandbox's environment beside the guest's own defaults.
	Env map[string]string
	// OOMCount, if set, returns how often the kernel has killed for memory in
	// the sandbox. It is read before and after each call that died of signal 9.
	OOMCount func() int64
}

// Conn is the host's end of a guest stream. It is safe for concurrent use.
type Conn struct{}

// NewConn starts to speak over rw, which it owns from then on. If rw has
// SetWriteDeadline it is used to notice a guest that no longer reads.
func NewConn(rw io.ReadWriteCloser, opts Options) *Conn { panic("soon") }

// Ready waits until the guest has answered the greeting.
func (c *Conn) Ready(ctx context.Context) error { panic("soon") }

// Done is closed when the connection ended; Err then tells why.
func (c *Conn) Done() <-chan struct{} { panic("soon") }

// Err is nil while the connection lives.
func (c *Conn) Err() error { panic("soon") }

// Close ends the connection, and with it the guest. All calls end with ErrGone.
func (c *Conn) Close() error { panic("soon") }

// Ping waits for an answer of the guest.
func (c *Conn) Ping(ctx context.Context) error { panic("soon") }

// Sync writes the sandbox's files through to its file systems.
func (c *Conn) Sync(ctx context.Context) error { panic("soon") }

// Exec runs a command to its end.
func (c *Conn) Exec(ctx context.Context, cmd Command) (Result, error) { panic("soon") }

// Cell runs Python code.
func (c *Conn) Cell(ctx context.Context, cell Cell) (CellResult, error) { panic("soon") }

// Put writes a file.
func (c *Conn) Put(ctx context.Context, path string, r io.Reader, opts PutOptions) error {
	panic("soon")
}

// Get opens a file.
func (c *Conn) Get(ctx context.Context, path string, opts GetOptions) (io.ReadCloser, FileInfo, error) {
	panic("soon")
}

// Stat describes a path.
func (c *Conn) Stat(ctx context.Context, path string, opts StatOptions) (FileInfo, error) {
	panic("soon")
}

// List lists a folder as the code sees it.
func (c *Conn) List(ctx context.Context, dir string, depth, limit int) ([]FileInfo, error) {
	panic("soon")
}

// Mkdir makes a folder.
func (c *Conn) Mkdir(ctx context.Context, path string, opts MkdirOptions) error { panic("soon") }

// Remove removes a file, or a folder.
func (c *Conn) Remove(ctx context.Context, path string, opts RemoveOptions) error { panic("soon") }
