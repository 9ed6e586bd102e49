package main

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sockets asks for a socket of every family there is, in the types that each
// could have.
func sockets([]string) error {
	types := []struct {
		name string
		bits int
	}{{"STREAM", unix.SOCK_STREAM}, {"DGRAM", unix.SOCK_DGRAM}, {"RAW", unix.SOCK_RAW}, {"SEQPACKET", unix.SOCK_SEQPACKET}, {"PACKET", unix.SOCK_PACKET}}
	for family := range 46 {
		for _, t := range types {
			say(trySocket(fmt.Sprintf("%d/%s", family, t.name), family, t.bits, 0))
		}
	}
	// Every netlink family; route is the one that tools need.
	for protocol := range 23 {
		say(trySocket(fmt.Sprintf("netlink/%d", protocol), unix.AF_NETLINK, unix.SOCK_RAW, protocol))
	}
	// The kernel looks at 32 bits of the family, a filter may see 64.
	high := int(uint64(1)<<32 | unix.AF_VSOCK)
	r, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(high), unix.SOCK_STREAM, 0)
	say(answer{Name: "vsock+high", Value: int64(r), Errno: errnoName(errno), Num: int(errno)})
	r, _, errno = unix.RawSyscall6(unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_STREAM, 0, bad, 0, 0)
	say(answer{Name: "socketpair/tipc", Value: int64(r), Errno: errnoName(errno), Num: int(errno)})
	return nil
}

func trySocket(name string, family, kind, protocol int) answer {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		_ = unix.Close(fd)
	}
	return answer{Name: name}.with(err)
}

// connect tries addresses of the form network,address and says how long the
// answer took, in milliseconds.
func connect(args []string) error {
	for _, arg := range args {
		network, address, _ := strings.Cut(arg, ",")
		start := time.Now()
		conn, err := net.DialTimeout(network, address, 5*time.Second)
		result := answer{Name: arg, Value: time.Since(start).Milliseconds()}
		if err == nil {
			// UDP "connects" without a packet; the write is the attempt.
			_, err = conn.Write([]byte("airlock probe"))
			_ = conn.Close()
		}
		say(result.with(err))
	}
	_, err := net.LookupHost("example.com")
	result := answer{Name: "dns"}
	if err != nil {
		result.Errno = err.Error()
	}
	say(result)
	return nil
}

// connectUnix dials unix sockets by path, or abstract with a leading @.
func connectUnix(args []string) error {
	runtime.LockOSThread()
	for _, name := range args {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			say(answer{Name: name}.with(err))
			continue
		}
		say(answer{Name: name}.with(unix.Connect(fd, &unix.SockaddrUnix{Name: name})))
		_ = unix.Close(fd)
	}
	return nil
}

// ifaces lists the network devices, and whether loopback carries data.
func ifaces([]string) error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		say(answer{Name: i.Name, Text: i.Flags.String()})
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		say(answer{Name: "loopback " + address}.with(overLoopback(address)))
	}
	return nil
}

func overLoopback(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
