package serve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/python"
)

const (
	// forkLimit is how long the fork server may take to fork; code may have
	// stopped it. A cold interpreter is slower, but not by that much.
	forkLimit = 2 * time.Second
	// forkFailures is how many fork servers may end before their time. Whoever
	// ends more wants none.
	forkFailures = 3
)

// nowhereHome is the home of the fork server: it must not meet the code's files.
const nowhereHome = "/nonexistent"

// personal are what a Python start looks for in the home of its user. What they
// change cannot be changed after the imports, so they make every start a cold one.
var personal = []string{".local/lib", "matplotlibrc", ".config/matplotlib/matplotlibrc", ".matplotlib"}

// way is the word that the fork server is told.
type way string

const (
	// byFork has a child wait for its cell.
	byFork way = "fork"
	// byBecoming has the fork server wait for it itself. gVisor copies up to two
	// MiB for each page that either side of a fork writes to: a child that waits
	// holds all that was imported a second time, and one that is forked when its
	// cell has come lets it wait for the copies.
	byBecoming way = "become"
)

// forks owns the fork server of the sandbox. Whoever holds the turn may use cur
// and failures.
type forks struct {
	s    *server
	turn chan struct{}
	// way is how an interpreter comes out of a fork server; set before the first.
	way way

	cur      *forkServer
	failures int
}

// forkServer is one process of it.
type forkServer struct {
	proc   *proc
	family *family
	ctl    *os.File
	ready  chan struct{} // closed when it has imported everything and a child, or it itself, waits
	next   chan *child   // the child that waits; closed when the fork server no longer speaks
}

// child is an interpreter that has been forked ahead of its cell and waits for
// its order: streams and environment.
type child struct {
	proc *proc
	ctl  *os.File
}

func newForks(s *server) *forks { return &forks{s: s, turn: make(chan struct{}, 1), way: byFork} }

// warm starts a fork server if there is none, and waits until it can fork.
func (f *forks) warm(k *call) *guest.Frame {
	select {
	case f.turn <- struct{}{}:
	case <-k.canceled:
		return faultKind(nil, "canceled before it started")
	}
	last := f.ensure()
	fs := f.cur
	<-f.turn
	if last != nil {
		return last
	}
	select {
	case <-fs.ready:
		return &guest.Frame{Type: guest.TypeOK}
	case <-fs.proc.done:
		return faultKind(nil, "the fork server ended before it was ready")
	case <-k.canceled:
		return faultKind(nil, "canceled")
	}
}

// rest ends the fork server; interpreters go on.
func (f *forks) rest(*call) *guest.Frame {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	f.drop()
	return &guest.Frame{Type: guest.TypeOK}
}

// kick starts a fork server for the next interpreter, without waiting for it.
func (f *forks) kick() {
	select {
	case f.turn <- struct{}{}:
		// A fault means that the next one is cold again.
		_ = f.ensure()
		<-f.turn
	default: // somebody is at it
	}
}

// ensure makes cur a living fork server, or says why there is none.
func (f *forks) ensure() *guest.Frame {
	f.bury()
	if f.cur != nil {
		return nil
	}
	names := f.s.preloads()
	switch {
	case len(names) == 0:
		return faultKind(nil, "no libraries to preload are set")
	case f.failures >= forkFailures:
		return faultKind(nil, "the fork server has failed too often")
	}
	fs, last := f.start(names)
	f.cur = fs
	return last
}

// bury puts a fork server away that has ended by itself.
func (f *forks) bury() {
	if f.cur != nil && f.cur.proc.ended() {
		f.failures++
		f.drop()
	}
}

func (f *forks) drop() {
	if f.cur == nil {
		return
	}
	fs := f.cur
	f.cur = nil
	f.s.procs.signal(fs.proc, false, syscall.SIGKILL)
	<-fs.proc.done
	if fs.family.alone(fs.proc) {
		// With the child that waits, also one that we have not heard of.
		fs.family.kill(fs.proc)
	}
	fs.ctl.Close()
	for c := range fs.next {
		// A cell may run in this family, whose processes go on.
		f.s.procs.signal(c.proc, false, syscall.SIGKILL)
		<-c.proc.done
		c.ctl.Close()
	}
	fs.family.leave(fs.proc)
}

// reject is for a fork server whose child has died before it ran a cell.
func (f *forks) reject(of *family) {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	switch {
	case f.way == byBecoming: // it is no more
		f.failures++
	case f.cur != nil && f.cur.family == of:
		f.fail()
	}
}

// fail is for a fork server that did not do what it must.
func (f *forks) fail() {
	f.failures++
	f.drop()
}

func (f *forks) start(names []string) (*forkServer, *guest.Frame) {
	path, ok := lookPath("python3", baseEnv)
	if !ok {
		return nil, noPython()
	}
	ours, theirs, err := controlPair()
	if err != nil {
		return nil, fault(err)
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		ours.Close()
		return nil, fault(err)
	}
	defer null.Close()
	fs := &forkServer{family: f.s.newFamily(), ctl: ours, ready: make(chan struct{}), next: make(chan *child, 1)}
	pr := &program{
		path: path, argv: append([]string{"python3", "-P", "-c", python.Fork, guest.Home, string(f.way)}, names...),
		// One thread: OpenBLAS would start its own when it is imported.
		env: environ(f.s.environment(), [][]byte{[]byte("HOME=" + nowhereHome), []byte("OPENBLAS_NUM_THREADS=1")}),
		cwd: "/", marker: fs.family.marker,
		files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
	}
	f.s.procs.expect()
	fs.proc, err = f.s.procs.start(pr)
	if err != nil {
		ours.Close()
		fs.family.leave(nil)
		return nil, startFault(pr, err)
	}
	fs.family.join(fs.proc)
	go fs.listen(f.s.procs)
	return fs, nil
}

// listen ends with the stream, or with the first thing that is not what it
// should be.
func (fs *forkServer) listen(p *procs) {
	defer close(fs.next)
	in := &rightsReader{f: fs.ctl}
	defer in.close()
	ready := false
	for m := range messages(in) {
		if m.Type == "failed" {
			fmt.Fprintf(os.Stderr, "guest: fork server: %.200q\n", m.Why)
			continue
		}
		if m.Type == "ready" {
			close(fs.ready)
			return
		}
		c := &child{ctl: in.take(), proc: p.adopt(m.PID, fs.family.marker)}
		if c.ctl == nil {
			return
		}
		if c.proc == nil || len(fs.next) > 0 {
			c.ctl.Close()
			return
		}
		fs.next <- c
		if !ready {
			ready = true
			close(fs.ready)
		}
	}
}

// rightsReader reads what comes beside the bytes too.
type rightsReader struct {
	f   *os.File
	fds []int
}

func (r *rightsReader) Read(p []byte) (n int, err error) {
	conn, err := r.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	oob := make([]byte, unix.CmsgSpace(4*4))
	oobn := 0
	err = conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, rerr = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(rerr, unix.EAGAIN)
	})
	if err == nil {
		err = rerr
	}
	if err != nil {
		return 0, err
	}
	r.keep(oob[:oobn])
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *rightsReader) keep(oob []byte) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, m := range list {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			r.fds = append(r.fds, fds...)
		}
	}
}

// take returns the oldest descriptor, or nil.
func (r *rightsReader) take() *os.File {
	if len(r.fds) == 0 {
		return nil
	}
	fd := r.fds[0]
	r.fds = r.fds[1:]
	if unix.SetNonblock(fd, true) != nil {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "child")
}

func (r *rightsReader) close() {
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

// fork returns an interpreter that the fork server has forked, or nil if it has
// to be started cold: there is no fork server yet, it has forked one that lives,
// or the code has settings of its own that a fork would not see.
func (f *forks) fork() *interp {
	select {
	case f.turn <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-f.turn }()
	f.bury()
	fs := f.cur
	if fs == nil || !fs.isReady() || !fs.family.alone(fs.proc) || personalised() {
		return nil
	}
	if f.way == byBecoming {
		return f.become(fs)
	}
	c := fs.await()
	if c == nil {
		f.fail()
		return nil
	}
	defer c.ctl.Close()
	return f.employ(fs, c)
}

// become makes an interpreter of the fork server itself.
func (f *forks) become(fs *forkServer) *interp {
	in := f.employ(fs, &child{proc: fs.proc, ctl: fs.ctl})
	if in != nil {
		fs.ctl.Close()
		f.cur = nil
	}
	return in
}

// employ gives a process that waits its order; nil means that it did not take it.
func (f *forks) employ(fs *forkServer, c *child) *interp {
	in := &interp{s: f.s, said: make(chan message, 8)}
	files, err := in.files()
	defer closeAll(files)
	if err == nil {
		err = c.order(files, strings.Join(f.s.environment(), "\x00"))
	}
	if err != nil {
		in.closeFiles()
		f.fail()
		return nil
	}
	in.forked = true
	fs.family.interpreter(in, c.proc)
	return in
}

// await returns the child that waits, or nil if it is dead or does not come.
func (fs *forkServer) await() *child {
	t := time.NewTimer(forkLimit)
	defer t.Stop()
	select {
	case c, ok := <-fs.next:
		if ok && c.proc.ended() {
			c.ctl.Close()
			return nil
		}
		return c // nil if it no longer speaks
	case <-t.C:
		return nil
	}
}

// prepare has the next interpreter forked before it is asked for.
func (f *forks) prepare(of *family) {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.way == byBecoming {
		// A fault means that the next one is cold.
		_ = f.ensure()
		return
	}
	fs := f.cur
	if fs == nil || fs.family != of || fs.proc.ended() || !of.alone(fs.proc) || len(fs.next) > 0 {
		return
	}
	f.s.procs.expect()
	if err := fs.ctl.SetWriteDeadline(time.Now().Add(forkLimit)); err != nil {
		f.fail()
		return
	}
	if _, err := fs.ctl.Write([]byte{0}); err != nil {
		f.fail()
	}
}

// order gives a child its descriptors 0 to 3 and the environment. It does not
// block for longer than forkLimit.
func (c *child) order(files []*os.File, environment string) error {
	if err := c.ctl.SetWriteDeadline(time.Now().Add(forkLimit)); err != nil {
		return err
	}
	fds := make([]int, len(files))
	for n, file := range files {
		fds[n] = int(file.Fd())
	}
	conn, err := c.ctl.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	head := binary.BigEndian.AppendUint32(nil, uint32(len(environment)))
	err = conn.Write(func(fd uintptr) bool {
		// Four bytes go whole or not at all.
		_, serr = unix.SendmsgN(int(fd), head, unix.UnixRights(fds...), nil, 0)
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err == nil {
		err = serr
	}
	if err == nil {
		_, err = c.ctl.WriteString(environment)
	}
	return err
}

func (fs *forkServer) isReady() bool {
	select {
	case <-fs.ready:
		return true
	default:
		return false
	}
}

// personalised tells whether the code has made files that Python reads at its start.
func personalised() bool {
	for _, name := range personal {
		if _, err := os.Lstat(guest.Home + "/" + name); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

// expect keeps note, until the next adoption, of processes that are reaped before
// they are adopted.
func (p *procs) expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strangers = map[int]bool{}
}

// adopt enters a process that the fork server says it has forked for us. It is
// nil if that is not so, or no longer: the number must be that of a living child
// of ours with the marker.
func (p *procs) adopt(pid int, marker uint32) *proc {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := p.strangers[pid]
	p.strangers = nil
	if pid <= 1 || p.live[pid] != nil || gone {
		return nil
	}
	status := readStatus(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/status", make([]byte, 4096))
	if string(field(status, "\nPPid:\t")) != strconv.Itoa(os.Getpid()) || isZombie(status) ||
		!hasGroup(status, strconv.AppendUint(nil, uint64(marker), 10)) {
		return nil
	}
	c := &proc{pid: pid, marker: marker, done: make(chan struct{})}
	p.live[pid] = c
	p.watch()
	return c
}
