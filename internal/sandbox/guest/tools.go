package guest

import (
	"context"
	"encoding/json"
)

// Bounds of what the code of one cell may ask of the host. Code that goes past one gets an exception that names it, and
// goes on.
const (
	// MaxToolCalls is how many calls a cell may make in all.
	MaxToolCalls = 1000
	// MaxToolPending is how many calls may wait for an answer at one time.
	MaxToolPending = 64
	// MaxToolInput is the largest input of one call: the bytes of its JSON object.
	MaxToolInput = 1 << 20
	// MaxToolAnswer is the largest text of one answer, in bytes.
	MaxToolAnswer = 4 << 20
)

// CallFunc answers the calls that the code of a cell waits for, see Cell.Call.
type CallFunc func(ctx context.Context, calls []ToolCall) []ToolAnswer

// ToolCall is one call of a function that a cell was given. The code is hostile: Name is one of Cell.Tools and Input a JSON
// object of at most MaxToolInput bytes, and nothing else holds of it.
type ToolCall struct {
	// ID is another one for each call of a cell.
	ID    uint64
	Name  string
	Input json.RawMessage
}

// ToolAnswer is what the code gets for the call with that ID.
type ToolAnswer struct {
	ID uint64
	// Text is what the function returns, or what the exception says.
	Text string
	// Raise names the exception to raise in place of a return; "" is none.
	Raise string
}

// The exceptions that an answer can raise.
const (
	RaiseTimeout = "TimeoutError" // Python's own
	RaiseTool    = "ToolError"    // of the interpreter of cells; a RuntimeError
)
