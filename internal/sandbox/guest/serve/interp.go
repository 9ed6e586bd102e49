package serve

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/python"
)

// maxControl is the longest message an interpreter may send: the input of a tool and its head.
const maxControl = guest.MaxToolInput + 64<<10

// message is what guest and interpreter say to each other over their
// socketpair, framed like the host's stream. Code can forge what its own
// interpreter says, and thereby deceive only itself.
type message struct {
	// Type is, to Python, cell, answer; from Python begin, done, call, wait; from the fork server failed, forked.
	Type string `json:"t"`
	Cell int    `json:"cell"`

	// To Python.
	Fresh bool     `json:"fresh,omitempty"`
	Env   [][]byte `json:"env,omitempty"`
	Tools *offer   `json:"tools,omitempty"`
	More  bool     `json:"more,omitempty"`  // of an answer
	Raise string   `json:"raise,omitempty"` // of an answer
	Last  bool     `json:"last,omitempty"`  // the group is answered

	// Call is a number of Python's own for a call; its text follows the head.
	Call int64 `json:"call,omitempty"`

	// From Python.
	Name        string `json:"name,omitempty"` // of the tool
	Code        int    `json:"code"`
	Interrupted bool   `json:"interrupted"`
	CPU         int64  `json:"cpu_ns"`
	MaxRSS      int64  `json:"max_rss"`

	// From the fork server.
	PID int    `json:"pid"`
	Why string `json:"why"`

	text []byte // what follows the head of what Python says
}

// interp is one Python process.
type interp struct {
	s        *server
	proc     *proc
	family   *family
	forked   bool // it comes from the fork server
	ctl      *os.File
	out, err *pump
	said     chan message // closed when the interpreter no longer speaks
	cells    int
}

// startInterp returns a fault if there is no interpreter.
func (s *server) startInterp() (*interp, *guest.Frame) {
	if in := s.forks.fork(); in != nil {
		return in, nil
	}
	return s.coldInterp()
}

// coldInterp executes Python.
func (s *server) coldInterp() (*interp, *guest.Frame) {
	path, ok := lookPath("python3", baseEnv)
	if !ok {
		return nil, noPython()
	}
	in := &interp{s: s, said: make(chan message, 8)}
	files, err := in.files()
	defer closeAll(files)
	if err != nil {
		in.closeFiles()
		return nil, fault(err)
	}
	f := s.newFamily()
	pr := &program{
		// -P: a module in the working directory must not shadow the library.
		path: path, argv: []string{"python3", "-P", "-c", python.Cell},
		env: s.environment(), cwd: guest.Home, marker: f.marker,
	}
	for _, f := range files {
		pr.files = append(pr.files, f.Fd())
	}
	p, err := s.procs.start(pr)
	if err != nil {
		in.closeFiles()
		f.leave(nil)
		return nil, startFault(pr, err)
	}
	f.interpreter(in, p)
	return in, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
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
	ours, theirs, err := controlPair()
	if err != nil {
		return files, err
	}
	in.ctl = ours
	return append(files, theirs), nil
}

// controlPair makes the two ends over which guest and Python speak.
func controlPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "control")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		theirs.Close()
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "control"), theirs, nil
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
	for m := range messages(lastWords{in.ctl}) {
		in.said <- m // whoever ends the interpreter drains it
	}
}

// messages are what Python says, until it says something else or nothing more.
func messages(from io.Reader) iter.Seq[message] {
	return func(yield func(message) bool) {
		r := bufio.NewReader(from)
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
			said, text, _ := bytes.Cut(body, []byte{'\n'})
			m := message{text: text}
			if json.Unmarshal(said, &m) != nil || !yield(m) {
				return
			}
		}
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
	return in.proc.ended()
}

// kill ends the interpreter and everything it started.
func (in *interp) kill() {
	in.family.kill(in.proc)
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
	in.family.leave(in.proc)
	if in.forked {
		in.s.forks.prepare(in.family)
	}
}
