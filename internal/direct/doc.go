// Package direct is the direct door to containers: a caller's own commands and files over HTTP, as codeexec is the model's.
//
// Everything happens in a turn of the container (container.Service.Use), whatever else the container does waits for it or
// answers that it is busy. Before the first byte of output an error has a status of its own; after it, it is a frame.
//
// It knows no row, no life cycle and no upstream. Invariants:
//   - A client that neither reads nor sends holds up nobody who deletes the container.
//   - What code made is never sent in a way that a browser would interpret.
//   - Paths are resolved by the guest, with the rights of the code; the host opens none.
//
// Goroutines: one that sends pings while a command runs, which ends with it.
//
// Files: exec.go one command; direct.go the service, and what is said of a path; http.go.
package direct
