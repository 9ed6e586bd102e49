package messages

import (
	"sort"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// oursBeta reports whether a beta names what this server does itself; an
// upstream need not know it.
func oursBeta(name string) bool {
	for _, prefix := range []string{"code-execution-", "skills-", "files-api-", "managed-agents-", "message-threads-", "message-batches-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// upstreamBetas returns the beta names that go on to the upstream. The server
// has checked their form.
func upstreamBetas(betas map[string]bool) []string {
	var out []string
	for name := range betas {
		if !oursBeta(name) {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// checkStrict refuses what API version 2026-10-21 refuses.
func (r *request) checkStrict() error {
	for _, name := range []string{"temperature", "top_p", "top_k"} {
		if r.Root.Get(name) != nil {
			return wire.Invalid("%s: the parameter does not exist in anthropic-version %s.", name, wire.StrictVersion)
		}
	}
	for i, m := range r.Messages() {
		for j, b := range claude.Blocks(m) {
			path := "messages." + strconv.Itoa(i) + ".content." + strconv.Itoa(j)
			role := m.Get("role").Str()
			if role == "assistant" && b.Type() == "document" {
				return wire.Invalid("%s: a document block cannot stand in an assistant message in anthropic-version %s.", path, wire.StrictVersion)
			}
			if role == "user" && b.Type() == "text" && b.Get("citations") != nil {
				return wire.Invalid("%s.citations: not possible in a user message in anthropic-version %s.", path, wire.StrictVersion)
			}
		}
	}
	return nil
}
