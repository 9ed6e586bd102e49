package wire

import (
	"net/http"
	"regexp"
	"strings"
)

// The versions of the API that are spoken. The newest Go and TypeScript SDKs send the second, which refuses some
// parameters that the first one takes.
const (
	BaseVersion   = "2023-06-01"
	StrictVersion = "2026-10-21"
)

// Version reads anthropic-version; a missing one is BaseVersion.
func Version(h http.Header) (string, error) {
	sent := h.Values("Anthropic-Version")
	switch {
	case len(sent) == 0:
		return BaseVersion, nil
	case len(sent) > 1:
		return "", Invalid("anthropic-version: the header must be sent once.")
	case sent[0] != BaseVersion && sent[0] != StrictVersion:
		return "", Invalid("anthropic-version: %q is not known; use %s or %s", cut(sent[0]), BaseVersion, StrictVersion)
	}
	return sent[0], nil
}

// Betas gives the names in all anthropic-beta headers; each header may hold a comma list.
func Betas(h http.Header) map[string]bool {
	set := map[string]bool{}
	for _, v := range h.Values("Anthropic-Beta") {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "" {
				set[name] = true
			}
		}
	}
	return set
}

var betaForm = regexp.MustCompile(`^[a-z0-9-]{1,128}$`)

// CheckBetas refuses what cannot be the name of a beta. known, when not nil, lists the only names that are taken; else
// any name of that form is, since clients send many that change nothing here.
func CheckBetas(h http.Header, known map[string]bool) error {
	for name := range Betas(h) {
		if !betaForm.MatchString(name) {
			return Invalid("anthropic-beta: %q is not the name of a beta", cut(name))
		}
		if known != nil && !known[name] {
			return Invalid("anthropic-beta: %q is not a known beta", cut(name))
		}
	}
	return nil
}

// cut shortens what a client sent for an error message.
func cut(s string) string {
	if len(s) <= 64 {
		return s
	}
	return s[:64] + "..."
}
