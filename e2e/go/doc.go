// Package e2e holds the tests in which official clients, unchanged, talk to a built airlock binary with the scripted
// model behind it: the Go SDK here, the JavaScript clients in ../ts (started by javascript_test.go), and curl.
//
// AIRLOCK_BIN names the binary. Nothing from internal/ is imported: what these tests see is what a stranger sees.
package e2e
