package codeexec

import (
	"slices"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Function is a client tool that the code of a cell may call.
type Function struct {
	Name        string
	Description string
	Schema      *claude.Node
	check       *inputSchema
}

// NewFunction makes a function of an entry of tools, whose place in the request is path. Errors are for the client.
func NewFunction(path string, tool *claude.Node) (Function, error) {
	f := Function{Name: tool.Get("name").Str(), Description: tool.Get("description").Str(), Schema: tool.Get("input_schema")}
	if !wire.PlainID(f.Name, 128) {
		return f, wire.Invalid("%s.name: a tool that code may call needs a name of letters, digits, \"_\" and \"-\", at most 128.", path)
	}
	var err error
	f.check, err = compileSchema(path+".input_schema", f.Schema)
	return f, err
}

// Identifier is the name under which code finds the function; it need not be an identifier of Python.
func (f Function) Identifier() string { return guest.ToolIdentifier(f.Name) }

// spelled is how code writes the function down.
func (f Function) spelled() string {
	id := f.Identifier()
	if id[0] >= '0' && id[0] <= '9' || slices.Contains(keywords, id) {
		return `tools["` + f.Name + `"]`
	}
	return id
}

// keywords are the words of Python that cannot be the name of a function.
var keywords = []string{
	"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else",
	"except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
	"return", "try", "while", "with", "yield",
}

// Offer is what a request offers the model of us: the sub-tools of a version, and functions for the code of its cells.
type Offer struct {
	Version   Version
	Functions []Function
}

// SubTools are those of the version, and cells where there are functions to call from them.
func (o Offer) SubTools() []string {
	subs := o.Version.SubTools()
	if len(o.Functions) > 0 && !slices.Contains(subs, ToolCell) {
		return append(slices.Clone(subs), ToolCell)
	}
	return subs
}

// Offers reports whether there is that sub-tool.
func (o Offer) Offers(name string) bool { return slices.Contains(o.SubTools(), name) }

// Caller is the type of the caller member of the calls that code makes. Clients know no other: @ai-sdk/anthropic 4 takes a
// block for broken whose caller is code_execution_20260521.
func (o Offer) Caller() string {
	if o.Version == V20250825 {
		return string(V20250825)
	}
	return string(V20260120)
}

// Tools returns the client tools that stand in for the version's entry. Zero fields of the limits are DefaultLimits.
func (o Offer) Tools(lib Library, limits Limits) []*claude.Node {
	var out []*claude.Node
	for _, name := range o.SubTools() {
		text := describe(o.Version, name, lib, limits.withDefaults())
		if name == ToolCell {
			text += describeFunctions(o.Functions)
		}
		out = append(out, claude.NewObject("name", name, "description", text, "input_schema", schema(name)))
	}
	return out
}

// describeFunctions is what the model is told of the functions, after everything else, in the order of the request: what
// comes before them stays the same for an upstream's prompt cache.
func describeFunctions(all []Function) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nThe code can call the functions below, which run outside the sandbox. Each is an async function taking one dict and returning " +
		"a string, so parse JSON yourself: rows = json.loads(await query({\"sql\": \"...\"})). Call several at once with asyncio.gather. " +
		"What they return is seen by the code only: print what you need to know.\n")
	for _, f := range all {
		b.WriteString("\n" + f.spelled() + "\n")
		if f.spelled() != f.Name {
			b.WriteString("Name: " + f.Name + "\n")
		}
		if f.Description != "" {
			b.WriteString("Description: " + f.Description + "\n")
		}
		b.WriteString("Input schema: " + f.Schema.Text() + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}
