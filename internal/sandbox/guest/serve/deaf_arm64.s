#include "textflag.h"

// The kernel calls it with its own way back in the link register.
TEXT deaf<>(SB),NOSPLIT|NOFRAME,$0-0
	RET

// func deafHandler() uintptr
TEXT ·deafHandler(SB),NOSPLIT,$0-8
	MOVD	$deaf<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET

// func deafRestorer() uintptr
TEXT ·deafRestorer(SB),NOSPLIT,$0-8
	MOVD	ZR, ret+0(FP)
	RET
