#include "textflag.h"

// func vforkCall(args, size uintptr) (pid, errno uintptr)
//
// clone3 with CLONE_VM|CLONE_VFORK. The child runs first, on this very stack, and its calls overwrite our return address:
// it waits in a register that both keep.
TEXT ·vforkCall(SB),NOSPLIT|NOFRAME,$0-32
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	NEGQ	AX
	MOVQ	$0, pid+16(FP)
	MOVQ	AX, errno+24(FP)
	RET
ok:
	MOVQ	AX, pid+16(FP)
	MOVQ	$0, errno+24(FP)
	RET
