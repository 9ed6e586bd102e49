package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native/setup"
)

// create makes one sandbox. What is expensive on our side runs while the child's runtime starts.
func (d *Driver) create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	i := &instance{d: d, id: spec.ID, exited: make(chan struct{})}
	conn, err := i.start(ctx, spec)
	if err == nil {
		err = conn.Ready(ctx)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close() // the creation has failed already
		}
		return nil, i.abandon(ctx, err)
	}
	return sandbox.New(spec, conn, i), nil
}

// start takes the resources in the order in which abandon gives them back, and confines the child.
func (i *instance) start(ctx context.Context, spec sandbox.Spec) (*guest.Conn, error) {
	var err error
	if i.lease, err = i.d.ranges.Lease(); err != nil {
		return nil, err
	}
	if i.cgroup, err = i.d.cgroups.Create(ctx, spec.ID, spec.Limits); err != nil {
		return nil, err
	}
	sock, err := i.spawn()
	if err != nil {
		return nil, err
	}
	i.d.remember(i)
	err = i.confine(sock, spec)
	go i.watch()
	if err != nil {
		return nil, errors.Join(err, sock.Close())
	}
	return guest.NewConn(&stream{UnixConn: sock}, guest.Options{Env: environment(spec), OOMCount: i.oomCount}), nil
}

// spawn starts the child, which waits on the other end of the returned socket.
func (i *instance) spawn() (*net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w: %w", sandbox.ErrCapacity, err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "guest")
	defer theirs.Close()
	sock, err := unixConn(pair[0])
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
	stderr, err := i.stderr.open()
	if err != nil {
		return fmt.Errorf("stderr pipe: %w: %w", sandbox.ErrCapacity, err)
	}
	defer stderr.Close()
	i.proc, err = i.d.spawn.start(i.cgroup.FD(), i.lease, [4]*os.File{null, null, stderr, theirs})
	return err
}

func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "sandbox")
	defer f.Close() // FileConn has its own copy
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("socket of guest: %w", err)
	}
	return c.(*net.UnixConn), nil
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
		if err := setup.ReadStatus(s.UnixConn); err != nil {
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
	if err := i.cgroup.Join(i.proc.Pid); err != nil {
		return fmt.Errorf("join cgroups: %w", err)
	}
	// The child is not reaped before watch runs, so its pid cannot mean another process here.
	userns, err := os.Open("/proc/" + strconv.Itoa(i.proc.Pid) + "/ns/user")
	if err != nil {
		return fmt.Errorf("user namespace of guest: %w", err)
	}
	defer userns.Close()
	mounts, err := buildMounts(spec, int(userns.Fd()))
	defer mounts.close()
	if err != nil {
		return err
	}
	message, err := setup.Config{
		Hostname: spec.Hostname, Mounts: mounts.targets, Scratch: scratch(spec), Shm: shm(spec.Limits),
		Rlimits: rlimits(spec.Limits), Seccomp: i.d.filter,
	}.Encode()
	if err != nil {
		return err
	}
	if _, _, err := sock.WriteMsgUnix(message[:1], unix.UnixRights(mounts.fds...), nil); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	if _, err := sock.Write(message[1:]); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	return nil
}

// abandon destroys what a failed creation has made and adds what the guest last wrote.
func (i *instance) abandon(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyLimit)
	defer cancel()
	if err := i.Destroy(ctx); err != nil {
		cause = fmt.Errorf("%w (and clean-up: %w)", cause, err)
	}
	if tail := i.stderr.tail(); tail != "" {
		cause = fmt.Errorf("%w; guest wrote: %s", cause, tail)
	}
	return cause
}

// environment is what commands inside see beside the guest's own variables. Numeric libraries size themselves by the
// processors of the host, which /proc shows, and not by the limit.
func environment(spec sandbox.Spec) map[string]string {
	threads := strconv.Itoa(max(1, int(math.Ceil(spec.Limits.CPUs))))
	env := map[string]string{}
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"} {
		env[name] = threads
	}
	maps.Copy(env, spec.Env)
	return env
}

func scratch(spec sandbox.Spec) *setup.Tmpfs {
	if spec.Workspace != nil {
		return nil
	}
	return &setup.Tmpfs{Bytes: spec.Limits.DiskBytes, Inodes: spec.Limits.Inodes}
}

// shm is charged to the memory limit; its own size only keeps one mistake from taking all of it.
func shm(l sandbox.Limits) setup.Tmpfs {
	return setup.Tmpfs{Bytes: l.MemoryBytes / 2, Inodes: min(l.Inodes, 16384)}
}

// rlimits hold per process, beside the limits of the whole sandbox.
func rlimits(l sandbox.Limits) [][3]uint64 {
	const stack = 8 << 20
	want := [][3]uint64{
		{unix.RLIMIT_NOFILE, uint64(l.OpenFiles), uint64(l.OpenFiles)},
		{unix.RLIMIT_FSIZE, uint64(l.FileBytes), uint64(l.FileBytes)},
		{unix.RLIMIT_NPROC, uint64(l.Processes), uint64(l.Processes)},
		// Threat 60: one byte, because with zero the kernel would still start a core_pattern handler on the host.
		{unix.RLIMIT_CORE, 1, 1},
		{unix.RLIMIT_MEMLOCK, 64 << 10, 64 << 10},
		{unix.RLIMIT_MSGQUEUE, 800 << 10, 800 << 10},
		{unix.RLIMIT_STACK, stack, unix.RLIM_INFINITY},
		{unix.RLIMIT_NICE, 0, 0},
		{unix.RLIMIT_RTPRIO, 0, 0},
	}
	for n, w := range want {
		var have unix.Rlimit
		// A limit can only be lowered without CAP_SYS_RESOURCE, which the server itself may lack.
		if unix.Getrlimit(int(w[0]), &have) == nil {
			want[n][1], want[n][2] = min(w[1], have.Max), min(w[2], have.Max)
		}
	}
	return want
}
