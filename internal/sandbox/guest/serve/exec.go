package serve

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

const (
	// termGrace is between TERM and KILL of a command past its time.
	termGrace = 2 * time.Second
	// drainGrace is how long a pipe may stay open after the command ended,
	// before its left-over processes are dealt with.
	drainGrace = 200 * time.Millisecond
	// inlineScript is the longest script passed as an argument; the kernel
	// takes strings of up to 128 KiB.
	inlineScript = 120 << 10
)

// command is one running exec.
type command struct {
	s    *server
	k    *call
	spec *guest.ExecSpec

	marker   uint32
	out, err *pump
	input    *os.File      // the end we feed, or nil
	fed      chan struct{} // closed when nobody feeds
	proc     *proc
	began    time.Time
	exit     guest.Exit
}

// exec runs a command and returns its last frame.
func (s *server) exec(k *call, spec *guest.ExecSpec) *guest.Frame {
	if k.isCanceled() {
		return faultKind(nil, "canceled before it started")
	}
	c := &command{s: s, k: k, spec: spec, marker: s.procs.mark()}
	if f := c.start(); f != nil {
		s.procs.unmark(c.marker, false)
		return f
	}
	c.wait()
	kept := c.wind()
	s.procs.unmark(c.marker, kept)
	return &guest.Frame{Type: guest.TypeExit, Exit: &c.exit}
}

// start returns a fault if there is no process.
func (c *command) start() *guest.Frame {
	pr := &program{env: environ(c.s.environment(), c.spec.Env), cwd: string(c.spec.Cwd), marker: c.marker}
	if !strings.HasPrefix(pr.cwd, "/") {
		pr.cwd = path.Join(guest.Home, pr.cwd)
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if f := c.program(pr, &files); f != nil {
		return f
	}
	stdio, feed, err := c.stdio()
	files = append(files, stdio...)
	if err != nil {
		return fault(err)
	}
	for _, f := range files[len(files)-3:] {
		pr.files = append(pr.files, f.Fd())
	}
	if len(files) > 3 {
		pr.files = append(pr.files, files[0].Fd()) // the script, as descriptor 3
	}
	c.began = time.Now()
	c.proc, err = c.s.procs.start(pr)
	if err != nil {
		c.out.f.Close()
		c.err.f.Close()
		if feed != nil {
			feed.Close()
		}
		return startFault(pr, err)
	}
	go c.out.run()
	go c.err.run()
	if feed != nil {
		c.input, c.fed = feed, make(chan struct{})
		go func() {
			defer close(c.fed)
			c.k.feed(feed)
		}()
	}
	return nil
}

// program fills in what is executed. A long script travels in a memory file.
func (c *command) program(pr *program, files *[]*os.File) *guest.Frame {
	if c.spec.Script > 0 {
		pr.path, _ = lookPath("bash", baseEnv)
		if pr.path == "" {
			return faultKind(guest.ErrNotExist, "bash: not found in this root file system")
		}
		script := c.k.code
		c.k.code = nil
		if len(script) <= inlineScript {
			pr.argv = []string{"bash", "-c", string(script)}
			return nil
		}
		f, err := scriptFile(script)
		if err != nil {
			return fault(err)
		}
		*files = append(*files, f)
		pr.argv = []string{"bash", "-c", ". /proc/self/fd/3", "bash"}
		return nil
	}
	if len(c.spec.Argv) == 0 {
		return faultKind(guest.ErrInvalidPath, "no program is named")
	}
	for _, a := range c.spec.Argv {
		pr.argv = append(pr.argv, string(a))
	}
	var ok bool
	if pr.path, ok = lookPath(pr.argv[0], pr.env); !ok {
		return faultKind(guest.ErrNotExist, pr.argv[0]+": command not found")
	}
	return nil
}

// scriptFile holds a script that is too long for an argument. bash reads it
// whole before it runs the first line.
func scriptFile(script []byte) (*os.File, error) {
	if bytes.IndexByte(script, 0) >= 0 {
		return nil, unix.EINVAL
	}
	fd, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "script")
	if _, err := f.Write(script); err != nil {
		f.Close()
		return nil, fmt.Errorf("write memory file: %w", err)
	}
	return f, nil
}

// stdio makes descriptors 0 to 2 of the command and, if it gets input, the end
// to feed.
func (c *command) stdio() (files []*os.File, feed *os.File, err error) {
	limit := c.spec.Output
	var in, w1, w2 *os.File
	if c.spec.Stdin {
		in, feed, err = codePipe(1)
	} else {
		in, err = os.Open(os.DevNull)
	}
	if err != nil {
		return nil, nil, err
	}
	files = append(files, in)
	c.out, w1, err = newPump(newCapture(limit, func(p []byte) { c.k.send(1, p) }))
	if err != nil {
		return files, nil, err
	}
	files = append(files, w1)
	c.err, w2, err = newPump(newCapture(limit, func(p []byte) { c.k.send(2, p) }))
	if err != nil {
		c.out.f.Close()
		return files, nil, err
	}
	return append(files, w2), feed, nil
}

// wait returns when the process has been reaped, however it came to its end.
func (c *command) wait() {
	var timeout <-chan time.Time
	if c.spec.Timeout > 0 {
		t := time.NewTimer(c.spec.Timeout - time.Since(c.began))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-c.proc.done:
	case <-c.k.canceled:
		c.exit.Canceled = true
	case <-timeout:
		c.exit.TimedOut = true
		c.s.procs.signal(c.proc, true, syscall.SIGTERM)
		t := time.NewTimer(termGrace)
		defer t.Stop()
		select {
		case <-c.proc.done:
		case <-c.k.canceled:
		case <-t.C:
		}
	}
	if c.exit.Canceled || c.exit.TimedOut {
		c.s.procs.kill(c.marker)
		<-c.proc.done
	}
	c.exit.Wall = time.Since(c.began)
	account(&c.exit, c.proc)
}

// wind brings the streams to their end, deals with left-over processes, and
// tells whether some stay.
func (c *command) wind() (kept bool) {
	t := time.NewTimer(drainGrace)
	defer t.Stop()
	expired := false
	for _, p := range []*pump{c.out, c.err} {
		if expired {
			break
		}
		select {
		case <-p.eof:
		case <-c.k.canceled:
			expired = true
		case <-t.C:
			expired = true
		}
	}
	keep := c.spec.Keep && !c.exit.Canceled && !c.exit.TimedOut && !c.k.isCanceled()
	if !keep {
		c.s.procs.kill(c.marker)
	} else if !c.s.procs.nobody() {
		c.exit.Left = len(c.s.procs.members(c.marker, false))
	}
	if c.input != nil {
		// Nothing may be sent for this call after its last frame.
		c.k.shut()
		c.input.Close()
		<-c.fed
	}
	kept = c.exit.Left > 0
	c.exit.Dropped = [2]int64{c.out.finish(), c.err.finish()}
	c.release(kept)
	return kept
}

// release closes the pipes, except those that kept processes may write to:
// they would die of it. Their pumps end with them.
func (c *command) release(kept bool) {
	for _, p := range []*pump{c.out, c.err} {
		if kept {
			go func() {
				<-p.eof
				p.f.Close()
			}()
			continue
		}
		p.f.Close()
		<-p.eof
	}
}

// account translates the status of a reaped process.
func account(e *guest.Exit, p *proc) {
	e.Code = p.status.ExitStatus()
	if p.status.Signaled() {
		e.Signal = int(p.status.Signal())
		e.Code = 128 + e.Signal
	}
	e.CPU = time.Duration(p.usage.Utime.Nano() + p.usage.Stime.Nano())
	e.MaxRSS = p.usage.Maxrss << 10
}

// feed writes the host's input to a command until the input ends, the command
// no longer reads, or the call is over.
func (k *call) feed(w *os.File) {
	defer w.Close()
	for {
		f, ok := k.receiveData()
		if !ok || f.EOF {
			return
		}
		if _, err := w.Write(f.Payload); err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			k.shutInput() // EPIPE: the command has closed its input
			return
		}
		k.consumed(f)
	}
}
