package codeexec

import (
	"strings"
)

// Version is the type of a code execution entry in tools.
type Version string

// The versions clients know. 20260521 differs from 20260120 only in what the
// model is told about the time limit of a cell.
const (
	V20250522 Version = "code_execution_20250522"
	V20250825 Version = "code_execution_20250825"
	V20260120 Version = "code_execution_20260120"
	V20260521 Version = "code_execution_20260521"
)

// Versions lists the known versions, oldest first.
func Versions() []Version { return []Version{V20250522, V20250825, V20260120, V20260521} }

// IsToolType reports whether a tool type names a code execution tool of any
// version, known or not.
func IsToolType(t string) bool { return strings.HasPrefix(t, "code_execution_") }

// ParseVersion returns the version of a tool type.
func ParseVersion(t string) (Version, bool) {
	for _, v := range Versions() {
		if string(v) == t {
			return v, true
		}
	}
	return "", false
}

// Names of the sub-tools, as they stand in server_tool_use blocks.
const (
	ToolBash   = "bash_code_execution"
	ToolEditor = "text_editor_code_execution"
	ToolCell   = "code_execution"
)

// IsSubTool reports whether name is a sub-tool of any version.
func IsSubTool(name string) bool { return name == ToolBash || name == ToolEditor || name == ToolCell }

// SubTools lists the sub-tools the version offers, in the order they are shown.
func (v Version) SubTools() []string {
	switch v {
	case V20250522:
		return []string{ToolCell}
	case V20250825:
		return []string{ToolBash, ToolEditor}
	case V20260120, V20260521:
		return []string{ToolBash, ToolEditor, ToolCell}
	}
	return nil
}

// FreshCells reports whether each cell gets a new interpreter.
func (v Version) FreshCells() bool { return v == V20250522 }

// Library is what the root file system offers, as the model is told.
type Library struct {
	Python   string   // version, "" = not said
	Packages []string // Python libraries, sorted
	Commands []string // command-line tools worth naming
}
