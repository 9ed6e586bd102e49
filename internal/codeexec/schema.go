package codeexec

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Bounds on the work of checking inputs: the schema is the application's, the input comes from code that nobody trusts.
const (
	// maxSchema is how many nodes a schema may have when each reference is written out.
	maxSchema = 10_000
	// maxChecks is how many nodes of the schema times values of the input are looked at.
	maxChecks = 50_000_000
	// maxDigits and maxExponent bound a number: it is compared exactly.
	maxDigits   = 100
	maxExponent = 400
	// maxComplaint is how much of what is wrong the code is told, in bytes.
	maxComplaint = 2000
)

// inputSchema is a compiled schema.
type inputSchema struct {
	schema *jsonschema.Schema
	nodes  int
}

// noFiles refuses every schema outside the request. The library would open files.
type noFiles struct{}

var errOutside = errors.New("only references within the schema are possible")

func (noFiles) Load(string) (any, error) { return nil, errOutside }

// compileSchema checks a schema for what an input cannot be checked against in bounded time and compiles it.
func compileSchema(path string, n *claude.Node) (*inputSchema, error) {
	if !n.Is(claude.Object) {
		return nil, wire.Invalid("%s: a JSON schema is required of a tool that code may call.", path)
	}
	w := &schemaWalk{root: n, sizes: map[*claude.Node]int{}, open: map[*claude.Node]bool{}}
	size, err := w.schema(n)
	if err == nil && size > maxSchema {
		err = fmt.Errorf("it has more than %d parts when its references are followed", maxSchema)
	}
	if err == nil {
		err = checkNumbers(n)
	}
	if err != nil {
		return nil, wire.Invalid("%s: %s.", path, err)
	}
	s, err := compile(n)
	if err != nil {
		return nil, wire.Invalid("%s: it is no JSON schema that can be used: %s", path, complaint(err))
	}
	return &inputSchema{schema: s, nodes: size}, nil
}

func compile(n *claude.Node) (*jsonschema.Schema, error) {
	const name = "https://airlock.invalid/input_schema"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(n.Bytes()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noFiles{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

// complaint is what the library says, on one line.
func complaint(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return clipBytes(strings.ReplaceAll(strings.Join(lines, "; "), "https://airlock.invalid/input_schema", ""), maxComplaint)
}

// check says what is wrong with an input; "" = nothing.
func (s *inputSchema) check(input *claude.Node) string {
	if err := checkNumbers(input); err != nil {
		return err.Error()
	}
	if values(input)*s.nodes > maxChecks {
		return "it is too large to be checked against the tool's input_schema"
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(input.Bytes()))
	if err != nil {
		return "it cannot be read"
	}
	err = s.schema.Validate(doc)
	if err == nil {
		return ""
	}
	var wrong []string
	for i, line := range strings.Split(err.Error(), "\n") {
		if line = strings.TrimLeft(line, " -"); i > 0 && line != "" {
			wrong = append(wrong, line)
		}
	}
	return clipBytes(strings.Join(wrong, "; "), maxComplaint)
}

func clipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// values counts the values in n.
func values(n *claude.Node) int {
	count := 1
	for _, it := range n.Elems() {
		count += values(it)
	}
	if n.Is(claude.Object) {
		for _, m := range n.Members {
			count += values(m.Value)
		}
	}
	return count
}

// checkNumbers refuses numbers whose exact value takes long to work with.
func checkNumbers(n *claude.Node) error {
	switch {
	case n.Is(claude.Number):
		text := n.Text()
		mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		if e, err := strconv.Atoi(exponent); len(mantissa) > maxDigits || exponent != "" && (err != nil || e > maxExponent || e < -maxExponent) {
			return fmt.Errorf("the number %s is out of range", clipBytes(text, 40))
		}
	case n.Is(claude.Array):
		for _, it := range n.Items {
			if err := checkNumbers(it); err != nil {
				return err
			}
		}
	case n.Is(claude.Object):
		for _, m := range n.Members {
			if err := checkNumbers(m.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// schemaWalk counts the nodes of a schema with its references written out, and refuses circles among them.
type schemaWalk struct {
	root  *claude.Node
	sizes map[*claude.Node]int
	open  map[*claude.Node]bool
}

// schema walks one schema. Definitions count where they are referred to.
func (w *schemaWalk) schema(n *claude.Node) (int, error) {
	if !n.Is(claude.Object) {
		return 1, nil
	}
	if size, ok := w.sizes[n]; ok {
		return size, nil
	}
	if w.open[n] {
		return 0, errors.New("it refers to itself (Circular $ref detected)")
	}
	w.open[n] = true
	defer delete(w.open, n)
	size := 1
	for _, m := range n.Members {
		more, err := w.keyword(n, m.Name, m.Value)
		if err != nil {
			return 0, err
		}
		size = min(size+more, maxSchema+1)
	}
	w.sizes[n] = size
	return size, nil
}

func (w *schemaWalk) keyword(holder *claude.Node, name string, v *claude.Node) (int, error) {
	switch name {
	case "enum", "const", "default", "examples":
		return values(v), nil
	case "$defs", "definitions":
		return 0, nil
	case "$ref", "$dynamicRef", "$recursiveRef":
		if !v.Is(claude.String) {
			return 0, nil // compiling tells
		}
		target, err := w.resolve(v.Str())
		if err != nil {
			return 0, err
		}
		return w.schema(target)
	case "$id", "id":
		if holder != w.root && v.Is(claude.String) {
			return 0, errors.New("$id can stand at its top only")
		}
	case "properties", "patternProperties", "dependentSchemas", "dependencies":
		return w.all(v)
	}
	if v.Is(claude.Array) {
		return w.all(v)
	}
	return w.schema(v)
}

// all walks the schemas in a list or an object of schemas.
func (w *schemaWalk) all(v *claude.Node) (int, error) {
	inside := v.Elems()
	if v.Is(claude.Object) {
		for _, m := range v.Members {
			inside = append(inside, m.Value)
		}
	}
	size := 0
	for _, s := range inside {
		more, err := w.schema(s)
		if err != nil {
			return 0, err
		}
		size = min(size+more, maxSchema+1)
	}
	return size, nil
}

// resolve finds what a reference names.
func (w *schemaWalk) resolve(ref string) (*claude.Node, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, fmt.Errorf("$ref %s: %w", strconv.Quote(clipBytes(ref, 200)), errOutside)
	}
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		return nil, fmt.Errorf("$ref %s names nothing in it", strconv.Quote(clipBytes(ref, 200)))
	}
	if pointer != "" && pointer[0] != '/' {
		if n := anchor(w.root, pointer); n != nil {
			return n, nil
		}
		return nil, fmt.Errorf("$ref %s names nothing in it", strconv.Quote(clipBytes(ref, 200)))
	}
	n := w.root
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		if i, err := strconv.Atoi(step); n.Is(claude.Array) && err == nil && i >= 0 && i < len(n.Items) {
			n = n.Items[i]
		} else {
			n = n.Get(step)
		}
	}
	if n == nil {
		return nil, fmt.Errorf("$ref %s names nothing in it", strconv.Quote(clipBytes(ref, 200)))
	}
	return n, nil
}

// anchor finds the schema with that $anchor, at any depth.
func anchor(n *claude.Node, name string) *claude.Node {
	if n.Is(claude.Object) {
		if n.Get("$anchor").Str() == name || n.Get("$dynamicAnchor").Str() == name {
			return n
		}
		for _, m := range n.Members {
			if found := anchor(m.Value, name); found != nil {
				return found
			}
		}
	}
	for _, it := range n.Elems() {
		if found := anchor(it, name); found != nil {
			return found
		}
	}
	return nil
}
