// Package guest is the language between a host and the program inside a
// sandbox: the frames both sides speak, the types a caller fills in, and Conn,
// the host's end of the stream.
//
// The program inside is cmd/airlock-guest; what it does lies in the
// subpackage serve, the binary itself in bin, its Python half in python. This
// package knows no driver, no container, no tenant and no API.
//
// Invariants:
//
//   - The host trusts nothing from the guest beyond framing. Sizes, windows
//     and totals are checked again on the host; a peer that breaks them ends
//     the connection with ErrProtocol. Replies for unknown ids are dropped,
//     because they are late answers to calls that were given up.
//   - Results never lie. A Result exists only because a process was reaped
//     (or, for a cell, because the interpreter said the cell ended). Exit,
//     signal, timeout, out of memory and cancellation are different outcomes.
//   - Everything from the sandbox is raw bytes. Paths, arguments and output
//     may hold any byte; nothing here decodes text.
//
// Goroutines: one reader for each Conn, from NewConn until Close or failure,
// which never blocks on a caller because every call has a bounded window; one
// that answers, for each group of calls that a cell makes, until its answers
// are sent or the cell has ended, for which Cell waits; one
// pump for each Exec that has a Stdin, which ends with the call or, if the
// caller's Reader blocks, when that Read returns.
//
//	host                              guest
//	hello  ------------------------>
//	       <------------------------  ready
//	exec   ------------------------>  starts, reaps
//	data   ------------------------>  stdin           (window 1 MiB, credit back)
//	       <------------------------  data            (window 1 MiB, credit back)
//	cancel ------------------------>  kills all processes of the call
//	       <------------------------  tool            (calls of a cell, a group at a time; same window)
//	answer ------------------------>  to the code     (of the group, while its clock stands still; same window)
//	       <------------------------  exit or err     (always the last frame of an id)
//	warm   ------------------------>  has the Python fork server import its modules
//	rest   ------------------------>  ends it, before a freeze
//
// Files: guest.go, tools.go types; errors.go; frames.go the stream; conn.go, call.go the
// multiplexer; exec.go, cell.go, files.go one group of operations each; desk.go the calls that a cell makes.
package guest
