package messages

import (
	"slices"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// The refusals below use the key phrases of the hosted service, because clients
// and gateways search for them.

// isServerCall reports whether b is a call of one of our sub-tools.
func isServerCall(b *claude.Node) bool {
	return b.Type() == "server_tool_use" && codeexec.IsSubTool(b.Get("name").Str())
}

// isProgrammatic reports whether b is a client tool call that came from code.
func isProgrammatic(b *claude.Node) bool {
	t := b.At("caller", "type").Str()
	return b.Type() == "tool_use" && t != "" && t != "direct"
}

// isClientCall reports whether b is a tool call that the client answers.
func isClientCall(b *claude.Node) bool { return b.Type() == "tool_use" && !isProgrammatic(b) }

// resultIndex finds the result of each of our calls, wherever it stands: a
// client may move it within its message or have it in a later one.
func resultIndex(messages []*claude.Node) map[string]*claude.Node {
	index := map[string]*claude.Node{}
	for _, m := range messages {
		for _, b := range claude.Blocks(m) {
			if id := b.Get("tool_use_id").Str(); codeexec.IsResultType(b.Type()) && index[id] == nil {
				index[id] = b
			}
		}
	}
	return index
}

// checkPairing refuses calls of one id and results without a call, and finds the calls that are to
// run before the model is asked. A dangling call anywhere else is not an error:
// history.go answers it, so that no conversation is locked for ever.
func (r *request) checkPairing() error {
	calls := map[string]bool{}
	for i, m := range r.Messages() {
		for j, b := range claude.Blocks(m) {
			if !isServerCall(b) {
				continue
			}
			id := b.Get("id").Str()
			if calls[id] {
				// One result would be shown to the model as that of each of them.
				return wire.Invalid("messages.%d.content.%d.id: `tool_use` ids must be unique: %s stands there already.", i, j, id)
			}
			calls[id] = true
		}
	}
	for i, m := range r.Messages() {
		for j, b := range claude.Blocks(m) {
			id := b.Get("tool_use_id").Str()
			if codeexec.IsResultType(b.Type()) && !calls[id] {
				return wire.Invalid("messages.%d.content.%d: unexpected `tool_use_id` found in `%s` blocks: %s. Each result block needs its `server_tool_use` block.", i, j, b.Type(), id)
			}
		}
	}
	return r.findDeferred()
}

// findDeferred looks at the end of the history for calls of the last assistant
// message that have no result.
func (r *request) findDeferred() error {
	messages := r.Messages()
	last := len(messages) - 1
	at := last
	if messages[last].Get("role").Str() == "user" {
		at--
	}
	if at < 0 || messages[at].Get("role").Str() != "assistant" {
		return nil
	}
	results := resultIndex(messages)
	waits, err := findPending(messages, at, results)
	if err != nil {
		return err
	}
	if waits.source != "" {
		return r.resume(waits, results)
	}
	var open []codeexec.Call
	clients := map[string]bool{}
	for _, b := range claude.Blocks(messages[at]) {
		id := b.Get("id").Str()
		switch {
		case isServerCall(b) && results[id] == nil:
			open = append(open, codeexec.Call{ID: id, Name: b.Get("name").Str(), Input: b.Get("input")})
		case isClientCall(b):
			clients[id] = true
		}
	}
	if len(open) == 0 {
		return nil
	}
	if at < last {
		resumes, err := continues(last, messages[last], clients, open[0])
		if err != nil || !resumes {
			return err
		}
	} else if len(clients) > 0 {
		return unanswered(at, clients)
	}
	if r.version == "" {
		return noTool(at, open[0])
	}
	r.deferred = open
	return nil
}

// continues decides whether a user message after open calls answers the client
// calls of their group, so that the open ones are to run. A message without any
// result for them is a new turn instead.
func continues(at int, m *claude.Node, clients map[string]bool, open codeexec.Call) (bool, error) {
	if len(clients) == 0 {
		return false, nil
	}
	missing := map[string]bool{}
	for id := range clients {
		missing[id] = true
	}
	answers, other := 0, -1
	for j, b := range claude.Blocks(m) {
		id := b.Get("tool_use_id").Str()
		switch {
		case b.Type() != "tool_result":
			other = j
		case !clients[id]:
			return false, wire.Invalid("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at, j, id)
		default:
			answers++
			delete(missing, id)
		}
	}
	if len(missing) > 0 {
		return false, unanswered(at-1, missing)
	}
	if other >= 0 && answers > 0 {
		return false, wire.Invalid("messages.%d.content.%d: `%s` tool use with id `%s` was found without a corresponding `%s` block; send the `tool_result` blocks alone first.",
			at, other, open.Name, open.ID, codeexec.ResultType(open.Name))
	}
	return true, nil
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
