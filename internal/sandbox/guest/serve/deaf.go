package serve

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ignored is what code might send the guest, and what the limits that it inherits itself would.
var ignored = []syscall.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGPROF, syscall.SIGXFSZ, syscall.SIGXCPU, syscall.SIGTSTP, syscall.SIGTTIN,
	syscall.SIGTTOU, syscall.SIGIO,
}

// sigaction is the kernel's struct of that name.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// The flags of a sigaction. Handlers run on the signal stack of their thread: that of a goroutine is too small.
const (
	onStack  = 0x08000000 // SA_ONSTACK
	restart  = 0x10000000 // SA_RESTART
	restorer = 0x04000000 // SA_RESTORER
)

// deafHandler is the address of a handler that does nothing, deafRestorer of what returns from it; 0 is the kernel's own.
func deafHandler() uintptr
func deafRestorer() uintptr

// IgnoreSignals makes the guest deaf. Not by SIG_IGN, which the code would inherit, nor by package os/signal, whose goroutine
// needs a thread of its own and a dozen switches to it: at the start of a sandbox that is a tenth of all there is to do.
func IgnoreSignals() error {
	act := sigaction{handler: deafHandler(), flags: onStack | restart, restorer: deafRestorer()}
	if act.restorer != 0 {
		act.flags |= restorer
	}
	for _, sig := range ignored {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, unsafe.Sizeof(act.mask), 0, 0)
		if errno != 0 {
			return fmt.Errorf("ignore %v: %w", sig, errno)
		}
	}
	return nil
}
