package messages

import (
	"sort"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// The API versions that clients send. strictVersion refuses some parameters that
// the earlier one takes; this server takes them in both unless told otherwise.
const (
	baseVersion   = "2023-06-01"
	strictVersion = "2026-10-21"
)

// checkVersion takes a missing version as the base version.
func checkVersion(values []string) error {
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 {
		return wire.Invalid("anthropic-version: the header must be sent once.")
	}
	if v := values[0]; v != baseVersion && v != strictVersion {
		return wire.Invalid("anthropic-version: %s or %s is required.", baseVersion, strictVersion)
	}
	return nil
}

// ours are the beta names of what this server does itself; an upstream need not
// know them.
func oursBeta(name string) bool {
	for _, prefix := range []string{"code-execution-", "skills-", "files-api-", "managed-agents-", "message-threads-", "message-batches-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// upstreamBetas returns the beta names that go on to the upstream. Any name of
// the usual form is accepted: clients send names for features that are long
// generally available.
func upstreamBetas(betas map[string]bool) ([]string, error) {
	var out []string
	for name := range betas {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return nil, wire.Invalid("anthropic-beta: a name has characters other than a to z, 0 to 9 and the hyphen.")
		}
		if !oursBeta(name) {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out, nil
}

// checkStrict refuses what API version 2026-10-21 refuses.
func (r *request) checkStrict() error {
	for _, name := range []string{"temperature", "top_p", "top_k"} {
		if r.Root.Get(name) != nil {
			return wire.Invalid("%s: the parameter does not exist in anthropic-version %s.", name, strictVersion)
		}
	}
	for i, m := range r.Messages() {
		for j, b := range claude.Blocks(m) {
			path := "messages." + strconv.Itoa(i) + ".content." + strconv.Itoa(j)
			role := m.Get("role").Str()
			if role == "assistant" && b.Type() == "document" {
				return wire.Invalid("%s: a document block cannot stand in an assistant message in anthropic-version %s.", path, strictVersion)
			}
			if role == "user" && b.Type() == "text" && b.Get("citations") != nil {
				return wire.Invalid("%s.citations: not possible in a user message in anthropic-version %s.", path, strictVersion)
			}
		}
	}
	return nil
}
