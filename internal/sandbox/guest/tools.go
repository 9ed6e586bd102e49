package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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
	// MaxToolInputs is the largest input of all calls that wait at one time, together.
	MaxToolInputs = 8 << 20
	// MaxToolAnswer is the largest text of one answer, in bytes.
	MaxToolAnswer = 4 << 20
)

// ToolQuiet is how long the event loop of a cell must have had nothing to do before the calls that it waits for are handed
// over, so that calls that belong together come together.
const ToolQuiet = 20 * time.Millisecond

// maxToolName is the longest name of a tool, in bytes.
const maxToolName = 256

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
	// Raise names the exception to raise in place of a return; "" is none, and what is not listed below is RaiseTool.
	Raise string
}

// The exceptions that an answer can raise.
const (
	RaiseTimeout = "TimeoutError" // Python's own
	RaiseTool    = "ToolError"    // of the interpreter of cells; a RuntimeError
)

// ToolIdentifier is the name under which code finds a tool, beside tools["exact-name"], if that is an identifier.
func ToolIdentifier(name string) string { return strings.ReplaceAll(name, "-", "_") }

// ValidToolInput tells whether p can be the input of a call: one JSON object in UTF-8, and nothing around it.
func ValidToolInput(p []byte) bool {
	return bytes.HasPrefix(p, []byte{'{'}) && bytes.HasSuffix(p, []byte{'}'}) && utf8.Valid(p) && json.Valid(p)
}

// checkTools refuses what the code could not tell apart.
func checkTools(cell *Cell) error {
	bad := func(format string, args ...any) error {
		return &Error{Op: "cell", Detail: fmt.Sprintf(format, args...), Err: ErrInvalidPath}
	}
	if len(cell.Tools) > 0 && cell.Call == nil {
		return bad("tools without a function that answers their calls")
	}
	seen := map[string]string{}
	for _, name := range cell.Tools {
		if name == "" || len(name) > maxToolName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			return bad("a tool cannot be called %.40q", name)
		}
		id := ToolIdentifier(name)
		if other, twice := seen[id]; twice {
			return bad("the tools %q and %q have the same name in Python", other, name)
		}
		seen[id] = name
	}
	return nil
}
