// Package programs runs the programs of ../../examples, in Go and in TypeScript, against a built airlock binary with the
// scripted model behind it, as their users would: as commands with an environment, and as Workers.
//
// AIRLOCK_BIN names the binary. What is made for applications is all that is used: airlock, airlocktest and npm.
package programs
