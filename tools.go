package airlock

import (
	"github.com/anthropics/anthropic-sdk-go/v2"
)

// CodeExecutionTool is the server tool code_execution_20260120. A container is made only when the model uses it.
func CodeExecutionTool() anthropic.ToolUnionParam {
	return anthropic.ToolUnionParam{OfCodeExecutionTool20260120: &anthropic.CodeExecutionTool20260120Param{}}
}

// CallableFromSandbox gives a copy of the tool that code in the sandbox may call too, as an async function of the tool's
// name. The application runs it as ever, with checks of its own; the sandbox gets the result and no credential.
func CallableFromSandbox(t anthropic.ToolParam) anthropic.ToolUnionParam {
	t.AllowedCallers = []string{"direct", "code_execution_20260120"}
	return anthropic.ToolUnionParam{OfTool: &t}
}
