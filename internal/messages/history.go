package messages

import (
	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
)

// history turns messages with server tool blocks into messages that any
// upstream understands: a server_tool_use becomes a tool_use, its result a
// tool_result in a user message right behind it, and the assistant message is
// split there. Messages without such blocks stay as they are, node for node, so
// thinking blocks keep their signatures and prompt caches their prefix.
//
// The same code writes the history of the first turn and of every replay, which
// is why the upstream sees one prefix over the whole conversation.
type history struct {
	files   loaded
	results map[string]*claude.Node
	dropped map[string]bool // programmatic calls, which the model never saw

	out   []*claude.Node
	carry []*claude.Node // results that open the next user message
	join  bool           // the next user message continues the last one
	own   int            // len(out) when its last message was made here and may be added to
}

// upstreamMessages rewrites the messages and the content made so far in this
// response, which continues the last message when that is an assistant's.
func upstreamMessages(messages, made []*claude.Node, files loaded) *claude.Node {
	if len(made) > 0 {
		messages = withMade(messages, made)
	}
	h := &history{files: files, results: resultIndex(messages), dropped: map[string]bool{}}
	for _, m := range messages {
		if m.Get("role").Str() == "assistant" {
			h.assistant(m)
		} else {
			h.user(m)
		}
	}
	h.settle()
	return claude.NewArray(h.out...)
}

func withMade(messages, made []*claude.Node) []*claude.Node {
	out := append([]*claude.Node(nil), messages...)
	last := out[len(out)-1]
	if last.Get("role").Str() != "assistant" {
		return append(out, claude.NewObject("role", "assistant", "content", claude.NewArray(made...)))
	}
	last = last.Shallow()
	last.Set("content", claude.NewArray(append(append([]*claude.Node(nil), claude.Blocks(last)...), made...)...))
	out[len(out)-1] = last
	return out
}

// settle writes results that no user message took over.
func (h *history) settle() {
	if len(h.carry) == 0 {
		return
	}
	h.emit("user", h.carry)
	h.carry, h.join = nil, true
}

func (h *history) emit(role string, blocks []*claude.Node) {
	n := len(h.out)
	switch {
	case !h.join || role != "user" || n == 0 || h.out[n-1].Get("role").Str() != "user":
		h.out = append(h.out, claude.NewObject("role", role, "content", claude.NewArray(blocks...)))
		h.own = n + 1
	case h.own == n:
		// Copying the message for each of many that join it would take quadratic time.
		content := h.out[n-1].Get("content")
		content.Items = append(content.Items, blocks...)
	default:
		last := h.out[n-1].Shallow()
		last.Set("content", claude.NewArray(append(append([]*claude.Node(nil), claude.Blocks(last)...), blocks...)...))
		h.out[n-1], h.own = last, n
	}
	h.join = false
}

// segment is an assistant message under way: a group of calls ends it as soon
// as something follows their results.
type segment struct {
	moved    []*claude.Node // client calls of the groups before, which stand first
	blocks   []*claude.Node
	group    []codeexec.Call
	answered bool
}

func (h *history) assistant(m *claude.Node) {
	h.settle()
	if !needsRewrite(m) {
		h.out = append(h.out, m)
		h.join = false
		return
	}
	var s segment
	for _, b := range claude.Blocks(m) {
		switch {
		case codeexec.IsResultType(b.Type()):
			s.answered = len(s.group) > 0
			continue
		case isProgrammatic(b):
			h.dropped[b.Get("id").Str()] = true
			continue
		}
		if s.answered {
			s = h.split(s)
		}
		if isServerCall(b) {
			call := codeexec.Call{ID: b.Get("id").Str(), Name: b.Get("name").Str(), Input: b.Get("input")}
			s.group = append(s.group, call)
			b = upstreamCall(call, b.Get("cache_control"))
		} else {
			b = upstreamBlock(b)
		}
		s.blocks = append(s.blocks, b)
	}
	s.blocks = append(s.moved, s.blocks...)
	if len(s.blocks) == 0 {
		h.join = true
		return
	}
	h.emit("assistant", s.blocks)
	h.carry = h.answers(s.group)
}

// split ends a segment whose calls were answered. Client calls of its group are
// answered in the next user message and move behind the results.
func (h *history) split(s segment) segment {
	var now []*claude.Node
	later := s.moved
	ours := map[string]bool{}
	for _, c := range s.group {
		ours[upstreamID(c.ID)] = true
	}
	for _, b := range s.blocks {
		if b.Type() == "tool_use" && !ours[b.Get("id").Str()] {
			later = append(later, b)
		} else {
			now = append(now, b)
		}
	}
	h.emit("assistant", now)
	h.emit("user", h.answers(s.group))
	return segment{moved: later}
}

// answers are the tool_result blocks of a group. A call whose result is missing
// gets an error: the conversation goes on, and the model may call again.
func (h *history) answers(group []codeexec.Call) []*claude.Node {
	out := make([]*claude.Node, 0, len(group))
	for _, c := range group {
		b := h.results[c.ID]
		if b == nil {
			b = codeexec.ErrorBlock(c, codeexec.CodeUnavailable, "The call was not run.")
		}
		content, failed := codeexec.Render(b)
		r := claude.NewObject("type", "tool_result", "tool_use_id", upstreamID(c.ID), "content", content)
		if failed {
			r.Set("is_error", claude.NewBool(true))
		}
		if cc := b.Get("cache_control"); !cc.IsNull() {
			r.Set("cache_control", cc)
		}
		out = append(out, r)
	}
	return out
}

func needsRewrite(m *claude.Node) bool {
	for _, b := range claude.Blocks(m) {
		if isServerCall(b) || codeexec.IsResultType(b.Type()) || isProgrammatic(b) || b.Get("caller") != nil ||
			b.Type() == "container_upload" || emptyCitations(b) {
			return true
		}
	}
	return false
}

func emptyCitations(b *claude.Node) bool {
	return b.Get("citations") != nil && b.Get("citations").IsNull()
}

func upstreamCall(c codeexec.Call, cacheControl *claude.Node) *claude.Node {
	b := claude.NewObject("type", "tool_use", "id", upstreamID(c.ID), "name", c.Name, "input", codeexec.Canonical(c.Name, c.Input))
	if !cacheControl.IsNull() {
		b.Set("cache_control", cacheControl)
	}
	return b
}

// upstreamBlock takes off what only this server writes into assistant blocks.
func upstreamBlock(b *claude.Node) *claude.Node {
	switch {
	case b.Type() == "container_upload":
		return claude.NewObject("type", "text", "text", injected+"A file was put into the sandbox.")
	case b.Type() == "tool_use" && b.Get("caller") != nil:
		b = b.Shallow()
		b.Delete("caller")
	case emptyCitations(b):
		b = b.Shallow()
		b.Delete("citations")
	}
	return b
}

func (h *history) user(m *claude.Node) {
	if m.Get("role").Str() != "user" {
		h.settle()
	}
	blocks, changed := h.userBlocks(m)
	if !changed && len(h.carry) == 0 && !h.join {
		h.out = append(h.out, m)
		return
	}
	blocks = append(h.carry, blocks...)
	h.carry = nil
	if len(blocks) == 0 {
		h.join = true
		return
	}
	h.emit(m.Get("role").Str(), blocks)
}

func (h *history) userBlocks(m *claude.Node) (blocks []*claude.Node, changed bool) {
	for _, b := range claude.Blocks(m) {
		if b.Type() == "tool_result" && h.dropped[b.Get("tool_use_id").Str()] {
			changed = true
			continue
		}
		shown := h.files.show(b)
		changed = changed || shown != b
		blocks = append(blocks, shown)
	}
	return blocks, changed
}
