#include "textflag.h"

// func vforkCall(args, size uintptr) (pid, errno uintptr)
//
// clone3 with CLONE_VM|CLONE_VFORK. The return address is in the link register, which the child cannot change for us.
TEXT ·vforkCall(SB),NOSPLIT|NOFRAME,$0-32
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	$435, R8
	SVC
	CMN	$4095, R0
	BCC	ok
	NEG	R0, R0
	MOVD	ZR, pid+16(FP)
	MOVD	R0, errno+24(FP)
	RET
ok:
	MOVD	R0, pid+16(FP)
	MOVD	ZR, errno+24(FP)
	RET
