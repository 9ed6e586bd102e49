package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor/setup"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

// carried are the capabilities that runsc has inside the jail's user namespace, over leased ids: to make the namespaces
// and the empty roots of its own processes, and to serve files of every owner.
const carried = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP |
	1<<unix.CAP_SETFCAP | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_MKNOD |
	1<<unix.CAP_NET_ADMIN

// instance is one sandbox.
type instance struct {
	spawn.Instance
	d     *Driver
	spec  sandbox.Spec
	image string // folder of the checkpoint that it continues; empty = none

	control *net.UnixConn // orders to the launcher

	orders  sync.Mutex // guards the fields below, and what is sent and read
	greeted bool       // the launcher's first answer was read
	paused  bool       // by the last order of that kind
	owed    int        // answers to such orders that were not waited for long enough
}

// create makes one sandbox. What is expensive on our side runs while the launcher's runtime starts.
func (d *Driver) create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	return d.open(ctx, spec, "")
}

// open makes a sandbox or, with the folder of a checkpoint, continues one.
func (d *Driver) open(ctx context.Context, spec sandbox.Spec, image string) (*sandbox.Sandbox, error) {
	i := &instance{d: d, spec: spec, image: image}
	i.ID, i.Log, i.Together = spec.ID, d.host.Logger(), true
	conn, err := i.start(ctx)
	if err == nil {
		if err = conn.Ready(ctx); err != nil {
			err = errors.Join(err, i.answer(reasonWait))
		}
	}
	if err == nil {
		// No command has run yet, and none can before this function returns.
		err = i.Cgroup.LimitCPUs(spec.Limits.CPUs)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close() // the creation has failed already
		}
		return nil, i.Abandon(ctx, err)
	}
	return sandbox.New(spec, conn, i), nil
}

// pauseLimit is how long the sentry may take to stop or continue what runs inside, beside the caller's own limit.
const pauseLimit = 10 * time.Second

// SetFrozen implements sandbox.Instance. The sentry stops what runs inside. The host's freezer would stop the sentry and the
// processes that it lends to those inside, and of these the idle ones do not survive that twice: whatever got one of them
// next would be killed.
func (i *instance) SetFrozen(ctx context.Context, frozen bool) error {
	i.orders.Lock()
	defer i.orders.Unlock()
	err := i.greet()
	if err == nil && i.paused != frozen {
		call := setup.Resume
		if frozen {
			call = setup.Pause
		}
		// Sent once each: the sentry counts them.
		if err = i.send(setup.Order{Call: call}, nil); err == nil {
			i.paused, i.owed = frozen, i.owed+1
		}
	}
	for err == nil && i.owed > 0 {
		if err = i.answer(within(ctx, pauseLimit)); !errors.Is(err, os.ErrDeadlineExceeded) {
			i.owed--
		}
	}
	if err != nil {
		return fmt.Errorf("freeze sandbox %s: %w", i.ID, err)
	}
	return nil
}

// greet reads the launcher's first answer, once.
func (i *instance) greet() error {
	if i.greeted {
		return nil
	}
	i.greeted = true
	return i.answer(reasonWait)
}

// within is a limit that does not outlast the caller's own.
func within(ctx context.Context, limit time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(limit, time.Until(deadline))
	}
	return limit
}

// start takes the resources in the order in which Abandon gives them back.
func (i *instance) start(ctx context.Context) (*guest.Conn, error) {
	spec := i.spec
	var err error
	if i.Lease, err = i.d.ranges.Lease(); err != nil {
		return nil, err
	}
	if i.Cgroup, err = i.d.cgroups.Create(ctx, spec.ID, i.hostLimits()); err != nil {
		return nil, err
	}
	if err = i.Cgroup.EndTogether(); err != nil {
		return nil, fmt.Errorf("memory limit: %w: %w", sandbox.ErrCapacity, err)
	}
	rw, err := i.spawn()
	if err != nil {
		return nil, err
	}
	i.d.fleet.Add(&i.Instance)
	err = i.confine(rw)
	i.Watch()
	if err != nil {
		return nil, errors.Join(err, rw.Close())
	}
	return guest.NewConn(rw, guest.Options{Env: spawn.Environment(spec), Resume: i.image != "", OOMCount: i.OOMCount, OOMUnseen: true, Preload: spec.PreloadInForce()}), nil
}

// hostLimits are those around runsc. Each thread inside is up to three outside, and a sentry that cannot make one dies:
// the process limit proper is held inside. The start of runsc is its own work and may use every processor: held back by a
// limit for the code it would take twice as long. In what is continued code runs before anybody could set another limit.
func (i *instance) hostLimits() sandbox.Limits {
	l := i.spec.Limits
	l.Processes = 4*l.Processes + 512
	if i.image == "" {
		l.CPUs = max(l.CPUs, float64(runtime.NumCPU()))
	}
	return l
}

// spawn starts the launcher. The stream is the guest's; nothing comes over it before the launcher has been told what to do.
func (i *instance) spawn() (*stream, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w: %w", sandbox.ErrCapacity, err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "launcher")
	defer theirs.Close()
	if i.control, err = spawn.UnixConn(pair[0]); err != nil {
		return nil, err
	}
	rw, stdin, stdout, err := pipes()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	defer stdout.Close()
	stderr, err := i.Stderr.Open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stderr pipe: %w: %w", sandbox.ErrCapacity, err), rw.Close())
	}
	defer stderr.Close()
	i.Proc, err = i.d.spawn.Start(spawn.Child{
		// Nothing of the server's environment.
		Args: []string{"airlock-launch", "launch"}, Env: []string{"GOMAXPROCS=1"},
		Cgroup: i.Cgroup.FD(), Range: i.Lease, Files: [4]*os.File{stdin, stdout, stderr, theirs},
		Caps: carried, Inherit: true,
	})
	if err != nil {
		return nil, errors.Join(err, rw.Close())
	}
	return rw, nil
}

// pipes are two one-way channels: a checkpoint can be restored on new pipes, not on new sockets.
func pipes() (rw *stream, stdin, stdout *os.File, err error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("pipe of guest: %w: %w", sandbox.ErrCapacity, err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("pipe of guest: %w: %w", sandbox.ErrCapacity, err), stdin.Close(), in.Close())
	}
	return &stream{in: in, out: out}, stdin, stdout, nil
}

// stream begins with the guest's answer to its message, which its own protocol follows. Nobody waits for it alone: the
// greeting is on its way meanwhile.
type stream struct {
	in, out  *os.File
	confined bool
}

// Read is called by the connection's one reader.
func (s *stream) Read(p []byte) (int, error) {
	if !s.confined {
		if err := walls.ReadStatus(s.out); err != nil {
			return 0, err
		}
		s.confined = true
	}
	return s.out.Read(p)
}

// Write leaves it to Read to say that the guest is gone.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.in.Write(p)
	if errors.Is(err, unix.EPIPE) {
		return len(p), nil
	}
	return n, err
}

// SetWriteDeadline is how the connection notices a guest that no longer reads.
func (s *stream) SetWriteDeadline(t time.Time) error { return s.in.SetWriteDeadline(t) }

func (s *stream) Close() error { return errors.Join(s.in.Close(), s.out.Close()) }

// confine puts the waiting launcher under its limits and tells it and the guest what to do.
func (i *instance) confine(rw *stream) error {
	if err := i.Cgroup.Join(i.Proc.Pid); err != nil {
		return fmt.Errorf("join cgroups: %w", err)
	}
	// The launcher is not reaped before Watch runs, so its pid cannot mean another process here.
	userns, err := os.Open("/proc/" + strconv.Itoa(i.Proc.Pid) + "/ns/user")
	if err != nil {
		return fmt.Errorf("user namespace of launcher: %w", err)
	}
	defer userns.Close()
	mounts, err := i.mounts(int(userns.Fd()))
	defer mounts.Close() //nolint:staticcheck // also on failure: it holds those made before
	if err != nil {
		return err
	}
	config, err := bundleOf(i.spec)
	if err != nil {
		return err
	}
	start := i.d.command("run", "--detach", "--bundle="+setup.Bundle, setup.Container)
	if i.image != "" {
		start = i.d.command("restore", "--detach", "--image-path="+setup.Image, "--bundle="+setup.Bundle, setup.Container)
	}
	jail := setup.Jail{
		Mounts: mounts.Targets, Scratch: scratch(i.spec), Memory: i.spec.Limits.MemoryBytes, Bundle: config,
		Rlimits: [][3]uint64{{unix.RLIMIT_CORE, 1, 1}}, Start: start, Direct: i.direct(),
	}
	if err := i.send(jail, mounts.FDs); err != nil {
		return err
	}
	if i.image != "" {
		rw.confined = true // it was, before it was written
		return nil
	}
	inside, err := walls.Encode(setup.Inside{
		Seccomp: i.d.filter, Processes: i.spec.Limits.Processes, Shm: spawn.Shm(i.spec.Limits),
	})
	if err != nil {
		return err
	}
	// It waits in the pipe, which holds more than that, until the guest lives.
	if _, err := rw.Write(inside); err != nil {
		return fmt.Errorf("send setup to guest: %w", err)
	}
	return nil
}

// direct says how to start gofer and sentry without runsc's own start, which is known of one build of it. Any other, and a
// checkpoint, is left to runsc.
func (i *instance) direct() *setup.Direct {
	version, err := i.d.version()
	if err != nil || version != Version || i.d.platform != "systrap" || i.image != "" {
		return nil
	}
	return &setup.Direct{Flags: i.d.command(), Mounts: bindMounts(), IDs: sandbox.RangeSize}
}

// mounts makes the mounts that need rights outside the jail.
func (i *instance) mounts(userns int) (*spawn.Mounts, error) {
	m := &spawn.Mounts{}
	if err := m.AddFiles(i.spec, setup.RootFS, setup.Disk, userns); err != nil {
		return m, err
	}
	dev, err := spawn.DeviceFolder(userns)
	if err := m.Add("/dev", dev, err); err != nil {
		return m, err
	}
	const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	guest, err := spawn.CloneFile(i.d.folder, attr)
	if err := m.Add(setup.Guest, guest, err); err != nil {
		return m, err
	}
	if i.image != "" {
		image, err := spawn.Clone(unix.AT_FDCWD, i.image, attr|unix.MOUNT_ATTR_NOEXEC, userns)
		if err := m.Add(setup.Image, image, err); err != nil {
			return m, err
		}
	}
	runsc, err := spawn.CloneFile(i.d.runsc, attr)
	return m, m.Add(setup.Runsc, runsc, err)
}

// command are the arguments of one call of runsc.
func (d *Driver) command(args ...string) []string {
	return append([]string{
		"--root=" + setup.State, "--platform=" + d.platform,
		// No device but a loopback that the sentry makes up.
		"--network=none",
		// Its limits are ours.
		"--ignore-cgroups",
		// What is written goes to the workspace, whose size is the limit, never into memory that nothing bounds.
		"--overlay2=none",
		// The host's settings are the operator's.
		"--host-settings=ignore",
	}, args...)
}

// send gives the launcher a message with mounts.
func (i *instance) send(v any, fds []int) error {
	message, err := walls.Encode(v)
	if err != nil {
		return err
	}
	if _, _, err := i.control.WriteMsgUnix(message[:1], unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	if _, err := i.control.Write(message[1:]); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	return nil
}

// reasonWait is how long a launcher whose guest is gone may take to say why.
const reasonWait = time.Second

// answer reads the launcher's next answer.
func (i *instance) answer(within time.Duration) error {
	if err := i.control.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	return walls.ReadStatus(i.control)
}

// Destroy implements sandbox.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	err := i.Instance.Destroy(ctx)
	if i.control != nil {
		_ = i.control.Close() // repeatable, and nothing waits in it
	}
	return err
}

func scratch(spec sandbox.Spec) *walls.Tmpfs {
	if spec.Workspace != nil {
		return nil
	}
	return &walls.Tmpfs{Bytes: spec.Limits.DiskBytes, Inodes: spec.Limits.Inodes}
}
