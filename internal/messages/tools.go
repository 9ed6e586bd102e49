package messages

import (
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// upstreamTools replaces the code execution entry by ordinary tools in its
// place and takes off what only this server understands.
func upstreamTools(tools []*claude.Node, v codeexec.Version, lib codeexec.Library, limits codeexec.Limits) *claude.Node {
	out := claude.NewArray()
	for _, t := range tools {
		if !codeexec.IsToolType(t.Type()) {
			if t.Get("allowed_callers") != nil {
				t = t.Shallow()
				t.Delete("allowed_callers")
			}
			out.Items = append(out.Items, t)
			continue
		}
		subs := v.Tools(lib, limits)
		// The cache breakpoint stays behind the last tool of the entry.
		if cc := t.Get("cache_control"); cc != nil {
			subs[len(subs)-1].Set("cache_control", cc)
		}
		out.Items = append(out.Items, subs...)
	}
	return out
}

// upstreamChoice renames a tool_choice that names the code execution tool when
// the version has no sub-tool of that name.
func upstreamChoice(choice *claude.Node, v codeexec.Version) *claude.Node {
	if v == "" || choice.Type() != "tool" || choice.Get("name").Str() != codeexec.ToolCell || v.Offers(codeexec.ToolCell) {
		return choice
	}
	choice = choice.Shallow()
	choice.Set("name", claude.NewString(v.SubTools()[0]))
	return choice
}

const (
	serverPrefix = "srvtoolu_"
	toolPrefix   = "toolu_"
)

// serverID makes the id of a server_tool_use block from the upstream's id of
// the call. An id that the conversation has already is replaced: some upstreams
// count from zero in each answer.
func serverID(upstream string, taken func(string) bool) string {
	suffix := strings.TrimPrefix(upstream, toolPrefix)
	if suffix != "" && len(suffix) <= 64 && strings.Trim(suffix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" {
		if id := serverPrefix + suffix; !taken(id) {
			return id
		}
	}
	return wire.NewID("srvtoolu")
}

// upstreamID is the inverse: the id under which the upstream is shown a call.
func upstreamID(id string) string {
	if s, ok := strings.CutPrefix(id, serverPrefix); ok {
		return toolPrefix + s
	}
	return id
}
