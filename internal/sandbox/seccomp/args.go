package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
)

// Flags of clone that make namespaces.
const cloneNew = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000

// Address families, socket types and protocols that code may have.
const (
	afUNIX, afINET, afINET6, afNETLINK = 1, 2, 10, 16

	sockTypeMask                               = 0xf
	sockSTREAM, sockDGRAM, sockRAW, sockPACKET = 1, 2, 3, 10

	protoICMP, protoTCP, protoUDP, protoICMP6 = 1, 6, 17, 58

	netlinkROUTE = 0
)

const (
	tiocSETD  = 0x5423
	tiocSTI   = 0x5412
	tiocLINUX = 0x541c

	rlimitCORE = 4

	fNOTIFY = 1026
)

// socketRule is for threat 31: AF_VSOCK reaches the hypervisor out of an empty network namespace; and for threat 32: so do
// other families, and rare protocols of the internet, the kernel. SCTP, DCCP and MPTCP come by protocol number, the first
// two also by a socket type with protocol 0, and their modules are loaded on request.
var socketRule = slices.Concat([]bpf.Instruction{
	arg(0),
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: afUNIX, SkipTrue: 4},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: afINET, SkipTrue: 4},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: afINET6, SkipTrue: 3},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: afNETLINK, SkipTrue: 10 + 8},
	bpf.RetConstant{Val: retErrno | eAFNOSUPPORT},
	bpf.RetConstant{Val: retAllow},
	// internet families: streams and datagrams only
	arg(1),
	bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: sockTypeMask},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockSTREAM, SkipTrue: 5},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockDGRAM, SkipTrue: 4},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockRAW, SkipTrue: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockPACKET, SkipTrue: 1},
	bpf.RetConstant{Val: retErrno | eSOCKTNOSUPPORT},
	bpf.RetConstant{Val: retErrno | ePERM},
},
	oneOf(2, retErrno|ePROTONOSUPPORT, 0, protoICMP, protoTCP, protoUDP, protoICMP6),
	// netlink: reading addresses and routes, which getifaddrs needs
	oneOf(2, retErrno|ePROTONOSUPPORT, netlinkROUTE),
)

type condition struct {
	name string
	body []bpf.Instruction // returns on every path
}

// conditional are the calls that depend on an argument. Only the low word is compared, because that is all the kernel
// reads of an int: a rule on all 64 bits is passed by setting a high one.
var conditional = []condition{
	// Threat 25: no namespaces inside. clone3 has its flags in memory, out of reach of a filter, and gets ENOSYS.
	{"clone", []bpf.Instruction{
		arg(0),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: cloneNew, SkipTrue: 1},
		bpf.RetConstant{Val: retAllow},
		bpf.RetConstant{Val: retErrno | ePERM},
	}},
	{"socket", socketRule},
	{"socketpair", oneOf(0, retErrno|eAFNOSUPPORT, afUNIX)},
	// Threat 46: the older kind of watch.
	{"fcntl", noneOf(1, retErrno|ePERM, fNOTIFY)},
	// Threat 36: typing into somebody's terminal; line disciplines load kernel modules.
	{"ioctl", noneOf(1, retErrno|ePERM, tiocSTI, tiocLINUX, tiocSETD)},
	// Threat 40: READ_IMPLIES_EXEC and friends. -1 asks, 8 is PER_LINUX32, 0x20000 UNAME26.
	{"personality", oneOf(0, retErrno|ePERM, 0, 0x8, 0x20000, 0x20008, 0xffff_ffff)},
	// Threat 60: a limit of one byte, unlike zero, keeps the kernel from starting the host's core dump handler. Code must
	// not get down to zero; it is told that it did, because shells and tests commonly ask for it.
	{"setrlimit", noneOf(0, retSkip, rlimitCORE)},
	{"prlimit64", []bpf.Instruction{
		arg(1),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: rlimitCORE, SkipTrue: 5},
		arg(2),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
		bpf.LoadAbsolute{Off: offArgs + 8*2 + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: retSkip},
		bpf.RetConstant{Val: retAllow},
	}},
}

func arg(i uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArgs + 8*i, Size: 4} }

// oneOf allows a call whose argument is one of values and answers all others with otherwise.
func oneOf(i, otherwise uint32, values ...uint32) []bpf.Instruction {
	prog := []bpf.Instruction{arg(i)}
	for n, v := range values {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - n)})
	}
	return append(prog, bpf.RetConstant{Val: otherwise}, bpf.RetConstant{Val: retAllow})
}

// noneOf answers a call whose argument is one of values with verdict and allows all others.
func noneOf(i, verdict uint32, values ...uint32) []bpf.Instruction {
	prog := []bpf.Instruction{arg(i)}
	for n, v := range values {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - n)})
	}
	return append(prog, bpf.RetConstant{Val: retAllow}, bpf.RetConstant{Val: verdict})
}
