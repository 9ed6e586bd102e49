package container

import (
	"errors"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Codes of a call whose sandbox ended under it. The container goes on: its files are kept, the next use starts anew.
const (
	CodeOutOfMemory = "sandbox_out_of_memory"
	CodeTimeout     = "sandbox_timeout"
	CodeDiskFull    = "sandbox_disk_full"
	CodeCrashed     = "sandbox_crashed"
	CodeStopped     = "sandbox_stopped"
)

// CodeNotStarted says that the sandbox ended before it was there, so nothing has run.
const CodeNotStarted = "sandbox_not_started"

// GoneError says in words which of its possible ends a sandbox came to. Other errors pass unchanged.
func GoneError(reason sandbox.ExitReason, err error) error {
	if err == nil || !errors.Is(err, sandbox.ErrGone) {
		return err
	}
	const kept = " Files in the container are kept; the next call starts a new sandbox, without the processes of the old one."
	e := wire.Internal(err)
	switch reason {
	case sandbox.ExitOOM:
		e.Code, e.Message = CodeOutOfMemory, "The sandbox ran out of memory and was ended."+kept
	case sandbox.ExitTimeout:
		e.Code, e.Message = CodeTimeout, "The command passed its time limit and could not be ended, so its sandbox was."+kept
	case sandbox.ExitDisk:
		e.Code = CodeDiskFull
		e.Message = "The server's disk is full, and the sandbox was ended because it went on writing. What it wrote last may be lost." + kept
	case sandbox.ExitProtocol:
		e.Code, e.Message = CodeCrashed, "The sandbox broke its protocol and was ended."+kept
	case sandbox.ExitDestroyed:
		e.Code, e.Message = CodeStopped, "The sandbox was stopped by the server or because its container was deleted."
	case sandbox.ExitNone, sandbox.ExitCrash:
		e.Code, e.Message = CodeCrashed, "The sandbox crashed or was killed from outside."+kept
	}
	e.NoRetry = true // whether the command had an effect is unknown
	return e
}

func goneError(sb *sandbox.Sandbox, err error) error {
	if err == nil || !errors.Is(err, sandbox.ErrGone) {
		return err
	}
	return GoneError(sb.ExitReason(), err)
}

// Why a sandbox was ended.
const (
	whyDied     = "died"
	whyIdle     = "idle"
	whyMemory   = "memory" // somebody else needed it
	whyExpired  = "expired"
	whyDeleted  = "deleted"
	whyShutdown = "shutdown"
)

// endError is what a turn is told that dropLive ends.
func endError(why string) error {
	if why == whyShutdown {
		return wire.Overloaded(5*time.Second, "The server is shutting down; send the request again.")
	}
	return wire.NotFound()
}

// capacity answers with 529, which clients retry, what the host could not do at the moment; other errors pass.
func capacity(err error) error {
	var e *wire.Error
	switch {
	case errors.Is(err, sandbox.ErrCapacity):
		e = wire.Overloaded(5*time.Second, "There is no room for another sandbox on this server at the moment.")
	case errors.Is(err, sandbox.ErrCutOff):
		e = wire.Overloaded(5*time.Second, "The sandbox was ended from outside while it was started, twice. Nothing of the request "+
			"has run; send it again.").WithCode(CodeNotStarted)
	default:
		return err
	}
	e.Err = err
	return e
}
