package codeexec

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Bounds on the work of checking inputs: the schema is the application's, the input comes from code that nobody trusts.
const (
	// maxSchema is how many nodes a schema may have, also when each reference is written out.
	maxSchema = 10_000
	// maxChecks is how many nodes of the schema times values of the input are looked at; each may fail, and failures take memory.
	maxChecks = 1_000_000
	// maxBytes is how many nodes of the schema times bytes of text are looked at, maxSteps the same for the steps of its patterns.
	maxBytes = 1_000_000_000
	maxSteps = 30_000_000
	// maxPattern is how long a pattern may be, in bytes, and maxProgram how many steps it may have; those of one schema may have
	// maxPrograms together. A step takes a hundred bytes.
	maxPattern  = 4 << 10
	maxProgram  = 20_000
	maxPrograms = 100_000
	// maxDigits and maxExponent bound a number: it is compared exactly.
	maxDigits   = 100
	maxExponent = 400
	// maxComplaint is how much of what is wrong the code is told, in bytes.
	maxComplaint = 2000
)

// inputSchema is a compiled schema.
type inputSchema struct {
	schema *jsonschema.Schema
	weight weight
}

// weight is what a schema, or a part of it, costs to check against.
type weight struct {
	nodes int
	steps int // of its patterns, at each byte of a text
}

var errTooManyParts = fmt.Errorf("it has more than %d parts when its references are followed", maxSchema)

func (w weight) add(more weight) (weight, error) {
	w.nodes, w.steps = w.nodes+more.nodes, w.steps+more.steps
	if w.nodes > maxSchema || w.steps > maxSteps {
		return w, errTooManyParts
	}
	return w, nil
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
	if values(n) > maxSchema {
		return nil, wire.Invalid("%s: it has more than %d parts.", path, maxSchema)
	}
	w := &schemaWalk{
		root: n, weights: map[*claude.Node]weight{}, open: map[*claude.Node]bool{}, named: map[string]*claude.Node{}, anchors: map[string]*claude.Node{},
	}
	w.findAnchors(n)
	size, err := w.schema(n)
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
	return &inputSchema{schema: s, weight: size}, nil
}

func compile(n *claude.Node) (*jsonschema.Schema, error) {
	const name = "https://airlock.invalid/input_schema"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(n.Bytes()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noFiles{})
	p := &patterns{known: map[string]*regexp.Regexp{}}
	c.UseRegexpEngine(p.compile)
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(name)
	p.known = nil
	if p.large {
		return nil, errPattern // what the library says quotes it
	}
	return s, err
}

// patterns compiles the patterns of a schema, each once, within bounds. The library has each compiled several times, those of
// definitions too that nothing refers to, and, where a schema asks for texts that are patterns, those in an input.
type patterns struct {
	known map[string]*regexp.Regexp // nil when the schema has been compiled
	size  int                       // of the known ones
	large bool                      // one was refused
}

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if re := p.known[text]; re != nil {
		return re, nil
	}
	_, size, err := measure(text)
	if err != nil {
		p.large = p.large || p.known != nil
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	if p.known == nil {
		return re, nil
	}
	if p.size += size; p.size > maxPrograms {
		p.large = true
		return nil, errPattern
	}
	p.known[text] = re
	return re, nil
}

// complaint is what the library says, on one line.
func complaint(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return wire.Clip(strings.ReplaceAll(strings.Join(lines, "; "), "https://airlock.invalid/input_schema", ""), maxComplaint)
}

// check says what is wrong with an input; "" = nothing.
func (s *inputSchema) check(input *claude.Node) string {
	if err := checkNumbers(input); err != nil {
		return err.Error()
	}
	text := len(input.Bytes())
	if values(input)*s.weight.nodes > maxChecks || text*s.weight.nodes > maxBytes || text*s.weight.steps > maxSteps {
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
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return "it could not be checked"
	}
	var wrong []string
	firstFailures(failed, &wrong)
	return wire.Clip(strings.Join(wrong, "; "), maxComplaint)
}

// firstFailures collects what is wrong, as much of it as is told: all of it may be gigabytes, because each failure quotes the
// value.
func firstFailures(e *jsonschema.ValidationError, wrong *[]string) {
	size := 0
	for _, w := range *wrong {
		size += len(w)
	}
	if size >= maxComplaint {
		return
	}
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Reference, *kind.Group:
	default:
		own := *e
		own.Causes = nil
		*wrong = append(*wrong, shorten(own.Error()))
	}
	for _, cause := range e.Causes {
		firstFailures(cause, wrong)
	}
}

// shorten takes out the middle of one failure: the value stands there, and what is wrong with it at the end.
func shorten(s string) string {
	const head, tail = 200, 200
	if len(s) <= head+tail {
		return s
	}
	return strings.ToValidUTF8(s[:head], "") + "..." + strings.ToValidUTF8(s[len(s)-tail:], "")
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
			return fmt.Errorf("the number %s is out of range", wire.Clip(text, 40))
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

// schemaWalk weighs a schema with its references written out, and refuses circles among them.
type schemaWalk struct {
	root    *claude.Node
	weights map[*claude.Node]weight
	open    map[*claude.Node]bool
	named   map[string]*claude.Node // references that were resolved
	anchors map[string]*claude.Node
}

// schema walks one schema. Definitions count where they are referred to.
func (w *schemaWalk) schema(n *claude.Node) (weight, error) {
	if !n.Is(claude.Object) {
		return weight{nodes: 1}, nil
	}
	if size, ok := w.weights[n]; ok {
		return size, nil
	}
	if w.open[n] {
		return weight{}, errors.New("it refers to itself (Circular $ref detected)")
	}
	w.open[n] = true
	defer delete(w.open, n)
	size := weight{nodes: 1}
	for _, m := range n.Members {
		more, err := w.keyword(n, m.Name, m.Value)
		if err != nil {
			return weight{}, err
		}
		if size, err = size.add(more); err != nil {
			return weight{}, err
		}
	}
	w.weights[n] = size
	return size, nil
}

func (w *schemaWalk) keyword(holder *claude.Node, name string, v *claude.Node) (weight, error) {
	switch name {
	case "enum", "const", "default", "examples":
		return weight{nodes: values(v)}, nil
	case "$defs", "definitions":
		return weight{}, nil
	case "$ref", "$dynamicRef", "$recursiveRef":
		if !v.Is(claude.String) {
			return weight{}, nil // compiling tells
		}
		target, err := w.resolve(v.Str())
		if err != nil {
			return weight{}, err
		}
		return w.schema(target)
	case "$id", "id":
		if holder != w.root && v.Is(claude.String) {
			return weight{}, errors.New("$id can stand at its top only")
		}
	case "pattern":
		steps, _, err := measure(v.Str())
		return weight{nodes: 1, steps: steps}, err
	case "patternProperties":
		return w.patterns(v)
	case "properties", "dependentSchemas", "dependencies":
		return w.all(v)
	}
	if v.Is(claude.Array) {
		return w.all(v)
	}
	return w.schema(v)
}

// all walks the schemas in a list or an object of schemas.
func (w *schemaWalk) all(v *claude.Node) (weight, error) {
	inside := v.Elems()
	if v.Is(claude.Object) {
		for _, m := range v.Members {
			inside = append(inside, m.Value)
		}
	}
	var size weight
	for _, s := range inside {
		more, err := w.schema(s)
		if err != nil {
			return weight{}, err
		}
		if size, err = size.add(more); err != nil {
			return weight{}, err
		}
	}
	return size, nil
}

func (w *schemaWalk) patterns(v *claude.Node) (weight, error) {
	size, err := w.all(v)
	if err != nil || !v.Is(claude.Object) {
		return size, err
	}
	for _, m := range v.Members {
		steps, _, err := measure(m.Name)
		if err == nil {
			size, err = size.add(weight{steps: steps})
		}
		if err != nil {
			return weight{}, err
		}
	}
	return size, nil
}

var errPattern = fmt.Errorf("a pattern in it is too large: it may have %d bytes and %d steps, all together %d steps", maxPattern, maxProgram, maxPrograms)

// measure gives the steps of the program that a pattern is compiled to, which is what it may cost at each byte, and about what
// it takes in memory, in steps. One that does not compile is for compiling the schema to tell.
func measure(pattern string) (steps, size int, err error) {
	if len(pattern) > maxPattern {
		return 0, 0, errPattern
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, 0, nil //nolint:nilerr // see above
	}
	if size = writtenOut(re); size > maxProgram {
		return 0, 0, errPattern
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, 0, nil //nolint:nilerr // see above
	}
	return len(prog.Inst), size, nil
}

// writtenOut is about how many steps a pattern has when its repetitions are written out, or more than are taken.
func writtenOut(re *syntax.Regexp) int {
	size := 1
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass:
		size += len(re.Rune) / 16 // it is one step, and may have hundreds of ranges
	case syntax.OpConcat, syntax.OpRepeat:
		size = 0
	default:
	}
	for _, sub := range re.Sub {
		size = min(size+writtenOut(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return min(size, maxProgram+1)
}

// resolve finds what a reference names.
func (w *schemaWalk) resolve(ref string) (*claude.Node, error) {
	if n := w.named[ref]; n != nil {
		return n, nil
	}
	n, err := w.find(ref)
	if err == nil {
		w.named[ref] = n
	}
	return n, err
}

func (w *schemaWalk) find(ref string) (*claude.Node, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, fmt.Errorf("$ref %s: %w", strconv.Quote(wire.Clip(ref, 200)), errOutside)
	}
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		return nil, fmt.Errorf("$ref %s names nothing in it", strconv.Quote(wire.Clip(ref, 200)))
	}
	if pointer != "" && pointer[0] != '/' {
		if n := w.anchors[pointer]; n != nil {
			return n, nil
		}
		return nil, fmt.Errorf("$ref %s names nothing in it", strconv.Quote(wire.Clip(ref, 200)))
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
		return nil, fmt.Errorf("$ref %s names nothing in it", strconv.Quote(wire.Clip(ref, 200)))
	}
	return n, nil
}

// findAnchors notes the schemas that have a name of their own, at any depth; of two with one name the first counts.
func (w *schemaWalk) findAnchors(n *claude.Node) {
	if n.Is(claude.Object) {
		for _, m := range n.Members {
			if name := m.Value.Str(); (m.Name == "$anchor" || m.Name == "$dynamicAnchor") && name != "" && w.anchors[name] == nil {
				w.anchors[name] = n
			}
			w.findAnchors(m.Value)
		}
	}
	for _, it := range n.Elems() {
		w.findAnchors(it)
	}
}
