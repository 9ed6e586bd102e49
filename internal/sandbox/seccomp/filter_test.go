package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

// verdict runs a filter as the kernel would. The machine of x/net reads big-endian words where the kernel reads native
// ones, so each word of the call data is laid out for it.
func verdict(t *testing.T, goarch string, audit, nr uint32, args ...uint64) string {
	t.Helper()
	raw, err := filter(goarch)
	if err != nil {
		t.Fatal(err)
	}
	var prog []bpf.Instruction
	for i := 0; i < len(raw); i += 8 {
		in := bpf.RawInstruction{
			Op: binary.NativeEndian.Uint16(raw[i:]), Jt: raw[i+2], Jf: raw[i+3], K: binary.NativeEndian.Uint32(raw[i+4:]),
		}
		prog = append(prog, in.Disassemble())
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	data := binary.BigEndian.AppendUint32(nil, nr)
	data = binary.BigEndian.AppendUint32(data, audit)
	data = append(data, make([]byte, 8)...) // instruction pointer
	for _, a := range append(args, make([]uint64, 6-len(args))...) {
		data = binary.BigEndian.AppendUint32(data, uint32(a))
		data = binary.BigEndian.AppendUint32(data, uint32(a>>32))
	}
	ret, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	switch r := uint32(ret); {
	case r == retAllow:
		return "allow"
	case r == retKill:
		return "kill"
	case r&^0xffff == retErrno:
		return fmt.Sprintf("errno %d", r&0xffff)
	default:
		return fmt.Sprintf("%#x", r)
	}
}

func TestFilterDecidesByCallAndArgument(t *testing.T) {
	t.Parallel()
	const high = 1 << 32 // a bit that the kernel drops from an int
	cases := []struct {
		name string
		call string
		args []uint64
		want string
	}{
		{"ordinary call", "read", nil, "allow"},
		{"thread", "clone", []uint64{0x3d0f00}, "allow"},
		{"user namespace", "clone", []uint64{0x1000_0011}, "errno 1"},
		{"any namespace", "clone", []uint64{0x0002_0000}, "errno 1"},
		{"unfilterable clone falls back", "clone3", nil, "errno 38"},
		{"unshare", "unshare", []uint64{0x1000_0000}, "errno 1"},
		{"mount", "mount", nil, "errno 1"},
		{"new mount call", "move_mount", nil, "errno 1"},
		{"unknown mount call", "open_tree_attr", nil, "errno 38"},
		{"ptrace", "ptrace", nil, "errno 1"},
		{"bpf", "bpf", nil, "errno 1"},
		{"keyring", "add_key", nil, "errno 1"},
		{"io_uring", "io_uring_setup", nil, "errno 38"},
		{"unix socket", "socket", []uint64{1, 1, 0}, "allow"},
		{"tcp", "socket", []uint64{2, 1 | 0o2000000, 6}, "allow"},
		{"tcp6", "socket", []uint64{10, 1, 0}, "allow"},
		{"raw", "socket", []uint64{2, 3, 1}, "errno 1"},
		{"raw with flags", "socket", []uint64{10, 3 | 0o2000000, 58}, "errno 1"},
		{"packet by type", "socket", []uint64{2, 10, 0}, "errno 1"},
		{"udp", "socket", []uint64{2, 2, 17}, "allow"},
		{"ping", "socket", []uint64{2, 2, 1}, "allow"},
		{"ping6", "socket", []uint64{10, 2, 58}, "allow"},
		{"sctp", "socket", []uint64{2, 1, 132}, "errno 93"},
		{"sctp by type", "socket", []uint64{10, 5, 0}, "errno 94"},
		{"dccp", "socket", []uint64{2, 2, 33}, "errno 93"},
		{"dccp by type", "socket", []uint64{2, 6, 0}, "errno 94"},
		{"mptcp", "socket", []uint64{10, 1, 262}, "errno 93"},
		{"mptcp with a high bit", "socket", []uint64{2, 1, 262 | high}, "errno 93"},
		{"mptcp with flags", "socket", []uint64{2, 1 | 0o2004000, 262}, "errno 93"},
		{"udplite", "socket", []uint64{2, 2, 136}, "errno 93"},
		{"route", "socket", []uint64{16, 3, 0}, "allow"},
		{"audit netlink", "socket", []uint64{16, 3, 9}, "errno 93"},
		{"vsock", "socket", []uint64{40, 1, 0}, "errno 97"},
		{"vsock with a high bit", "socket", []uint64{40 | high, 1, 0}, "errno 97"},
		{"packet", "socket", []uint64{17, 3, 0}, "errno 97"},
		{"crypto", "socket", []uint64{38, 5, 0}, "errno 97"},
		{"raw with a high bit", "socket", []uint64{2, 3 | high, 1}, "errno 1"},
		{"pair", "socketpair", []uint64{1, 1, 0}, "allow"},
		{"tipc pair", "socketpair", []uint64{30, 1, 0}, "errno 97"},
		{"window size", "ioctl", []uint64{0, 0x5413}, "allow"},
		{"typing", "ioctl", []uint64{0, 0x5412}, "errno 1"},
		{"typing with a high bit", "ioctl", []uint64{0, 0x5412 | high}, "errno 1"},
		{"console", "ioctl", []uint64{0, 0x541c}, "errno 1"},
		{"line discipline", "ioctl", []uint64{0, 0x5423}, "errno 1"},
		{"watch a folder", "fcntl", []uint64{3, 1026, 1}, "errno 1"},
		{"watch a folder with a high bit", "fcntl", []uint64{3, 1026 | high, 1}, "errno 1"},
		{"status of a descriptor", "fcntl", []uint64{3, 3}, "allow"},
		{"watch files", "inotify_init1", []uint64{0}, "errno 38"},
		{"query personality", "personality", []uint64{0xffff_ffff}, "allow"},
		{"linux32", "personality", []uint64{8}, "allow"},
		{"executable data", "personality", []uint64{0x0400000}, "errno 1"},
		{"executable data with a high bit", "personality", []uint64{0x0400000 | high}, "errno 1"},
		{"read the core limit", "prlimit64", []uint64{0, 4, 0, 1}, "allow"},
		{"set the core limit", "prlimit64", []uint64{0, 4, 0xdead, 0}, "errno 0"},
		{"set the core limit by a high address", "prlimit64", []uint64{0, 4, high, 0}, "errno 0"},
		{"set another limit", "prlimit64", []uint64{0, 7, 0xdead, 0}, "allow"},
		{"set the core limit, old call", "setrlimit", []uint64{4}, "errno 0"},
		{"set another limit, old call", "setrlimit", []uint64{7}, "allow"},
	}
	for _, goarch := range []string{"amd64", "arm64"} {
		info, err := archInfo(goarch)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			nr, found := info.SyscallNames[c.call]
			if !found {
				nr = map[string]int{"open_tree_attr": 467}[c.call]
			}
			if got := verdict(t, goarch, uint32(info.ID), uint32(nr), c.args...); got != c.want {
				t.Errorf("%s: %s: %s%v is %q, want %q", goarch, c.name, c.call, c.args, got, c.want)
			}
		}
	}
}

func TestFilterKillsOtherCallTables(t *testing.T) {
	t.Parallel()
	amd, _ := archInfo("amd64")
	arm, _ := archInfo("arm64")
	const auditI386 = 0x4000_0003
	for name, got := range map[string]string{
		"i386":         verdict(t, "amd64", auditI386, 1),
		"x32":          verdict(t, "amd64", uint32(amd.ID), x32Bit|1),
		"arm on amd64": verdict(t, "amd64", uint32(arm.ID), 1),
		"amd on arm64": verdict(t, "arm64", uint32(amd.ID), 1),
	} {
		if got != "kill" {
			t.Errorf("%s: %s, want kill", name, got)
		}
	}
}

func TestFilterListsAreSortedAndDisjoint(t *testing.T) {
	t.Parallel()
	var special []string
	for _, c := range conditional {
		special = append(special, c.name)
	}
	for _, list := range [][]string{allowed, refused, legacy} {
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Error("a list is not sorted or has a name twice")
		}
	}
	for _, name := range allowed {
		if slices.Contains(refused, name) || slices.Contains(special, name) {
			t.Errorf("%s is allowed and restricted", name)
		}
	}
	for _, name := range refused {
		if strings.HasPrefix(name, "clone") || slices.Contains(special, name) {
			t.Errorf("%s is refused and conditional", name)
		}
	}
}

func TestFilterFitsTheKernel(t *testing.T) {
	t.Parallel()
	for _, goarch := range []string{"amd64", "arm64"} {
		p, err := filter(goarch)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p) / 8; n > 4096 {
			t.Errorf("%s: %d instructions, the kernel takes 4096", goarch, n)
		}
	}
	if _, err := filter("mips"); err == nil {
		t.Error("an architecture without a list was accepted")
	}
}
