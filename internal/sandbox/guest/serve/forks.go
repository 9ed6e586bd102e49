package serve

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// forks owns the fork server of the sandbox. Whoever holds the turn may use cur
// and failures.
type forks struct {
	s    *server
	turn chan struct{}

	cur      *forkServer
	failures int
}

// forkServer is one process of it.
type forkServer struct {
	proc   *proc
	family *family
	ctl    *os.File
	ready  chan struct{} // closed when it has imported everything and a child waits
	said   chan message  // answers to orders; closed when it no longer speaks
}

func newForks(s *server) *forks { return &forks{s: s, turn: make(chan struct{}, 1)} }

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
	// With the child that waits for an order.
	fs.family.kill(fs.proc)
	fs.ctl.Close()
	for range fs.said {
	}
	fs.family.leave(fs.proc)
}

// reject is for a fork server whose child has died before it ran a cell.
func (f *forks) reject(of *family) {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.cur != nil && f.cur.family == of {
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
	fs := &forkServer{family: f.s.newFamily(), ctl: ours, ready: make(chan struct{}), said: make(chan message, 1)}
	pr := &program{
		path: path, argv: append([]string{"python3", "-P", "-c", python.Fork, guest.Home}, names...),
		// One thread: OpenBLAS would start its own when it is imported.
		env: environ(f.s.environment(), [][]byte{[]byte("HOME=" + nowhereHome), []byte("OPENBLAS_NUM_THREADS=1")}),
		cwd: "/", marker: fs.family.marker,
		files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
	}
	fs.proc, err = f.s.procs.start(pr)
	if err != nil {
		ours.Close()
		fs.family.leave(nil)
		return nil, startFault(pr, err)
	}
	fs.family.join(fs.proc)
	go fs.listen()
	return fs, nil
}

// listen ends with the stream, or with the first thing that is no message.
func (fs *forkServer) listen() {
	defer close(fs.said)
	ready := false
	for m := range messages(fs.ctl) {
		switch {
		case m.Type == "failed":
			fmt.Fprintf(os.Stderr, "guest: fork server: %.200q\n", m.Why)
		case m.Type == "ready" && !ready:
			ready = true
			close(fs.ready)
		case m.Type == "forked":
			select {
			case fs.said <- m:
			default: // not asked for
			}
		}
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
	in := &interp{s: f.s, said: make(chan message, 8)}
	files, err := in.files()
	defer closeAll(files)
	if err != nil {
		in.closeFiles()
		return nil
	}
	p := f.order(fs, files)
	if p == nil {
		in.closeFiles()
		f.fail()
		return nil
	}
	in.forked = true
	fs.family.interpreter(in, p)
	return in
}

// prepare has the next interpreter forked before it is asked for. A fork server
// that is at something else forks it when it is.
func (f *forks) prepare(of *family) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	default:
		return
	}
	fs := f.cur
	if fs == nil || fs.family != of || fs.proc.ended() || !fs.isReady() || !of.alone(fs.proc) {
		return
	}
	if fs.send(nil, "") != nil {
		f.fail()
	}
}

// order has an interpreter forked and adopts it.
func (f *forks) order(fs *forkServer, files []*os.File) *proc {
	f.s.procs.expect()
	defer f.s.procs.expectNone()
	if err := fs.send(files, strings.Join(f.s.environment(), "\x00")); err != nil {
		return nil
	}
	t := time.NewTimer(forkLimit)
	defer t.Stop()
	select {
	case m, ok := <-fs.said:
		if !ok {
			return nil
		}
		return f.s.procs.adopt(m.PID, fs.family.marker)
	case <-fs.proc.done:
	case <-t.C:
	}
	return nil
}

// send gives the fork server four descriptors and the environment, or nothing,
// which asks for a child ahead of time. It does not block for longer than
// forkLimit.
func (fs *forkServer) send(files []*os.File, environment string) error {
	if err := fs.ctl.SetWriteDeadline(time.Now().Add(forkLimit)); err != nil {
		return err
	}
	fds := make([]int, len(files))
	for n, file := range files {
		fds[n] = int(file.Fd())
	}
	conn, err := fs.ctl.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(environment)))
	err = conn.Write(func(fd uintptr) bool {
		// Four bytes go whole or not at all.
		_, serr = unix.SendmsgN(int(fd), head, rights, nil, 0)
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err == nil {
		err = serr
	}
	if err == nil && environment != "" {
		_, err = fs.ctl.WriteString(environment)
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

// expect keeps note of processes that are reaped before they are adopted.
func (p *procs) expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strangers = map[int]bool{}
}

func (p *procs) expectNone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strangers = nil
}

// adopt enters a process that the fork server says it has forked for us. It is
// nil if that is not so, or no longer: the number must be that of a living child
// of ours with the marker.
func (p *procs) adopt(pid int, marker uint32) *proc {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pid <= 1 || p.live[pid] != nil || p.strangers[pid] {
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
