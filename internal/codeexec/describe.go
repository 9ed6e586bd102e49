package codeexec

import (
	"fmt"
	"strings"
	"time"
)

// describe is what the model is told about a sub-tool. The text depends on the
// version, the root file system and the settings only, so that an upstream's
// prompt cache keeps.
func describe(v Version, tool string, lib Library, limits Limits) string {
	switch tool {
	case ToolBash:
		return describeBash(lib, limits)
	case ToolEditor:
		return describeEditor
	case ToolCell:
		return describeCell(v, lib, limits)
	}
	return ""
}

const describePlace = "The sandbox is a Linux machine without any network: nothing can be downloaded or installed. " +
	"The working directory is /workspace. Files of the user are in $INPUT_DIR (read-only). "

const describeOutput = "To give a file to the user, put it at the top level of $OUTPUT_DIR; this folder is new and empty for each call, " +
	"and files anywhere else stay in the sandbox. Work on copies in /workspace or /tmp and copy the finished file to $OUTPUT_DIR. "

func describeBash(lib Library, limits Limits) string {
	var b strings.Builder
	b.WriteString("Run a command with bash in a sandbox. ")
	b.WriteString(describePlace)
	b.WriteString("Files stay between calls; the working directory, variables and background processes do not. Standard input is empty. ")
	b.WriteString(describeOutput)
	b.WriteString("The result has stdout, stderr and return_code. A command may run for " + inSeconds(limits.Command) + ". ")
	libraries(&b, lib)
	return strings.TrimSpace(b.String())
}

const describeEditor = "View, create and edit text files in the sandbox. view shows a file (or an image, a PDF, the files of a folder); " +
	"create writes a file and replaces one that exists; str_replace replaces a text that occurs exactly once. " +
	"Paths are absolute or relative to /workspace and may use $INPUT_DIR. $OUTPUT_DIR cannot be used here: write to /workspace and copy the file with bash."

func describeCell(v Version, lib Library, limits Limits) string {
	var b strings.Builder
	b.WriteString("Run Python code in a sandbox. ")
	b.WriteString(describePlace)
	if v.FreshCells() {
		b.WriteString("Each call has a new interpreter; files stay between calls, variables do not. ")
	} else {
		b.WriteString("The interpreter lives on: variables and imports of earlier cells can be used. Top-level await works. ")
		b.WriteString("The value of a last expression is printed unless it is None. ")
	}
	b.WriteString("os.environ has INPUT_DIR and OUTPUT_DIR. ")
	b.WriteString(describeOutput)
	if v == V20260521 {
		b.WriteString("A cell is interrupted after " + inSeconds(limits.Cell) + " of wall-clock time; split longer work into several cells. ")
	}
	// Beside bash the list would only be said twice.
	if !(Offer{Version: v}).Offers(ToolBash) {
		libraries(&b, lib)
	}
	return strings.TrimSpace(b.String())
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%g seconds", d.Seconds()) }

func libraries(b *strings.Builder, lib Library) {
	if lib.Python != "" {
		b.WriteString("Python " + lib.Python + ". ")
	}
	if len(lib.Packages) > 0 {
		b.WriteString("Python libraries: " + strings.Join(lib.Packages, ", ") + ". ")
	}
	if len(lib.Commands) > 0 {
		b.WriteString("Commands beside the usual ones: " + strings.Join(lib.Commands, ", ") + ". ")
	}
}
