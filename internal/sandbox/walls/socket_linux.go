package walls

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Socket is a blocking stream socket read by plain system calls: the runtime's poller would open descriptors of its own.
type Socket int

func (s Socket) Write(p []byte) (int, error) {
	for {
		n, err := unix.Write(int(s), p)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

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
	oob := make([]byte, unix.CmsgSpace(4*MaxMounts))
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
