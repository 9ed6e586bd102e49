package guest

import "errors"

// Sentinels. Errors of this package match them with errors.Is.
var (
	// ErrGone: the guest ended or the stream was closed. It also matches
	// os.ErrDeadlineExceeded if the guest lives but did not answer in time.
	ErrGone = errors.New("guest is gone")
	// ErrProtocol: the peer broke the framing or a window. The connection is
	// closed; the sandbox must be destroyed.
	ErrProtocol = errors.New("guest protocol violated")
	// ErrNotExist: a path, working directory or program does not exist.
	ErrNotExist = errors.New("no such file or directory")
	// ErrIsDir: a file was wanted where a folder is.
	ErrIsDir = errors.New("is a directory")
	// ErrTooLarge: a file, script, argument list or environment exceeds a limit.
	ErrTooLarge = errors.New("too large")
	// ErrPermission: the kernel refused, or the path is a link or special file
	// where only regular files are served.
	ErrPermission = errors.New("permission denied")
	// ErrNoSpace: the file system or its inodes are used up.
	ErrNoSpace = errors.New("no space left")
	// ErrInvalidPath: a path or argument that cannot be: empty, with a NUL
	// byte, too long, or through something that is not a folder.
	ErrInvalidPath = errors.New("invalid path")
)

// Error is an operation the guest refused or could not do. The call had no
// effect beyond what Op implies; the connection stays usable.
type Error struct {
	Op   string
	Path string
	// Detail is for people; it never holds a host path.
	Detail string
	// Err is one of the sentinels, or nil.
	Err error
}

func (e *Error) Error() string {
	s := e.Op
	if e.Path != "" {
		s += " " + e.Path
	}
	switch {
	case e.Detail != "":
		return s + ": " + e.Detail
	case e.Err != nil:
		return s + ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }
