#include "textflag.h"

// func clone(number, first, second uintptr) (pid, errno uintptr)
//
// clone or clone3 with CLONE_VM|CLONE_VFORK. The return address is in the link register, which the child cannot change for
// us.
TEXT ·clone(SB),NOSPLIT|NOFRAME,$0-40
	MOVD	number+0(FP), R8
	MOVD	first+8(FP), R0
	MOVD	second+16(FP), R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	SVC
	CMN	$4095, R0
	BCC	ok
	NEG	R0, R0
	MOVD	ZR, pid+24(FP)
	MOVD	R0, errno+32(FP)
	RET
ok:
	MOVD	R0, pid+24(FP)
	MOVD	ZR, errno+32(FP)
	RET
