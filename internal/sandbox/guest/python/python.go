// Package python holds the part of the guest that is written in Python: the
// resident interpreter for cells.
//
// The guest runs it with python3 -P -c as the code's own uid and speaks to it
// over descriptor 3: messages framed as a big-endian length, a JSON header, a
// newline and the code. It is part of the code's side of the wall: nothing in
// it protects anything, and the guest believes nothing it says.
package python

import _ "embed"

// Cell is the source of the resident interpreter.
//
//go:embed cell.py
var Cell string
