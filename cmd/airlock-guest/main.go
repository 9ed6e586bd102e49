// The limits of the CPU are the cgroup's affair; the runtime would otherwise
// read, and keep open, the host's cgroup files at start.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command airlock-guest is the program inside a native sandbox: PID 1, started
// by the driver from a memory file. It is not meant to be called by people.
//
// Its start is on the path of every sandbox, so it imports little and does
// nothing before it is asked.
package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/serve"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native/setup"
)

// hostFD is the stream to the host.
const hostFD = 3

// idleHeap keeps a guest at a few MiB even after large transfers.
const idleHeap = 24 << 20

func init() {
	// The kernel ends a guest whose server is gone if the thread that asked for
	// it lives. That is the main thread, which the runtime never ends.
	runtime.LockOSThread()
}

func main() {
	if len(os.Args) != 2 || os.Args[1] != "init" {
		os.Stderr.WriteString("airlock-guest is started by airlock inside a sandbox\n")
		os.Exit(2)
	}
	serve.IgnoreSignals()
	if err := setup.Run(hostFD); err != nil {
		os.Exit(1) // setup has told the host
	}
	debug.SetMemoryLimit(idleHeap)
	debug.SetGCPercent(50) // the heap is tiny; halving its slack costs nothing
	runtime.UnlockOSThread()
	rw, err := serve.Stream(hostFD)
	if err == nil {
		err = serve.Run(rw)
	}
	if err != nil {
		os.Stderr.WriteString("guest: " + err.Error() + "\n")
		os.Exit(1)
	}
}
