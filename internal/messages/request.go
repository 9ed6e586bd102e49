package messages

import (
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// request is a Messages request and what was found in it.
type request struct {
	*claude.Request
	counting  bool
	betas     []string
	version   codeexec.Version // "" = no code execution tool
	container claude.ContainerRef
	refs      []claude.FileRef
	// functions are the tools that code may call.
	functions []codeexec.Function
	// deferred are the calls that were left unanswered by the response this
	// request continues; they run before anything else.
	deferred []codeexec.Call
	// answers are the results for the code of resumes, which is one of deferred.
	answers []codeexec.Answer
	resumes string
}

// offer is what the model is offered in place of the code execution tool.
func (r *request) offer() codeexec.Offer {
	return codeexec.Offer{Version: r.version, Functions: r.functions}
}

// parseRequest reads a body and checks its shape. A counting request is one for
// count_tokens, which has no max_tokens.
func parseRequest(body []byte, counting bool) (*request, error) {
	parsed, err := claude.ParseRequest(body)
	if err != nil {
		return nil, err
	}
	r := &request{Request: parsed, counting: counting}
	if !r.Root.Get("thread").IsNull() {
		return nil, threadRefused()
	}
	if n, ok := r.Root.Get("max_tokens").Int(); !counting && (!ok || n < 1) {
		return nil, wire.Invalid("max_tokens: a number of at least 1 is required.")
	}
	return r, nil
}

// threadRefused is the answer on which the tool runners of the official SDKs
// (Go 2.15, TypeScript 1.14) send the whole history without thread; any other
// error makes them fail.
func threadRefused() error {
	e := wire.Invalid("thread: server-kept threads are not available on this server; send the whole history without thread.")
	e.Code = "thread_unsupported_request"
	e.Details = map[string]any{"unsupported": nil}
	return e
}

// check runs the checks after the model is known, in their fixed order: tools,
// pairing, the container field, file references.
func (r *request) check() error {
	if err := r.checkTools(); err != nil {
		return err
	}
	var err error
	if r.container, err = r.Container(); err != nil {
		return err
	}
	if err := r.checkPairing(); err != nil {
		return err
	}
	if len(r.container.Skills) > 0 {
		return wire.Invalid("container.skills: skills are not available on this server.")
	}
	if r.refs, err = r.References(); err != nil {
		return err
	}
	for _, ref := range r.refs {
		if ref.Kind == claude.RefUpload && r.version == "" {
			return wire.Invalid("%s: a container_upload block needs a code execution tool in tools, for example {\"type\": %q, \"name\": \"code_execution\"}.",
				strings.TrimSuffix(ref.Path, ".file_id"), string(codeexec.V20260521))
		}
	}
	return nil
}

func (r *request) checkTools() error {
	names := map[string]int{}
	for i, t := range r.Tools() {
		path := "tools." + strconv.Itoa(i)
		if codeexec.IsToolType(t.Type()) {
			if err := r.checkCodeTool(path, t); err != nil {
				return err
			}
		}
		name := t.Get("name").Str()
		if first, twice := names[name]; twice && name != "" {
			return wire.Invalid("%s.name: %q is the name of tools.%d already; tool names must be unique.", path, name, first)
		}
		names[name] = i
	}
	if err := r.findFunctions(); err != nil || r.version == "" {
		return err
	}
	for _, sub := range r.offer().SubTools() {
		if i, taken := names[sub]; taken && !codeexec.IsToolType(r.Tools()[i].Type()) {
			return wire.Invalid("tools.%d.name: %q is the name of a code execution tool.", i, sub)
		}
	}
	return nil
}

func (r *request) checkCodeTool(path string, t *claude.Node) error {
	v, ok := codeexec.ParseVersion(t.Type())
	if !ok {
		var known []string
		for _, v := range codeexec.Versions() {
			known = append(known, string(v))
		}
		return wire.Invalid("%s.type: this version of the code execution tool is not known here; one of %s is required.", path, strings.Join(known, ", "))
	}
	if r.version != "" {
		return wire.Invalid("%s: a request can have one code execution tool only.", path)
	}
	if name := t.Get("name"); name.Str() != codeexec.ToolCell {
		return wire.Invalid("%s.name: \"code_execution\" is required.", path)
	}
	r.version = v
	return nil
}
