package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// controlSocket is where the sentry is told what to do, and where `runsc checkpoint` looks for it.
const controlSocket = State + "/runsc-" + Container + ".sock"

// The sentry's calls, see runsc/boot/controller.go, and the argument that gives it a loopback.
const (
	setNetwork = "containerManager.SetNetworkArgs"
	startRoot  = "containerManager.StartRoot"
	loopback   = `{"LoopbackLinks":[{"Name":"lo",` +
		`"Addresses":[{"Address":"127.0.0.1","PrefixLen":8},{"Address":"::1","PrefixLen":128}],` +
		`"Routes":[{"Destination":{"IP":"127.0.0.0","Mask":"/wAAAA=="}},{"Destination":{"IP":"::1","Mask":"/////////////////////w=="}}]}]}`
)

// goRuntime is what the Go runtimes of gofer and sentry are told. What they allocate while they start is garbage soon, and
// a page that is used again is not made twice: less memory in the end, and a faster start. The sentry sets the number of
// its processors itself once it is up; the gofer only opens files for it.
var goRuntime = []string{"GOMAXPROCS=1", "GOGC=50"}

// booting is one start of gofer and sentry, with the descriptors that are ours until both have theirs.
type booting struct {
	direct Direct
	memory int64
	fds    []int

	null, control, rpc          int
	mountsIn, mountsOut         int // the gofer tells the sentry where mounts really are
	readyIn, readyOut           int // the sentry tells that it is up
	goferSpec, sentrySpec       int
	goferEnds, sentryEnds       []int
	goferProcess, sentryProcess int
}

// boot does what `runsc run --detach` does: it starts gofer and sentry, each in namespaces of its own, and has the sentry
// start the guest. Doing it here saves one start of a program that takes as long for its own as both of these, and says
// what their runtimes may keep. The arguments are those of one build of runsc, which is why the driver asks for this only
// with that build.
func (l *launcher) boot(j Jail) error {
	b := &booting{direct: *j.Direct, memory: j.Memory}
	err := b.open()
	if err == nil {
		err = b.start()
	}
	b.close()
	if err != nil {
		return err
	}
	l.direct = b
	l.mu.Lock()
	l.reapLocked()
	l.mu.Unlock()
	if err = b.run(); err != nil && l.killed() {
		err = fmt.Errorf("%w: %w", errKilled, err)
	}
	return err
}

// statusWait is how long a status may take that belongs to a failure: a process lets go of its files before it can be reaped.
const statusWait = 500 * time.Millisecond

// killed tells whether a signal has ended gofer or sentry. Here is nobody who would send one, and the one that is left then
// ends by itself.
func (l *launcher) killed() bool {
	limit := time.After(statusWait)
	for {
		select {
		case e := <-l.ended:
			if e.status.Signaled() {
				return true
			}
		case <-limit:
			return false
		}
	}
}

// open makes all descriptors.
func (b *booting) open() (err error) {
	keep := func(fds [2]int, oerr error) (int, int) {
		if oerr != nil {
			err = errors.Join(err, oerr)
			return -1, -1
		}
		b.fds = append(b.fds, fds[0], fds[1])
		return fds[0], fds[1]
	}
	one := func(fd int, oerr error) int {
		if oerr != nil {
			err = errors.Join(err, oerr)
			return -1
		}
		b.fds = append(b.fds, fd)
		return fd
	}
	for range b.direct.Mounts + 1 {
		gofer, sentry := keep(pair())
		b.goferEnds, b.sentryEnds = append(b.goferEnds, gofer), append(b.sentryEnds, sentry)
	}
	b.mountsOut, b.mountsIn = keep(pipe())
	b.readyOut, b.readyIn = keep(pipe())
	// The gofer may ask for help with files that it cannot open; here is nobody who could.
	b.rpc, _ = keep(pair())
	b.null = one(unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0))
	// Both read it, each from its own beginning.
	b.goferSpec = one(unix.Open(path.Join(Bundle, "config.json"), unix.O_RDONLY|unix.O_CLOEXEC, 0))
	b.sentrySpec = one(unix.Open(path.Join(Bundle, "config.json"), unix.O_RDONLY|unix.O_CLOEXEC, 0))
	b.control = one(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	if err == nil {
		err = unix.Bind(b.control, &unix.SockaddrUnix{Name: controlSocket})
	}
	if err != nil {
		return fmt.Errorf("descriptors of gofer and sentry: %w", err)
	}
	return nil
}

func pair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

func pipe() (p [2]int, err error) { return p, unix.Pipe2(p[:], unix.O_CLOEXEC) }

// close lets go of all but the end on which the sentry tells that it is up.
func (b *booting) close() {
	for _, fd := range b.fds {
		if fd != b.readyOut {
			_ = unix.Close(fd) // nothing was written to it by us
		}
	}
}

// start runs both programs. They wait for each other as far as they have to.
func (b *booting) start() (err error) {
	confs := "--gofer-mount-confs=" + strings.Repeat("lisafs:none,", b.direct.Mounts) + "lisafs:none"
	gofer := program{args: append(append([]string{"runsc-gofer"}, b.direct.Flags...), "gofer", "--bundle="+Bundle, confs)}
	gofer.give("", b.null, b.null, b.null)
	gofer.give("spec-fd", b.goferSpec)
	gofer.give("mounts-fd", b.mountsIn)
	gofer.give("rpc-fd", b.rpc)
	gofer.give("io-fds", b.goferEnds...)
	if b.goferProcess, err = gofer.start(b.direct.IDs); err != nil {
		return fmt.Errorf("start gofer: %w", err)
	}
	memory := strconv.FormatInt(b.memory, 10)
	sentry := program{args: append(append([]string{"runsc-sandbox"}, b.direct.Flags...), "boot", "--bundle="+Bundle, confs,
		"--apply-caps=true", "--setup-root", "--total-host-memory="+memory, "--total-memory="+memory)}
	sentry.give("", b.null, b.null, b.null)
	sentry.give("io-fds", b.sentryEnds...)
	sentry.give("mounts-fd", b.mountsOut)
	sentry.give("start-sync-fd", b.readyIn)
	sentry.give("controller-fd", b.control)
	sentry.give("spec-fd", b.sentrySpec)
	sentry.give("stdio-fds", 0, 1, 2)
	if b.sentryProcess, err = sentry.start(b.direct.IDs); err != nil {
		return fmt.Errorf("start sentry: %w", err)
	}
	return nil
}

// program is one program of runsc and the descriptors it is given.
type program struct {
	args  []string
	files []uintptr
}

// give hands descriptors over and names them in an argument each.
func (p *program) give(flag string, fds ...int) {
	for _, fd := range fds {
		if flag != "" {
			p.args = append(p.args, "--"+flag+"="+strconv.Itoa(len(p.files)))
		}
		p.files = append(p.files, uintptr(fd))
	}
}

// start runs the program as root of a user namespace below ours, with the same ids, and alone in all others.
func (p *program) start(ids int) (pid int, err error) {
	same := []syscall.SysProcIDMap{{Size: ids}}
	return syscall.ForkExec(Runsc, append(p.args, Container), &syscall.ProcAttr{
		Dir: "/", Env: append([]string{"TMPDIR=/tmp"}, goRuntime...), Files: p.files,
		Sys: &syscall.SysProcAttr{
			Setsid: true, UidMappings: same, GidMappings: same, Credential: &syscall.Credential{},
			Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		},
	})
}

// run waits for the sentry and has it start the guest.
func (b *booting) run() error {
	n, err := walls.Socket(b.readyOut).Read(make([]byte, 1))
	_ = unix.Close(b.readyOut) // it was read
	if n != 1 {
		return fmt.Errorf("the sentry has ended at its start: %w", err)
	}
	if err := callSentry(setNetwork, json.RawMessage(loopback)); err != nil {
		return err
	}
	return callSentry(startRoot, Container)
}

// callSentry asks the sentry for something and waits for its answer.
func callSentry(method string, arg any) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("call sentry: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // the answer has been read
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: controlSocket}); err != nil {
		return fmt.Errorf("call sentry: %w", err)
	}
	s := walls.Socket(fd)
	text, err := json.Marshal(map[string]any{"method": method, "arg": arg})
	if err == nil {
		_, err = s.Write(text)
	}
	var answer struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err == nil {
		err = json.NewDecoder(s).Decode(&answer)
	}
	if err == nil && !answer.Success {
		err = errors.New(answer.Err)
	}
	if err != nil {
		return fmt.Errorf("call %s of the sentry: %w", method, err)
	}
	return nil
}

// remember writes what `runsc run` would have left for later calls of runsc.
func (b *booting) remember() error {
	bundle, err := os.ReadFile(path.Join(Bundle, "config.json"))
	if err != nil {
		return fmt.Errorf("state for runsc: %w", err)
	}
	id := map[string]string{"sandboxId": Container, "containerId": Container}
	text, err := json.Marshal(map[string]any{
		"id": Container, "spec": json.RawMessage(bundle), "bundleDir": Bundle, "status": "running", "goferPid": b.goferProcess,
		"sandbox": map[string]any{"id": Container, "pid": b.sentryProcess, "controlSocketPath": controlSocket},
		"saver":   map[string]any{"rootDir": State, "id": id},
	})
	if err == nil {
		err = os.WriteFile(path.Join(State, Container+"_sandbox:"+Container+".state"), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("state for runsc: %w", err)
	}
	return nil
}
