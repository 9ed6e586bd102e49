package guest

import (
	"io"
	"time"
)

// Limits both sides agree on.
const (
	// MaxFrame is the largest frame body: header, newline and payload.
	MaxFrame = 1 << 20
	// MaxData is the largest payload of one data frame.
	MaxData = 64 << 10
	// Window is how many unacknowledged payload bytes may be under way for one
	// call in one direction.
	Window = 1 << 20
	// DefaultOutputBytes applies where OutputBytes is 0.
	DefaultOutputBytes = 1 << 20
	// DefaultCellTimeout applies where Cell.Timeout is 0.
	DefaultCellTimeout = 90 * time.Second
	// MaxCode is the largest shell script or Python cell.
	MaxCode = 32 << 20
)

// Where things lie inside every sandbox.
const (
	Home      = "/workspace"
	InputDir  = "/files/input"
	OutputDir = "/files/output"
)

// CodeUID is the user and group id that code runs as inside a sandbox.
const CodeUID = 1000

// Command is one program to run. Exactly one of Argv and Shell is set.
type Command struct {
	// Argv is the program, looked up in PATH if it has no slash, and its
	// arguments.
	Argv []string
	// Shell is a script for bash -c; up to MaxCode bytes. The script never
	// passes through a terminal or a pipe, so here-documents cannot hang.
	Shell string
	// Cwd defaults to Home; a relative one begins there.
	Cwd string
	// Env is added to the sandbox's own environment.
	Env map[string]string
	// Stdin is /dev/null if nil. Exec may return while a Read of it is still
	// blocked.
	Stdin io.Reader
	// Stdout and Stderr may be nil to discard. They are called from the
	// goroutine of Exec only. A slow writer slows the command down; an error
	// cancels it.
	Stdout, Stderr io.Writer
	// Timeout ends the command: TERM to its process group, KILL to all its
	// processes two seconds later. 0 means none.
	Timeout time.Duration
	// OutputBytes bounds each stream: the first 70 % and the last 30 % are
	// kept with a line between them that counts what was dropped. 0 is
	// DefaultOutputBytes, negative means no bound.
	OutputBytes int64
	// Keep leaves the command's background processes running after it ended.
	// Without it they are killed.
	Keep bool
}

// Result tells how a command ended. TimedOut, OOM and Canceled exclude each
// other and outrank Code and Signal, which then tell how the process died.
type Result struct {
	// Code is the exit code, or 128+Signal.
	Code int
	// Signal that ended the process, 0 if it exited.
	Signal int
	// TimedOut is set if the guest ended the command at its Timeout.
	TimedOut bool
	// OOM is set if the kernel killed for memory during the call and the
	// command died of signal 9 or reported 137.
	OOM bool
	// Canceled is set if the context ended the command.
	Canceled bool
	// StdoutDropped and StderrDropped count bytes that exceeded OutputBytes.
	StdoutDropped, StderrDropped int64
	// CPU is user plus system time: here of the process and the children it waited for, from Sandbox.Exec that of all
	// processes inside during the call.
	CPU time.Duration
	// Wall is the time from start to the reaping of the process.
	Wall time.Duration
	// MaxRSS is that of the largest process, in bytes.
	MaxRSS int64
	// MemoryPeak is the most memory that everything inside had in use during the call, in bytes, cache and tmpfs
	// included. It is filled in by the host; 0 if it could not be read.
	MemoryPeak int64
	// Written counts the bytes of both streams, dropped ones included.
	Written int64
	// LeftRunning counts the background processes that a Keep command left.
	LeftRunning int
}

// Cell is Python code for the resident interpreter.
type Cell struct {
	Code string
	// Fresh runs the cell in a new interpreter that ends with it.
	Fresh bool
	// Env is set in os.environ for this cell.
	Env map[string]string
	// Timeout defaults to DefaultCellTimeout. A cell that does not react to an
	// interrupt within two seconds loses its interpreter.
	Timeout time.Duration
	// Stdout, Stderr and OutputBytes are as in Command.
	Stdout, Stderr io.Writer
	OutputBytes    int64
	// Tools are the names of async functions that the code may await. Each takes one dict, or keyword arguments, and returns
	// a string. A name that is no identifier is found with '-' as '_', and every one as tools["exact-name"].
	Tools []string
	// Call is given the calls that the code waits for once its event loop has been idle for a moment. It may block as long
	// as it likes: the cell's time limit stands still until it returns. It must return one ToolAnswer for each call, in any
	// order; a call without one raises an error in the code. It is never called twice at once: calls that are made meanwhile
	// are the next group. ctx ends with the cell, and Call must then return.
	Call CallFunc
}

// CellResult tells how a cell ended. A cell past its Timeout has TimedOut, the
// code 124 and a last stderr line that begins with "detection_timeout:".
type CellResult struct {
	Result
	// Started is set if an interpreter was made for this cell.
	Started bool
	// StateLost is set if variables of earlier cells, or of this one, are
	// gone. The last or first line of stderr then says so.
	StateLost bool
	// Holds is set if the resident interpreter lives on with what this cell left.
	Holds bool
	// Waited is how much of Wall was spent in Call.
	Waited time.Duration
}

// FileType is what a FileInfo describes.
type FileType string

// The file types told apart.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
	TypeOther   FileType = "other"
)

// FileInfo describes one directory entry inside the sandbox. Nothing in it can
// be trusted beyond its form: the sandbox's code may change the file at any time.
type FileInfo struct {
	// Path is absolute and may hold any byte but NUL.
	Path string
	Type FileType
	// Size is the apparent size, Blocks the allocated bytes; a sparse file has
	// a Size far above its Blocks.
	Size, Blocks int64
	Mode         uint32
	ModTime      time.Time
}

// PutOptions of Conn.Put.
type PutOptions struct {
	// Mode defaults to the mode of the replaced file, else 0644.
	Mode uint32
	// AsCode writes with the rights of the code and follows symbolic links as
	// it would; else the guest writes as owner 0 and refuses links in the path.
	AsCode bool
	// MkdirAll makes missing parents.
	MkdirAll bool
}

// GetOptions of Conn.Get.
type GetOptions struct {
	// AsCode reads with the rights of the code.
	AsCode bool
	// NoSymlinks refuses a link in any part of the path. Without AsCode links
	// are always refused.
	NoSymlinks bool
	// Max is the largest file to read, by its apparent size and by the bytes
	// read; ErrTooLarge beyond. 0 means no bound.
	Max int64
}

// StatOptions of Conn.Stat.
type StatOptions struct {
	// AsCode looks with the rights of the code.
	AsCode bool
	// NoFollow describes a link at the end of the path and not its target.
	NoFollow bool
}

// MkdirOptions of Conn.Mkdir.
type MkdirOptions struct {
	// Mode defaults to 0755.
	Mode uint32
	// AsCode makes the folder with the rights of the code.
	AsCode bool
	// Code gives the folder to the code's uid although the guest makes it.
	Code bool
	// All makes missing parents and accepts an existing folder.
	All bool
}

// RemoveOptions of Conn.Remove.
type RemoveOptions struct {
	// AsCode removes with the rights of the code.
	AsCode bool
	// All removes a folder with its content. A missing path is then no error.
	All bool
}
