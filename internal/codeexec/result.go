package codeexec

import (
	"github.com/airlock-sandbox/airlock/internal/claude"
)

// ErrorCode is the error_code of a result block.
type ErrorCode string

// The error codes of the wire format. output_file_too_large is not among them:
// a file that is too large is left out with a note, and the result stays.
const (
	CodeInvalidInput  ErrorCode = "invalid_tool_input"
	CodeUnavailable   ErrorCode = "unavailable"
	CodeTooMany       ErrorCode = "too_many_requests"
	CodeTimeExceeded  ErrorCode = "execution_time_exceeded"
	CodeFileNotFound  ErrorCode = "file_not_found"
	messageNoSandbox            = "The sandbox is not available."
	messageCallExpiry           = "The call took longer than the limit of one call."
)

// ToolError ends one call with an error block; the request goes on.
type ToolError struct {
	Code    ErrorCode
	Message string // for the model; only the editor's block carries it
	Err     error  // for the log
}

func (e *ToolError) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *ToolError) Unwrap() error { return e.Err }

// invalid says what is wrong with the input of a call.
func invalid(message string) *ToolError { return &ToolError{Code: CodeInvalidInput, Message: message} }

// ResultType is the block type of the sub-tool's results.
func ResultType(tool string) string { return tool + "_tool_result" }

// IsResultType reports whether t is the block type of a sub-tool's result.
func IsResultType(t string) bool {
	return t == ResultType(ToolBash) || t == ResultType(ToolEditor) || t == ResultType(ToolCell)
}

// block wraps the content of a result.
func block(c Call, content *claude.Node) *claude.Node {
	return claude.NewObject("type", ResultType(c.Name), "tool_use_id", c.ID, "content", content)
}

// ErrorBlock is the result block of a call that ended with a tool error.
func ErrorBlock(c Call, code ErrorCode, message string) *claude.Node {
	content := claude.NewObject("type", ResultType(c.Name)+"_error", "error_code", string(code))
	if c.Name == ToolEditor {
		content.Set("error_message", claude.NewString(message))
	}
	return block(c, content)
}

// outcome is what bash and cells give back.
type outcome struct {
	stdout, stderr string
	code           int
	files          []string
}

// outputBlock is the result block of bash and cells.
func outputBlock(c Call, o outcome) *claude.Node {
	kind, item := "bash_code_execution_result", "bash_code_execution_output"
	if c.Name == ToolCell {
		kind, item = "code_execution_result", "code_execution_output"
	}
	files := claude.NewArray()
	for _, id := range o.files {
		files.Items = append(files.Items, claude.NewObject("type", item, "file_id", id))
	}
	return block(c, claude.NewObject("type", kind, "stdout", o.stdout, "stderr", o.stderr, "return_code", o.code, "content", files))
}
