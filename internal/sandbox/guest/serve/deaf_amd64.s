#include "textflag.h"

// The kernel calls it with the address of deafReturn as its return address.
TEXT deaf<>(SB),NOSPLIT|NOFRAME,$0-0
	RET

TEXT deafReturn<>(SB),NOSPLIT|NOFRAME,$0-0
	MOVQ	$15, AX // rt_sigreturn
	SYSCALL
	INT	$3

// func deafHandler() uintptr
TEXT ·deafHandler(SB),NOSPLIT,$0-8
	LEAQ	deaf<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// func deafRestorer() uintptr
TEXT ·deafRestorer(SB),NOSPLIT,$0-8
	LEAQ	deafReturn<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
