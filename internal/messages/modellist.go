package messages

import (
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// checkModels holds every model that the request may be billed for against the app's list: the one it asks for, those it
// falls back to, and those that a tool consults. Wherever a member is named model it counts, in whatever case, as some
// upstreams do not mind the case; not so in what is application data.
func (r *request) checkModels(c tenant.Caller) error {
	if len(c.Models) == 0 {
		return nil
	}
	for _, m := range r.Root.Members {
		if strings.EqualFold(m.Name, "fallbacks") && m.Value.Is(claude.String) {
			return wire.Forbidden("%s: this app may use some models only, so it has to name those it falls back to.", m.Name)
		}
		if at := foreignModel(c, m, nil); at != "" {
			return wire.Forbidden("%s: this app may not use this model.", at)
		}
	}
	return nil
}

// ownData are the members that no model is named in: what was said, and schemas and examples, whose names are the
// application's.
var ownData = set("messages", "system", "metadata", "input_schema", "input_examples", "output_config", "output_format")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// foreignModel gives the path of the first model at or below a member that the caller may not use, or "".
func foreignModel(c tenant.Caller, m claude.Member, path []string) string {
	path = append(path, m.Name)
	switch {
	case ownData[m.Name]:
		return ""
	case !strings.EqualFold(m.Name, "model"):
		return foreignModelIn(c, m.Value, path)
	case m.Value.IsNull() || c.MayUseModel(m.Value.Str()):
		return ""
	}
	return wire.JoinPath(path)
}

func foreignModelIn(c tenant.Caller, n *claude.Node, path []string) string {
	for i, it := range n.Elems() {
		if at := foreignModelIn(c, it, append(path, strconv.Itoa(i))); at != "" {
			return at
		}
	}
	if !n.Is(claude.Object) {
		return ""
	}
	for _, m := range n.Members {
		if at := foreignModel(c, m, path); at != "" {
			return at
		}
	}
	return ""
}
