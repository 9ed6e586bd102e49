// Package serve is the program inside a sandbox: PID 1 of it.
package serve

import "io"

// Run speaks the guest side of the frames over rw until the peer closes it,
// then returns nil. The caller exits, which ends every process of the sandbox.
func Run(rw io.ReadWriteCloser) error { panic("soon") }
