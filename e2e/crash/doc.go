// Package crash kills a built airlock binary with SIGKILL at random moments and checks what the next start finds: nothing
// of the old run is left on the host, nothing that was acknowledged is lost, and a second server beside it is unharmed.
//
// Both drivers are killed, with the pool that a server has by default: what its new members own is no leftover.
// On gVisor it is also killed while it writes variables or a base of the pool to disk.
// AIRLOCK_BIN names the binary; the seed of the moments is printed and can be given by AIRLOCK_TEST_SEED.
package crash
