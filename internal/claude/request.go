package claude

import (
	"strconv"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Request is a Messages request. Root is the whole tree; the methods read it
// without changing it.
type Request struct {
	Root *Node
}

// ParseRequest reads a body and checks the shape that every later step relies
// on: an object with messages, each an object with a role and with content that
// is a string or an array of typed blocks.
func ParseRequest(body []byte) (*Request, error) {
	root, err := Parse(body)
	if err != nil {
		return nil, err
	}
	if !root.Is(Object) {
		return nil, wire.Invalid("The body must be a JSON object.")
	}
	r := &Request{Root: root}
	if m := root.Get("model"); m.Str() == "" {
		return nil, wire.Invalid("model: a model name is required.")
	}
	if s := root.Get("stream"); !s.IsNull() && !s.Is(Bool) {
		return nil, wire.Invalid("stream: true or false is required.")
	}
	if t := root.Get("tools"); !t.IsNull() && !t.Is(Array) {
		return nil, wire.Invalid("tools: an array is required.")
	}
	for i, t := range r.Tools() {
		if !t.Is(Object) {
			return nil, wire.Invalid("tools.%d: an object is required.", i)
		}
	}
	return r, r.checkMessages()
}

func (r *Request) checkMessages() error {
	if m := r.Root.Get("messages"); !m.Is(Array) || len(m.Items) == 0 {
		return wire.Invalid("messages: a non-empty array is required.")
	}
	for i, m := range r.Messages() {
		path := "messages." + strconv.Itoa(i)
		if !m.Is(Object) {
			return wire.Invalid("%s: an object is required.", path)
		}
		if role := m.Get("role").Str(); role != "user" && role != "assistant" && role != "system" {
			return wire.Invalid("%s.role: \"user\" or \"assistant\" is required.", path)
		}
		c := m.Get("content")
		if c.Is(String) {
			continue
		}
		if !c.Is(Array) {
			return wire.Invalid("%s.content: a string or an array of content blocks is required.", path)
		}
		for j, b := range c.Items {
			if !b.Is(Object) || b.Type() == "" {
				return wire.Invalid("%s.content.%d: a content block with a type is required.", path, j)
			}
		}
	}
	return nil
}

// Model is the model name.
func (r *Request) Model() string { return r.Root.Get("model").Str() }

// Stream reports whether the answer is to be streamed.
func (r *Request) Stream() bool { return r.Root.Get("stream").IsTrue() }

// Messages are the entries of messages.
func (r *Request) Messages() []*Node { return r.Root.Get("messages").Elems() }

// Tools are the entries of tools.
func (r *Request) Tools() []*Node { return r.Root.Get("tools").Elems() }

// Blocks returns the content blocks of a message; a plain string is one text
// block.
func Blocks(message *Node) []*Node {
	c := message.Get("content")
	if c.Is(String) {
		return []*Node{NewObject("type", "text", "text", c)}
	}
	return c.Elems()
}
