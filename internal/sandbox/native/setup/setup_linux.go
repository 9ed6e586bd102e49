package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run turns the calling process, which must be the first one of fresh namespaces, into a confined one. It must run on the
// main thread, locked, before the program has made any file descriptor of its own. The failure has been told to the other
// end of fd when it returns one; the process must then end.
//
// The process starts without an id of its namespace, which is mapped by the time the setup arrives, and with the
// capabilities it needs.
//
// The steps are in the only order that works: mounts need capabilities and /proc of the old root, pivot_root needs the
// mounts, limits and capabilities come after the last privileged step, the system call filter last because it refuses
// the steps before it.
func Run(fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := Socket(fd)
	err := confine(s)
	if werr := WriteStatus(s, err); err == nil {
		err = werr
	}
	return err
}

func confine(s Socket) error {
	// Whatever the server leaked by mistake ends here, before anything else runs.
	if err := unix.CloseRange(uint(s)+1, ^uint(0), 0); err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	// Until this is 0 code of the same user namespace could read our memory; there is none yet.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set dumpable: %w", err)
	}
	var c Config
	fds, err := s.Receive(&c)
	if err == nil && len(fds) != len(c.Mounts) {
		err = fmt.Errorf("got %d mounts, want %d", len(fds), len(c.Mounts))
	}
	if err != nil {
		return err
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"cores", KeepCores},
		{"ids", BecomeRoot},
		{"mounts", func() error { return mountAll(c, fds) }},
		{"host name", func() error { return unix.Sethostname([]byte(c.Hostname)) }},
		{"loopback", loopbackUp},
		{"limits", func() error { return SetRlimits(c.Rlimits) }},
		{"capabilities", DropCapabilities},
		{"seccomp", func() error { return LoadFilter(c.Seccomp) }},
	}
	for _, step := range steps {
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// Socket is a blocking stream socket read by plain system calls: the runtime's poller would open descriptors of its own.
type Socket int

func (s Socket) Write(p []byte) (int, error) { return unix.Write(int(s), p) }

func (s Socket) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		return max(n, 0), err
	}
}

// Receive reads one message into v; its first byte carries the descriptors that are returned.
func (s Socket) Receive(v any) ([]int, error) {
	var head [1]byte
	oob := make([]byte, unix.CmsgSpace(4*maxMounts))
	n, oobn, err := s.receive(head[:], oob)
	if err != nil {
		return nil, fmt.Errorf("receive setup: %w", err)
	}
	body, err := ReadFrame(io.MultiReader(&once{head[:n]}, s))
	if err != nil {
		return nil, fmt.Errorf("receive setup: %w", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("decode setup: %w", err)
	}
	return rights(oob[:oobn])
}

func (s Socket) receive(p, oob []byte) (n, oobn int, err error) {
	for {
		n, oobn, _, _, err = unix.Recvmsg(int(s), p, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		return n, oobn, err
	}
}

func rights(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var fds []int
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, fmt.Errorf("control message: %w", err)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// once is a reader of bytes that have been read already.
type once struct{ p []byte }

func (o *once) Read(p []byte) (int, error) {
	if len(o.p) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.p)
	o.p = o.p[n:]
	return n, nil
}
