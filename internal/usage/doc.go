// Package usage writes down what was used: an account of every command and cell, as the kernel counted it. These rows are the
// facts of whoever bills.
//
// It knows no container but by its id, no price and no limit, and reads nothing back. Invariants:
//   - An execution is written once, however often it is tried: the answer to a commit can be lost.
//   - One that the database does not take holds up no other. It is counted, and stands in the operator's log.
//   - Nothing removes a row, nor does the end of its container.
//
// Goroutines: none. Whoever adds to a Log calls Flush.
//
// Files: usage.go an execution; log.go what waits to be written; store.go.
package usage
