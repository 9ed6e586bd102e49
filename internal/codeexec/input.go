package codeexec

import (
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// fields lists the members of a sub-tool's input in the order of its schema.
func fields(tool string) []string {
	switch tool {
	case ToolBash:
		return []string{"command"}
	case ToolCell:
		return []string{"code"}
	case ToolEditor:
		return []string{"command", "path", "file_text", "old_str", "new_str", "view_range"}
	}
	return nil
}

// Canonical returns the input with the members of the schema only, in the order
// of the schema and with one spelling of each string. Clients add members of
// their own and escape differently when they replay a call (case: the AI SDK's
// synthetic "type"); the upstream must see the same prefix on every turn, or its
// prompt cache misses.
func Canonical(tool string, input *claude.Node) *claude.Node {
	out := claude.NewObject()
	for _, name := range fields(tool) {
		if v := input.Get(name); v != nil {
			if v.Is(claude.String) {
				v = claude.NewString(v.Str())
			}
			out.Set(name, v)
		}
	}
	return out
}

// text reads a member that must be a string without NUL.
func text(input *claude.Node, name string) (string, *ToolError) {
	v := input.Get(name)
	if !v.Is(claude.String) {
		return "", invalid(name + ": a string is required.")
	}
	s := v.Str()
	if strings.ContainsRune(s, 0) {
		return "", invalid(name + ": a NUL character is not allowed.")
	}
	return s, nil
}

// optional reads a member that may be absent or null.
func optional(input *claude.Node, name string) (string, *ToolError) {
	v := input.Get(name)
	if v.IsNull() {
		return "", nil
	}
	if !v.Is(claude.String) {
		return "", invalid(name + ": a string or null is required.")
	}
	return v.Str(), nil
}

// schema is the input schema of a sub-tool as the upstream is shown it.
func schema(tool string) *claude.Node {
	str := func(d string) *claude.Node { return claude.NewObject("type", "string", "description", d) }
	object := func(props *claude.Node, required ...string) *claude.Node {
		req := claude.NewArray()
		for _, r := range required {
			req.Items = append(req.Items, claude.NewString(r))
		}
		return claude.NewObject("type", "object", "properties", props, "required", req)
	}
	switch tool {
	case ToolBash:
		return object(claude.NewObject("command", str("The command for bash -c.")), "command")
	case ToolCell:
		return object(claude.NewObject("code", str("The Python code of the cell.")), "code")
	}
	command := claude.NewObject("type", "string", "enum", claude.NewArray(
		claude.NewString("view"), claude.NewString("create"), claude.NewString("str_replace")), "description", "What to do.")
	lines := claude.NewObject("type", "array", "items", claude.NewObject("type", "integer"),
		"description", "view: first and last line, counted from 1; -1 is the last line.")
	return object(claude.NewObject(
		"command", command,
		"path", str("Path of the file or, for view, of a folder."),
		"file_text", str("create: the content of the file."),
		"old_str", str("str_replace: the text to replace; it must occur exactly once."),
		"new_str", str("str_replace: the text to put in its place."),
		"view_range", lines), "command", "path")
}
