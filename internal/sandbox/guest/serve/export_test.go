package serve

import "syscall"

// Ignored is what IgnoreSignals makes the guest deaf to.
func Ignored() []syscall.Signal { return ignored }
