package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native/setup"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// carried are the capabilities, in the new user namespace, that the guest needs until it is confined.
const carried = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN

// instance is one sandbox.
type instance struct {
	spawn.Instance
	d *Driver
}

// create makes one sandbox. What is expensive on our side runs while the child's runtime starts.
func (d *Driver) create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	i := &instance{d: d}
	i.ID, i.Log = spec.ID, d.host.Logger()
	conn, err := i.start(ctx, spec)
	if err == nil {
		err = conn.Ready(ctx)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close() // the creation has failed already
		}
		return nil, i.Abandon(ctx, err)
	}
	return sandbox.New(spec, conn, i), nil
}

// start takes the resources in the order in which abandon gives them back, and confines the child.
func (i *instance) start(ctx context.Context, spec sandbox.Spec) (*guest.Conn, error) {
	var err error
	if i.Lease, err = i.d.ranges.Lease(); err != nil {
		return nil, err
	}
	if i.Cgroup, err = i.d.cgroups.Create(ctx, spec.ID, spec.Limits); err != nil {
		return nil, err
	}
	sock, err := i.spawn()
	if err != nil {
		return nil, err
	}
	i.d.fleet.Add(&i.Instance)
	err = i.confine(sock, spec)
	i.Watch()
	if err != nil {
		return nil, errors.Join(err, sock.Close())
	}
	return guest.NewConn(&stream{UnixConn: sock}, guest.Options{Env: spawn.Environment(spec), OOMCount: i.OOMCount, Preload: spec.PreloadInForce()}), nil
}

// spawn starts the child, which waits on the other end of the returned socket.
func (i *instance) spawn() (*net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w: %w", sandbox.ErrCapacity, err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "guest")
	defer theirs.Close()
	sock, err := spawn.UnixConn(pair[0])
	if err != nil {
		return nil, err
	}
	if err := i.exec(theirs); err != nil {
		return nil, errors.Join(err, sock.Close())
	}
	return sock, nil
}

func (i *instance) exec(theirs *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	stderr, err := i.Stderr.Open()
	if err != nil {
		return fmt.Errorf("stderr pipe: %w: %w", sandbox.ErrCapacity, err)
	}
	defer stderr.Close()
	i.Proc, err = i.d.spawn.Start(spawn.Child{
		// Nothing of the server's environment. One processor, because the guest mostly waits, and each thread less makes
		// its start faster and the sandbox smaller.
		Args: []string{"airlock-guest", "init"}, Env: []string{"GOMAXPROCS=1"},
		Cgroup: i.Cgroup.FD(), Range: i.Lease, Files: [4]*os.File{null, null, stderr, theirs}, Caps: carried,
	})
	return err
}

// stream begins with the answer to the setup, which the guest's own protocol follows. Nobody waits for it alone: the
// greeting is on its way meanwhile, and the guest's answer to that says that the walls stand.
type stream struct {
	*net.UnixConn
	confined bool
}

// Read is called by the connection's one reader.
func (s *stream) Read(p []byte) (int, error) {
	if !s.confined {
		if err := walls.ReadStatus(s.UnixConn); err != nil {
			return 0, err
		}
		s.confined = true
	}
	return s.UnixConn.Read(p)
}

// Write leaves it to Read to say that the guest is gone: the reason it left behind is there to be read.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.UnixConn.Write(p)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return len(p), nil
	}
	return n, err
}

// confine puts the waiting child under its limits and tells it to build its walls.
func (i *instance) confine(sock *net.UnixConn, spec sandbox.Spec) error {
	if err := i.Cgroup.Join(i.Proc.Pid); err != nil {
		return fmt.Errorf("join cgroups: %w", err)
	}
	// The child is not reaped before watch runs, so its pid cannot mean another process here.
	userns, err := os.Open("/proc/" + strconv.Itoa(i.Proc.Pid) + "/ns/user")
	if err != nil {
		return fmt.Errorf("user namespace of guest: %w", err)
	}
	defer userns.Close()
	mounts, err := buildMounts(spec, int(userns.Fd()))
	defer mounts.Close() //nolint:staticcheck // also on failure: it holds those made before
	if err != nil {
		return err
	}
	message, err := setup.Config{
		Hostname: spec.Hostname, Mounts: mounts.Targets, Scratch: scratch(spec), Shm: spawn.Shm(spec.Limits),
		Rlimits: spawn.Rlimits(spec.Limits), Seccomp: i.d.filter,
	}.Encode()
	if err != nil {
		return err
	}
	if _, _, err := sock.WriteMsgUnix(message[:1], unix.UnixRights(mounts.FDs...), nil); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	if _, err := sock.Write(message[1:]); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	return nil
}

func scratch(spec sandbox.Spec) *walls.Tmpfs {
	if spec.Workspace != nil {
		return nil
	}
	return &walls.Tmpfs{Bytes: spec.Limits.DiskBytes, Inodes: spec.Limits.Inodes}
}
