// Package codeexec runs one server tool call in one container: tool versions,
// the sub-tools they offer, the result blocks and the tool error codes.
//
// It refuses to know HTTP, upstreams and callers: the lease it is given was
// checked before.
//
// Invariants:
//
//   - Every call ends in exactly one result block whose tool_use_id is the
//     call's, at once or in a later response; a Go error is returned only when the request itself is over
//     (client gone, shutdown).
//   - A file operation happens inside the sandbox with the rights of the code,
//     never on the host.
//   - Text that leaves this package is valid UTF-8 without NUL and at most
//     MaxCharacters per stream.
//
// Files: codeexec.go (Run), version.go (versions, sub-tools, tool definitions),
// describe.go (what the model is told), input.go, bash.go, repl.go, editor.go,
// hunk.go (the str_replace hunk), path.go, text.go (decoding and cutting),
// result.go (blocks), render.go (a result as the model reads it), function.go
// (client tools that code may call), schema.go (checks of their inputs),
// parked.go (code that waits for the client), continue.go (its answers, and what
// is remembered).
//
// Goroutines: the container's, for a cell that may wait; it calls execution.call.
package codeexec
