// Package serve is the program inside a sandbox: it runs as PID 1, starts
// commands and the Python interpreter, carries their output, reads and writes
// files, and reaps everything.
//
// It knows nothing of how the sandbox was made (namespaces, limits and mounts
// are in place before Run) and nothing of the host beyond one stream of frames.
// The code it runs is hostile: it may fork, ignore signals, hold pipes open,
// rename folders under our feet and kill every process it may.
//
// Invariants:
//
//   - Code runs as guest.CodeUID with no capability; the guest itself as uid 0
//     of its user namespace. Neither shares a writable descriptor with the
//     other except the pipes of a command.
//   - All processes of a call carry a supplementary group that only this call
//     has (its marker). They cannot drop it, and their children inherit it, so
//     "everything of this call" is what /proc says, whatever was double-forked
//     or moved to another session.
//   - The fork server shares its marker with the one interpreter that it has
//     forked, because only an exec can give a marker; whatever else has it
//     belongs to that interpreter's cell. It runs as the code, so code can end
//     it: then interpreters start cold, and after three such ends there is none.
//     Inside gVisor it forks nothing and becomes the next interpreter itself.
//   - What an interpreter says can be forged by the code in it. Of the calls of
//     tools that it asks for the guest carries only those that the host has
//     offered, within all limits, under numbers of the guest's own.
//   - One thread waits for all children; an exit status exists only when that
//     thread has reaped the process.
//   - The frame reader never blocks: each call has a bounded inbox, and a host
//     that overruns a window is a protocol violation, which ends the guest.
//
// Goroutines: the reader is Run itself; each call has one; each output pipe has
// a pump; each stdin a feeder; one reaper; one reader for each interpreter and
// for the fork server; one for the group of calls that a cell waits for.
// All but the reaper and the pumps of kept background processes end with their
// call, and Run waits for the calls.
//
//	call:  start --> running --exit--> drain (<= 200 ms) --> kill what is left --> exit frame
//	                   |timeout: TERM, 2 s, KILL                 ^
//	                   |cancel: KILL ----------------------------+
//
//	fork server:  none --warm, or after a cold cell--> importing --> ready --fork, if it has no interpreter--+
//	               ^  ^                                   |            ^  '---------------------------------'
//	               |  '---- ended by code, or silent -----+------------+
//	               '------- rest (before a freeze) -------+
//
// Files: serve.go the loop; deaf.go, deaf_*.s signals; call.go one call's windows; start.go, reaper.go,
// procs.go processes; exec.go commands; output.go, pump.go what they print;
// cell.go, desk.go, interp.go, family.go, forks.go Python; files.go, put.go, pending.go, open.go, list.go, remove.go files.
package serve
