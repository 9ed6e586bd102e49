package messages

import (
	"github.com/airlock-sandbox/airlock/internal/claude"
)

// usage adds up the usage of the upstream answers of one response. The fields
// are those that the client libraries call required.
type usage struct {
	input, output, created, read  int64
	created5m, created1h          int64
	thinking, searches, fetches   int64
	executions                    int64
	tier, speed, geo              *claude.Node
	startCreated5m, startCreate1h int64 // as message_start told them
}

// number reads a count; what is no count is none, so that no answer takes from another one's.
func number(n *claude.Node) int64 {
	i, _ := n.Int()
	return min(max(i, 0), mostTokens)
}

// mostTokens keeps sums of counts from running over.
const mostTokens = 1 << 50

// overlay returns the usage of message_start with what message_delta says on
// top: its numbers are cumulative for the same answer.
func overlay(start, delta *claude.Node) *claude.Node {
	out := claude.NewObject()
	for _, n := range []*claude.Node{start, delta} {
		if !n.Is(claude.Object) {
			continue
		}
		for _, m := range n.Members {
			if !m.Value.IsNull() {
				out.Set(m.Name, m.Value)
			}
		}
	}
	return out
}

// add counts one upstream answer.
func (u *usage) add(one *claude.Node) {
	u.input += number(one.Get("input_tokens"))
	u.output += number(one.Get("output_tokens"))
	u.created += number(one.Get("cache_creation_input_tokens"))
	u.read += number(one.Get("cache_read_input_tokens"))
	u.created5m += number(one.At("cache_creation", "ephemeral_5m_input_tokens"))
	u.created1h += number(one.At("cache_creation", "ephemeral_1h_input_tokens"))
	u.thinking += number(one.At("output_tokens_details", "thinking_tokens"))
	u.searches += number(one.At("server_tool_use", "web_search_requests"))
	u.fetches += number(one.At("server_tool_use", "web_fetch_requests"))
	keep := func(to **claude.Node, name string) {
		if v := one.Get(name); !v.IsNull() {
			*to = v
		}
	}
	keep(&u.tier, "service_tier")
	keep(&u.speed, "speed")
	keep(&u.geo, "inference_geo")
}

func orString(n *claude.Node, s string) *claude.Node {
	if n == nil {
		return claude.NewString(s)
	}
	return n
}

func (u *usage) serverTools() *claude.Node {
	return claude.NewObject("web_search_requests", u.searches, "web_fetch_requests", u.fetches, "code_execution_requests", u.executions)
}

func (u *usage) creation() *claude.Node {
	return claude.NewObject("ephemeral_5m_input_tokens", u.created5m, "ephemeral_1h_input_tokens", u.created1h)
}

// start is the usage of message_start.
func (u *usage) start() *claude.Node {
	u.startCreated5m, u.startCreate1h = u.created5m, u.created1h
	return claude.NewObject(
		"input_tokens", u.input, "cache_creation_input_tokens", u.created, "cache_read_input_tokens", u.read,
		"cache_creation", u.creation(),
		"output_tokens", u.output,
		"server_tool_use", u.serverTools(),
		"service_tier", orString(u.tier, "standard"), "speed", orString(u.speed, "standard"), "inference_geo", orString(u.geo, "not_available"))
}

// final is the usage of message_delta, the sum over all answers. The split of
// cache_creation is told there only when message_start told another one: the
// client types have no such member.
func (u *usage) final() *claude.Node {
	out := claude.NewObject(
		"input_tokens", u.input, "cache_creation_input_tokens", u.created, "cache_read_input_tokens", u.read)
	if u.created5m != u.startCreated5m || u.created1h != u.startCreate1h {
		out.Set("cache_creation", u.creation())
	}
	out.Set("output_tokens", claude.NewInt(u.output))
	out.Set("output_tokens_details", claude.NewObject("thinking_tokens", u.thinking))
	out.Set("server_tool_use", u.serverTools())
	return out
}
