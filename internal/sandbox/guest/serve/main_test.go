package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/serve"
)

// The guest under test is this test binary, started again as PID 1 of its own
// PID and mount namespace, in a root made of a root file system's /usr (the
// host's if none is built) and tmpfs. It has no other isolation; that is the
// drivers' part.
const (
	roleVar = "AIRLOCK_TEST_GUEST_ROOT"
	baseVar = "AIRLOCK_TEST_GUEST_BASE"
	// groupVar names a file that stands in for the group of the code's threads, which only gVisor's guest has.
	groupVar = "AIRLOCK_TEST_GUEST_GROUP"
)

// baseFolder is where the programs of the code come from.
func baseFolder() string {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(os.Getenv("HOME"), ".local", "share")
	}
	// A pattern without a match is the only error, and this one is well-formed.
	found, _ := filepath.Glob(filepath.Join(data, "airlock", "rootfs", "*", "rootfs", "usr", "bin", "python3"))
	if len(found) == 0 {
		return "/"
	}
	return filepath.Clean(filepath.Join(found[0], "..", "..", ".."))
}

func TestMain(m *testing.M) {
	if root := os.Getenv(roleVar); root != "" {
		if err := runGuest(root); err != nil {
			fmt.Fprintln(os.Stderr, "test guest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(deafVar) != "" {
		if err := actDeaf(); err != nil {
			fmt.Fprintln(os.Stderr, "deaf guest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func runGuest(root string) error {
	if err := enterRoot(root); err != nil {
		return err
	}
	// What the shell that runs the tests has left open is not the guest's fault.
	if err := unix.CloseRange(4, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	group, err := openGroup(os.Getenv(groupVar))
	if err != nil {
		return err
	}
	os.Clearenv()
	unix.Umask(0o022)
	if err := serve.IgnoreSignals(); err != nil {
		return err
	}
	rw, err := serve.Stream(3)
	if err != nil {
		return err
	}
	return serve.RunIn(rw, group)
}

// openGroup is nil for an empty name.
func openGroup(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_WRONLY, 0)
}

func enterRoot(root string) error {
	type mount struct{ source, target, fstype string }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	mounts := []mount{{"proc", "proc", "proc"}, {"/dev", "dev", ""}}
	for _, d := range []string{"usr", "bin", "sbin", "lib", "lib64", "etc"} {
		from := filepath.Join(os.Getenv(baseVar), d)
		if fi, err := os.Lstat(from); err == nil && fi.Mode()&os.ModeSymlink != 0 {
			to, err := os.Readlink(from)
			if err != nil {
				return err
			}
			if err := os.Symlink(to, filepath.Join(root, d)); err != nil {
				return err
			}
		} else if err == nil {
			mounts = append(mounts, mount{from, d, ""})
		}
	}
	for _, m := range mounts {
		at := filepath.Join(root, m.target)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		flags := uintptr(0)
		if m.fstype == "" {
			flags = unix.MS_BIND | unix.MS_REC
		}
		if err := unix.Mount(m.source, at, m.fstype, flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return fillRoot(root)
}

func fillRoot(root string) error {
	for dir, mode := range map[string]os.FileMode{
		"workspace": 0o777, "tmp": 0o777 | os.ModeSticky, "files": 0o755, "files/input": 0o755, "files/output": 0o755, "small": 0o755,
	} {
		at := filepath.Join(root, dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(at, mode); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", filepath.Join(root, "small"), "tmpfs", 0, "mode=0777,size=256k"); err != nil {
		return err
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	return os.Chdir("/")
}

// guestProcess is a started guest.
type guestProcess struct {
	*guest.Conn
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

func requireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "root") {
		tb.Fatal("must run as root")
	}
	tb.Skip("needs root for namespaces and a second uid")
}

// launch starts a guest and returns the host's end of its stream.
func launch(tb testing.TB, env ...string) (*exec.Cmd, net.Conn, *bytes.Buffer) {
	tb.Helper()
	requireRoot(tb)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		tb.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	stderr := new(bytes.Buffer)
	cmd := exec.Command(exe)
	cmd.Env = append(env, roleVar+"="+tb.TempDir(), baseVar+"="+baseFolder())
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+dir)
	}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		conn.Close()
		tb.Fatal(err)
	}
	return cmd, conn, stderr
}

// start returns a guest, with more variables, that is ended with the test.
func start(tb testing.TB, opts guest.Options, env ...string) *guestProcess {
	tb.Helper()
	cmd, conn, stderr := launch(tb, env...)
	g := &guestProcess{Conn: guest.NewConn(conn, opts), cmd: cmd, stderr: stderr}
	tb.Cleanup(func() {
		g.Close()
		if err := cmd.Wait(); err != nil && !tb.Failed() {
			tb.Errorf("guest ended badly: %v\n%s", err, stderr)
		}
		if tb.Failed() && stderr.Len() > 0 {
			tb.Logf("guest stderr: %s", stderr)
		}
	})
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	if err := g.Ready(ctx); err != nil {
		tb.Fatalf("guest not ready: %v", err)
	}
	return g
}

// rawGuest is a guest spoken to frame by frame.
type rawGuest struct {
	w      *guest.Writer
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

func launchRaw(tb testing.TB) *rawGuest {
	tb.Helper()
	cmd, conn, stderr := launch(tb)
	tb.Cleanup(func() { conn.Close() })
	go discard(conn)
	return &rawGuest{w: guest.NewWriter(conn), cmd: cmd, stderr: stderr}
}

// discard reads what a guest says until one side hangs up.
func discard(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// peakRSS is the most memory a process has had, in bytes.
func peakRSS(tb testing.TB, pid int) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib := 0
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		tb.Fatal(err)
	}
	return kib << 10
}

// outcome is everything a command gave.
type outcome struct {
	guest.Result
	out, err string
}

func (g *guestProcess) run(tb testing.TB, cmd guest.Command) outcome {
	tb.Helper()
	o, err := g.try(tb.Context(), cmd)
	if err != nil {
		tb.Fatalf("exec: %v", err)
	}
	return o
}

func (g *guestProcess) try(ctx context.Context, cmd guest.Command) (outcome, error) {
	var out, errOut bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errOut
	}
	res, err := g.Exec(ctx, cmd)
	return outcome{res, out.String(), errOut.String()}, err
}

func (g *guestProcess) shell(tb testing.TB, script string) outcome {
	tb.Helper()
	return g.run(tb, guest.Command{Shell: script, Timeout: 30 * time.Second})
}

// counting prints how many processes there are beside the guest and itself. A
// zombie counts if the guest is the one that should have reaped it.
const counting = `
import os
n = 0
for p in os.listdir('/proc'):
    if not p.isdigit() or int(p) in (1, os.getpid()):
        continue
    try:
        state, ppid = open('/proc/%s/stat' % p).read().rpartition(')')[2].split()[:2]
    except OSError:
        continue
    n += state != 'Z' or ppid == '1'
print(n)
`

// processes counts what runs in the guest's namespace.
func (g *guestProcess) processes(tb testing.TB) int {
	tb.Helper()
	o := g.run(tb, guest.Command{Argv: []string{"python3", "-c", counting}})
	n := 0
	if _, err := fmt.Sscan(o.out, &n); err != nil {
		tb.Fatalf("count processes: %q %q", o.out, o.err)
	}
	return n
}

var errTest = errors.New("test")
