// Package python holds the part of the guest that is written in Python: the
// interpreter for cells, and the fork server that has imported the usual
// libraries and forks such interpreters.
//
// The guest runs both with python3 -P -c as the code's own uid and speaks to
// them over descriptor 3: messages framed as a big-endian length, a JSON header,
// a newline and the code. They are part of the code's side of the wall: nothing
// in them protects anything, and the guest believes nothing they say. Code may
// kill or stop the fork server, and whatever it may do to it beyond that it does
// to interpreters of its own container; the guest then starts them cold.
//
// The fork server imports with / as its folder and without a home, so that no
// file of a workspace is imported, read or written. It forks with no thread
// alive. A child takes its environment and streams from the guest, draws new
// randomness, and is from then on what a cold interpreter is, but that the
// libraries are imported. Hash seed and addresses are those of its fork server,
// of which each sandbox has its own. One child is always forked ahead of its cell.
// Where a fork copies too much it has none, and becomes the next interpreter itself.
//
// A cell that was given tools has an async function for each. A call goes to the guest when the event loop has had
// nothing to do for a while, together with all others made by then; the loop that runs then reads the answers. What this
// half checks it checks so that the code gets a useful exception; the guest checks all of it again.
package python

import _ "embed"

//go:embed tools.py
var tools string

//go:embed cell.py
var cell string

//go:embed fork.py
var fork string

// Cell is the program of a cold interpreter.
var Cell = tools + "\n\n" + cell + "\n\n_airlock_main()\n"

// Fork is the program of the fork server. Its arguments are the folder in which
// interpreters begin, how it makes one, "fork" or "become", and the modules to
// import.
var Fork = tools + "\n\n" + cell + "\n\n" + fork
