// The limits of the CPU are the cgroup's affair; the runtime would otherwise
// read, and keep open, the host's cgroup files at start.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command airlock-guest is the program inside a sandbox, PID 1 there, started
// by the driver from a memory file. For a gVisor sandbox it is also the first
// process of the jail around it. It is not meant to be called by people.
//
// Its start is on the path of every sandbox, so it imports little and does
// nothing before it is asked.
package main

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/serve"
	gvisor "github.com/airlock-sandbox/airlock/internal/sandbox/gvisor/setup"
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
	part := ""
	if len(os.Args) == 2 {
		part = os.Args[1]
	}
	var err error
	switch part {
	case "init": // inside a native sandbox
		err = native()
	case "launch": // around a gVisor sandbox
		err = gvisor.Launch(hostFD)
	case "gvisor": // inside it
		err = inGVisor()
	default:
		os.Stderr.WriteString("airlock-guest is started by airlock inside a sandbox\n")
		os.Exit(2) // started by hand: nothing is set up and nobody listens
	}
	if err != nil {
		os.Stderr.WriteString("guest: " + err.Error() + "\n")
		os.Exit(1) // the host reads the line and sees the end
	}
}

func native() error {
	if err := serve.IgnoreSignals(); err != nil {
		return err
	}
	if err := setup.Run(hostFD); err != nil {
		os.Exit(1) // setup has told the host
	}
	spare()
	rw, err := serve.Stream(hostFD)
	if err != nil {
		return err
	}
	return serve.Run(rw)
}

func inGVisor() error {
	if err := serve.IgnoreSignals(); err != nil {
		return err
	}
	group, err := gvisor.Confine()
	if err != nil {
		os.Exit(1) // setup has told the host
	}
	spare()
	in, err := serve.Stream(0)
	if err != nil {
		return err
	}
	out, err := serve.Stream(1)
	if err != nil {
		return err
	}
	return serve.RunIn(pipes{in, out}, group)
}

// spare keeps the guest small: its heap is tiny, so halving its slack costs nothing.
func spare() {
	debug.SetMemoryLimit(idleHeap)
	debug.SetGCPercent(50)
	runtime.UnlockOSThread()
}

// pipes are the two directions of one stream.
type pipes struct {
	in io.ReadCloser
	io.WriteCloser
}

func (p pipes) Read(b []byte) (int, error) { return p.in.Read(b) }

func (p pipes) Close() error { return errors.Join(p.in.Close(), p.WriteCloser.Close()) }
