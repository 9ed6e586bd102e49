package serve

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/python"
)

// maxControl is the longest message an interpreter may send.
const maxControl = 1 << 20

// message is what guest and interpreter say to each other over their
// socketpair, framed like the host's stream. Code can forge what its own
// interpreter says, and thereby deceive only itself.
type message struct {
	Type string `json:"t"` // to Python: cell; from Python: begin, done
	Cell int    `json:"cell"`

	// To Python.
	Fresh bool     `json:"fresh,omitempty"`
	Env   [][]byte `json:"env,omitempty"`

	// From Python.
	Code        int   `json:"code"`
	Interrupted bool  `json:"interrupted"`
	CPU         int64 `json:"cpu_ns"`
	MaxRSS      int64 `json:"max_rss"`
}

// interp is one Python process.
type interp struct {
	s        *server
	proc     *proc
	marker   uint32
	ctl      *os.File
	out, err *pump
	said     chan message // closed when the interpreter no longer speaks
	cells    int
}

// startInterp returns a fault if there is no interpreter.
func (s *server) startInterp() (*interp, *guest.Frame) {
	path, ok := lookPath("python3", baseEnv)
	if !ok {
		return nil, faultKind(guest.ErrNotExist, "python3: not found in this root file system")
	}
	in := &interp{s: s, said: make(chan message, 8)}
	files, err := in.files()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		in.closeFiles()
		return nil, fault(err)
	}
	in.marker = s.procs.mark()
	pr := &program{
		// -P: a module in the working directory must not shadow the library.
		path: path, argv: []string{"python3", "-P", "-c", python.Cell},
		env: s.environment(), cwd: guest.Home, marker: in.marker,
	}
	for _, f := range files {
		pr.files = append(pr.files, f.Fd())
	}
	in.proc, err = s.procs.start(pr)
	if err != nil {
		in.closeFiles()
		s.procs.unmark(in.marker, false)
		return nil, startFault(pr, err)
	}
	go in.out.run()
	go in.err.run()
	go in.listen()
	return in, nil
}

// files makes the interpreter's descriptors 0 to 3.
func (in *interp) files() (files []*os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	files = append(files, null)
	var w *os.File
	if in.out, w, err = newPump(nowhere()); err != nil {
		return files, err
	}
	files = append(files, w)
	if in.err, w, err = newPump(nowhere()); err != nil {
		return files, err
	}
	files = append(files, w)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return files, err
	}
	files = append(files, os.NewFile(uintptr(fds[1]), "control"))
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return files, err
	}
	in.ctl = os.NewFile(uintptr(fds[0]), "control")
	return files, nil
}

func (in *interp) closeFiles() {
	if in.ctl != nil {
		in.ctl.Close()
	}
	for _, p := range []*pump{in.out, in.err} {
		if p != nil {
			p.f.Close()
		}
	}
}

// tell sends a message; it may block while the interpreter does not read.
func (in *interp) tell(m message, code []byte) error {
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	buf := make([]byte, 4, 4+len(head)+1+len(code))
	buf = append(append(append(buf, head...), '\n'), code...)
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-4))
	_, err = in.ctl.Write(buf)
	return err
}

// listen ends with the stream, or with the first thing that is no message.
func (in *interp) listen() {
	defer close(in.said)
	r := bufio.NewReader(lastWords{in.ctl})
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > maxControl {
			return
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		var m message
		if json.Unmarshal(body, &m) != nil {
			return
		}
		in.said <- m // whoever ends the interpreter drains it
	}
}

// lastWords reads from the channel until its end or, once a deadline has passed,
// what the interpreter had written by then: a forked child may hold its end open.
type lastWords struct{ f *os.File }

func (l lastWords) Read(p []byte) (int, error) {
	n, err := l.f.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	conn, err := l.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := conn.Control(func(fd uintptr) { n, err = unix.Read(int(fd), p) }); cerr != nil {
		return 0, cerr
	}
	if n <= 0 || err != nil {
		return 0, io.EOF
	}
	return n, nil
}

// ended tells whether the process is gone.
func (in *interp) ended() bool {
	select {
	case <-in.proc.done:
		return true
	default:
		return false
	}
}

// kill ends the interpreter and everything it started.
func (in *interp) kill() {
	in.s.procs.kill(in.marker)
	<-in.proc.done
}

// release gives everything back after kill. The pumps are finished by the
// caller, or nobody is interested.
func (in *interp) release() {
	in.closeFiles()
	<-in.out.eof
	<-in.err.eof
	for range in.said {
	}
	in.s.procs.unmark(in.marker, false)
}
