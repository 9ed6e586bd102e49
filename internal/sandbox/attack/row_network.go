package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

func networkThreats() []Threat {
	return []Threat{
		{30, "Connect", "fails at once; no packet reaches the host", inBox(connects)},
		{31, "Vsock", "the socket cannot be made", inBox(vsock)},
		{32, "RareSockets", "only unix, inet, inet6 and netlink route exist", inBox(rareSockets)},
		{33, "UnixSocketsOfTheHost", "not reachable", inBox(unixSockets)},
	}
}

// ears are listeners on the host that count who comes.
type ears struct {
	closers []func() error
	heard   atomic.Int64
	group   sync.WaitGroup
}

func (e *ears) listen(network, address string) (net.Addr, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, l.Close)
	e.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.heard.Add(1)
			// Only that it came counts.
			_ = c.Close()
		}
	})
	return l.Addr(), nil
}

func (e *ears) listenPacket(address string) (net.Addr, error) {
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, c.Close)
	e.group.Go(func() {
		for {
			if _, _, err := c.ReadFrom(make([]byte, 64)); err != nil {
				return
			}
			e.heard.Add(1)
		}
	})
	return c.LocalAddr(), nil
}

func (e *ears) close() error {
	var errs []error
	for _, c := range e.closers {
		errs = append(errs, c())
	}
	e.group.Wait()
	return errors.Join(errs...)
}

// hostAddresses are what the interfaces of the host have.
func hostAddresses() ([]string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, a := range addresses {
		if n, isNet := a.(*net.IPNet); isNet && !n.IP.IsLinkLocalUnicast() {
			all = append(all, n.IP.String())
		}
	}
	return all, nil
}

func connects(ctx context.Context, b *Box, f *findings) (err error) {
	var e ears
	defer func() { err = errors.Join(err, e.close()) }()
	tcp, err := e.listen("tcp", ":0")
	if err != nil {
		return err
	}
	udp, err := e.listenPacket(":0")
	if err != nil {
		return err
	}
	targets := []string{
		"tcp,1.1.1.1:443", "tcp,169.254.169.254:80", "tcp,10.0.0.1:80", "tcp,172.17.0.1:80", "tcp,192.168.1.1:53",
		"tcp,[2606:4700:4700::1111]:443", "tcp,[fe80::1]:80", "udp,1.1.1.1:53", "udp,255.255.255.255:67", "udp,224.0.0.251:5353", "ip4:icmp,1.1.1.1",
	}
	own, err := hostAddresses()
	if err != nil {
		return err
	}
	for _, address := range append(own, "127.0.0.1", "::1", "0.0.0.0") {
		targets = append(targets, "tcp,"+net.JoinHostPort(address, port(tcp)), "udp,"+net.JoinHostPort(address, port(udp)))
	}
	answers, out, err := b.Probe(ctx, append([]string{"connect"}, targets...)...)
	if err != nil {
		return err
	}
	f.want(len(answers) == len(targets)+1, "the probe ended early: %v", out)
	for _, a := range answers {
		// A datagram to the sandbox's own loopback goes nowhere without error.
		local := strings.HasPrefix(a.Name, "udp,") && strings.HasSuffix(a.Name, ":"+port(udp))
		f.want(a.Errno != "" || local, "%s: connected", a.Name)
		f.want(a.Value < 3000, "%s: answered after %d ms, want at once", a.Name, a.Value)
	}
	f.want(e.heard.Load() == 0, "the host heard %d packets", e.heard.Load())
	devices, _, err := b.Probe(ctx, "ifaces")
	for _, a := range devices {
		if strings.HasPrefix(a.Name, "loopback ") {
			f.want(a.Errno == "", "%s inside: %s", a.Name, a.Errno)
			continue
		}
		f.want(a.Name == "lo", "there is a device %s (%s)", a.Name, a.Text)
	}
	return err
}

func port(a net.Addr) string {
	_, p, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return p
}

func vsock(ctx context.Context, b *Box, f *findings) error {
	answers, out, err := b.Probe(ctx, "sockets")
	if err != nil {
		return err
	}
	tried := 0
	for _, a := range answers {
		if strings.HasPrefix(a.Name, "40/") || a.Name == "vsock+high" {
			tried++
			f.want(a.Refused() || a.Errno == "EAFNOSUPPORT", "AF_VSOCK as %s: %q", a.Name, a.Errno)
		}
	}
	f.want(tried == 6, "%d of 6 attempts were made: %v", tried, out)
	return nil
}

// allowedSockets are the families by number: unix, inet, inet6, and route
// alone of netlink.
var allowedSockets = []string{
	"1/STREAM", "1/DGRAM", "1/RAW", "1/SEQPACKET", "2/STREAM", "2/DGRAM", "10/STREAM", "10/DGRAM", "16/RAW", "16/DGRAM", "netlink/0",
}

func rareSockets(ctx context.Context, b *Box, f *findings) error {
	answers, out, err := b.Probe(ctx, "sockets")
	if err != nil {
		return err
	}
	f.want(len(answers) == 46*5+23+2, "%d attempts were made: %v", len(answers), out)
	for _, a := range answers {
		if slices.Contains(allowedSockets, a.Name) {
			f.want(a.Errno == "" || strings.HasPrefix(a.Name, "1/RAW"), "%s, which programs need: %s", a.Name, a.Errno)
			continue
		}
		f.want(a.Errno != "", "a socket of family %s was made", a.Name)
		f.want(a.Errno != "EFAULT", "%s reached the kernel: %s", a.Name, a.Errno)
	}
	return nil
}

func unixSockets(ctx context.Context, b *Box, f *findings) (err error) {
	var e ears
	defer func() { err = errors.Join(err, e.close()) }()
	abstract := "@airlock-" + b.env.Host.ID
	path := filepath.Join(os.TempDir(), fmt.Sprintf("airlock-%s.sock", b.env.Host.ID))
	for _, name := range []string{abstract, path} {
		if _, err := e.listen("unix", name); err != nil {
			return err
		}
	}
	answers, out, err := b.Probe(ctx, "unix", abstract, path, "/proc/self/root"+path, "/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0", "@/tmp/.X11-unix/X0",
		"/run/systemd/journal/socket", "/run/systemd/private", "/dev/log", "/run/docker.sock", "/run/containerd/containerd.sock")
	if err != nil {
		return err
	}
	f.want(len(answers) == 11, "%s attempts were made: %v", strconv.Itoa(len(answers)), out)
	for _, a := range answers {
		f.want(slices.Contains([]string{"ECONNREFUSED", "ENOENT", "EACCES"}, a.Errno), "%s: %q", a.Name, a.Errno)
	}
	f.want(e.heard.Load() == 0, "the host heard %d connections", e.heard.Load())
	return nil
}
