#include "textflag.h"

// func clone(number, first, second uintptr) (pid, errno uintptr)
//
// clone or clone3 with CLONE_VM|CLONE_VFORK. The child runs first, on this very stack, and its calls overwrite our return
// address: it waits in a register that both keep.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	number+0(FP), AX
	MOVQ	first+8(FP), DI
	MOVQ	second+16(FP), SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	NEGQ	AX
	MOVQ	$0, pid+24(FP)
	MOVQ	AX, errno+32(FP)
	RET
ok:
	MOVQ	AX, pid+24(FP)
	MOVQ	$0, errno+32(FP)
	RET
