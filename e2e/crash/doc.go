// Package crash kills a built airlock binary with SIGKILL at random moments and checks what the next start finds: nothing
// of the old run is left on the host, nothing that was acknowledged is lost, and a second server beside it is unharmed.
//
// AIRLOCK_BIN names the binary; the seed of the moments is printed and can be given by AIRLOCK_TEST_SEED.
package crash
