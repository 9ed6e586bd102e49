package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

// Return values of a filter program (linux/seccomp.h).
const (
	retKill  = 0x8000_0000 // the whole process, SIGSYS
	retErrno = 0x0005_0000 // plus an errno
	retSkip  = retErrno    // plus none: the call is skipped and reports success
	retAllow = 0x7fff_0000
)

// Errnos are spelled here because a filter for one architecture is also assembled, and tested, on another system.
const (
	ePERM           = 1
	eNOSYS          = 38
	ePROTONOSUPPORT = 93
	eSOCKTNOSUPPORT = 94
	eAFNOSUPPORT    = 97
)

// Offsets in struct seccomp_data. Both architectures are little-endian: the low word of an argument comes first.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32Bit marks a system call of the x32 ABI, which shares the architecture word with amd64.
const x32Bit = 0x4000_0000

// filter assembles the program for an architecture in Go's naming. Everything that is not listed gets ENOSYS, so that C
// libraries fall back from calls which are younger than the list.
func filter(goarch string) ([]byte, error) {
	info, err := archInfo(goarch)
	if err != nil {
		return nil, err
	}
	numbers := func(names []string) ([]uint32, error) { return lookup(info, names) }
	allow, err := numbers(append(slices.Clone(allowed), allowedOn[goarch]...))
	if err != nil {
		return nil, err
	}
	refuse, err := numbers(refused)
	if err != nil {
		return nil, err
	}
	// Threat 39: a 64-bit program that enters by int 0x80 or with the x32 bit reaches another call table, in which our
	// numbers mean something else. It dies.
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
	}
	for _, c := range conditional {
		nr, found := info.SyscallNames[c.name]
		if !found {
			continue // arm64 lacks the older forms
		}
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(nr), SkipTrue: uint8(len(c.body))})
		prog = append(prog, c.body...)
	}
	prog = append(prog, inSet(allow, retAllow)...)
	prog = append(prog, inSet(refuse, retErrno|ePERM)...)
	prog = append(prog, bpf.RetConstant{Val: retErrno | eNOSYS})
	return encode(prog)
}

// Host is the program for the machine this runs on.
func Host() ([]byte, error) { return filter(runtime.GOARCH) }

func archInfo(goarch string) (*arch.Info, error) {
	switch goarch {
	case "amd64":
		return arch.X86_64, nil
	case "arm64":
		return arch.AARCH64, nil
	default:
		return nil, fmt.Errorf("no system call list for %s", goarch)
	}
}

// lookup turns names into sorted numbers. Calls that an architecture never had are listed in missing; any other unknown
// name is a misspelling.
func lookup(info *arch.Info, names []string) ([]uint32, error) {
	var out []uint32
	for _, name := range names {
		nr, found := info.SyscallNames[name]
		switch {
		case found:
			out = append(out, uint32(nr))
		case !slices.Contains(legacy, name):
			return nil, fmt.Errorf("unknown system call %q on %s", name, info.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// inSet returns action for all numbers of a sorted set, one comparison pair per stretch without a gap. The accumulator
// holds the number before and after.
func inSet(set []uint32, action uint32) []bpf.Instruction {
	var prog []bpf.Instruction
	for i := 0; i < len(set); {
		j := i
		for j+1 < len(set) && set[j+1] == set[j]+1 {
			j++
		}
		prog = append(prog,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: set[i], SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: set[j], SkipTrue: 1},
			bpf.RetConstant{Val: action},
		)
		i = j + 1
	}
	return prog
}

// encode lays the program out as the kernel's struct sock_filter array.
func encode(prog []bpf.Instruction) ([]byte, error) {
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, in := range raw {
		out = binary.NativeEndian.AppendUint16(out, in.Op)
		out = append(out, in.Jt, in.Jf)
		out = binary.NativeEndian.AppendUint32(out, in.K)
	}
	return out, nil
}
