package messages

import (
	"slices"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// callers says who may call a tool.
type callers struct {
	direct bool // the model
	code   bool // the code of a cell
	old    bool // code, in the first form that clients knew
}

// callersOf reads allowed_callers, which checkCallers has checked.
func callersOf(t *claude.Node) callers {
	list := t.Get("allowed_callers")
	if list.IsNull() {
		return callers{direct: true}
	}
	var c callers
	for _, e := range list.Elems() {
		switch codeexec.Version(e.Str()) {
		case "direct":
			c.direct = true
		case codeexec.V20250825:
			c.code, c.old = true, true
		case codeexec.V20260120, codeexec.V20260521:
			c.code = true
		case codeexec.V20250522:
		}
	}
	return c
}

// checkCallers refuses what is no list of callers.
func checkCallers(path string, t *claude.Node) error {
	list := t.Get("allowed_callers")
	if list.IsNull() {
		return nil
	}
	if !list.Is(claude.Array) || len(list.Items) == 0 {
		return wire.Invalid("%s.allowed_callers: an array of at least one caller is required.", path)
	}
	known := []string{"direct", string(codeexec.V20250825), string(codeexec.V20260120), string(codeexec.V20260521)}
	for i, e := range list.Items {
		if !slices.Contains(known, e.Str()) {
			return wire.Invalid("%s.allowed_callers.%d: one of %s is required.", path, i, strings.Join(known, ", "))
		}
	}
	return nil
}

// findFunctions collects the tools that code may call and refuses those that it cannot.
func (r *request) findFunctions() error {
	names := map[string]int{} // by identifier
	for i, t := range r.Tools() {
		path := "tools." + strconv.Itoa(i)
		if err := checkCallers(path, t); err != nil {
			return err
		}
		c := callersOf(t)
		if !c.code {
			continue
		}
		if err := r.checkCallable(path, t, c); err != nil {
			return err
		}
		f, err := codeexec.NewFunction(path, t)
		if err != nil {
			return err
		}
		if first, twice := names[f.Identifier()]; twice {
			return wire.Invalid("%s.name: code would call %q and tools.%d both by the name %s, because \"-\" becomes \"_\"; rename one of them.",
				path, f.Name, first, f.Identifier())
		}
		names[f.Identifier()] = i
		r.functions = append(r.functions, f)
	}
	return r.checkChoice()
}

// checkCallable refuses a tool that code is to call and cannot.
func (r *request) checkCallable(path string, t *claude.Node, c callers) error {
	switch {
	case codeexec.IsToolType(t.Type()):
		return wire.Invalid("%s.allowed_callers: code cannot call the code execution tool itself.", path)
	case strings.HasPrefix(t.Type(), "mcp"):
		return wire.Invalid("%s.allowed_callers: tools of an MCP server cannot be called from code.", path)
	case t.Type() != "" && t.Type() != "custom":
		return wire.Invalid("%s.allowed_callers: a tool of type %s cannot be called from code; only tools with an input_schema of their own can.", path, t.Type())
	case t.Get("strict").IsTrue():
		return wire.Invalid("%s.strict: not possible for a tool that code may call.", path)
	case r.version == codeexec.V20260120, r.version == codeexec.V20260521, r.version == codeexec.V20250825 && c.old:
		return nil
	}
	return wire.Invalid("%s.allowed_callers: calling a tool from code needs a code execution tool of version %s or later in tools.",
		path, string(codeexec.V20260120))
}

// checkChoice refuses a tool_choice that calls from code cannot keep.
func (r *request) checkChoice() error {
	choice := r.Root.Get("tool_choice")
	if len(r.functions) > 0 && choice.Get("disable_parallel_tool_use").IsTrue() {
		return wire.Invalid("tool_choice.disable_parallel_tool_use: not possible while tools can be called from code.")
	}
	if choice.Type() != "tool" {
		return nil
	}
	for _, t := range r.Tools() {
		if name := choice.Get("name").Str(); t.Get("name").Str() == name && !callersOf(t).direct {
			return wire.Invalid("tool_choice.name: %q cannot be forced: its allowed_callers does not have \"direct\".", name)
		}
	}
	return nil
}
