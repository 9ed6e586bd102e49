package messages

import (
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// upstreamTools replaces the code execution entry by ordinary tools in its
// place, leaves out what only code may call, and takes off what only this server
// understands.
func upstreamTools(tools []*claude.Node, o codeexec.Offer, lib codeexec.Library, limits codeexec.Limits) *claude.Node {
	out := claude.NewArray()
	var breakpoint *claude.Node // of a tool that is left out; it moves to the tool before
	for _, t := range tools {
		cc := t.Get("cache_control")
		switch {
		case codeexec.IsToolType(t.Type()):
			subs := o.Tools(lib, limits)
			// The cache breakpoint stays behind the last tool of the entry.
			if cc != nil {
				subs[len(subs)-1].Set("cache_control", cc)
			}
			out.Items = append(out.Items, subs...)
		case !callersOf(t).direct:
			if !cc.IsNull() {
				breakpoint = cc
			}
		case t.Get("allowed_callers") != nil:
			t = t.Shallow()
			t.Delete("allowed_callers")
			out.Items = append(out.Items, t)
		default:
			out.Items = append(out.Items, t)
		}
		if n := len(out.Items); n > 0 && !breakpoint.IsNull() {
			last := out.Items[n-1].Shallow()
			last.Set("cache_control", breakpoint)
			out.Items[n-1], breakpoint = last, nil
		}
	}
	return out
}

// upstreamChoice renames a tool_choice that names the code execution tool when
// there is no sub-tool of that name.
func upstreamChoice(choice *claude.Node, o codeexec.Offer) *claude.Node {
	if o.Version == "" || choice.Type() != "tool" || choice.Get("name").Str() != codeexec.ToolCell || o.Offers(codeexec.ToolCell) {
		return choice
	}
	choice = choice.Shallow()
	choice.Set("name", claude.NewString(o.SubTools()[0]))
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
	if wire.PlainID(suffix, 64) {
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
