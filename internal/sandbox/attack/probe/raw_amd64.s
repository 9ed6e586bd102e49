#include "textflag.h"

// func int80(nr, a1, a2, a3 uintptr) uintptr
TEXT ·int80(SB), NOSPLIT, $0-40
	MOVQ nr+0(FP), AX
	MOVQ a1+8(FP), BX
	MOVQ a2+16(FP), CX
	MOVQ a3+24(FP), DX
	XORL SI, SI
	XORL DI, DI
	BYTE $0xcd; BYTE $0x80 // INT $0x80
	MOVQ AX, ret+32(FP)
	RET

// func vforkOrphan() uintptr
//
// A child shares memory with its parent until it ends, and neither touches
// the stack: 0x4111 is CLONE_VM|CLONE_VFORK|SIGCHLD, 56 clone, 60 exit.
TEXT ·vforkOrphan(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ $0x4111, DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVQ $56, AX
	SYSCALL
	TESTQ AX, AX
	JNZ  parent
	MOVQ $0x4111, DI
	MOVQ $56, AX
	SYSCALL
	XORL DI, DI
	MOVQ $60, AX
	SYSCALL
parent:
	MOVQ AX, ret+0(FP)
	RET
