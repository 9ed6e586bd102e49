package messages

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// enter decides, before anything is looked up, whether the caller may send the
// request at all, and takes out of it what a user must not tell the upstream,
// whose account is shared by all of them.
func (s *Service) enter(c tenant.Caller, r *request, e *upstream.Endpoint) error {
	if !c.AppProven && r.needsApp() {
		return c.RequireApp()
	}
	if err := r.checkModels(c); err != nil {
		return err
	}
	if c.Subject == "" {
		return nil // an API key acts for the app itself
	}
	if err := r.checkShared(e); err != nil {
		return err
	}
	return s.strip(c, r)
}

// needsApp reports whether the request could make code run or touches what an
// app owns. What cannot be read counts.
func (r *request) needsApp() bool {
	if !r.Root.Get("container").IsNull() {
		return true
	}
	if refs, err := r.References(); err != nil || len(refs) > 0 {
		return true
	}
	for _, t := range r.Tools() {
		if runsCode(t.Type()) || t.Get("allowed_callers") != nil {
			return true
		}
	}
	return false
}

// firstFiltering is the date of the first web tools that filter what they find
// by running code.
const firstFiltering = "20260209"

// runsCode reports whether a tool of this type has a sandbox behind it.
func runsCode(toolType string) bool {
	if strings.HasPrefix(toolType, "code_execution") {
		return true
	}
	for _, web := range []string{"web_search_", "web_fetch_"} {
		if date, ok := strings.CutPrefix(toolType, web); ok {
			return date >= firstFiltering
		}
	}
	return false
}

// checkShared refuses what would be done with the operator's account or network
// for a user.
func (r *request) checkShared(e *upstream.Endpoint) error {
	container := r.Root.Get("container")
	for i, skill := range container.Get("skills").Elems() {
		if skill.Type() == "custom" {
			return wire.Invalid("container.skills.%d: Custom skills are not supported through this gateway.", i)
		}
	}
	if !r.Root.Get("mcp_servers").IsNull() {
		return wire.Invalid("mcp_servers: not available through this gateway.")
	}
	for i, t := range r.Tools() {
		if t.Type() == "mcp_toolset" {
			return wire.Invalid("tools.%d.type: mcp_toolset is not available through this gateway.", i)
		}
	}
	// Anthropic fetches from its own network; another model may stand in the operator's.
	if e.Kind == upstream.KindAnthropic {
		return nil
	}
	for _, name := range []string{"messages", "system"} {
		if at := urlSource(r.Root.Get(name), []string{name}); at != "" {
			return wire.Invalid("%s: a source of type url is not available on this server; upload the file and name its file_id.", at)
		}
	}
	return nil
}

// urlSource finds the first source that the upstream would fetch, and gives its
// path. The input of calls is application data.
func urlSource(n *claude.Node, path []string) string {
	if n.Is(claude.Array) {
		for i, it := range n.Items {
			if at := urlSource(it, append(path, strconv.Itoa(i))); at != "" {
				return at
			}
		}
	}
	if !n.Is(claude.Object) {
		return ""
	}
	for _, m := range n.Members {
		p := append(path, m.Name)
		if m.Name == "source" && m.Value.Type() == "url" {
			return wire.JoinPath(p)
		}
		if m.Name == "input" && strings.HasSuffix(n.Type(), "tool_use") {
			continue
		}
		if at := urlSource(m.Value, p); at != "" {
			return at
		}
	}
	return ""
}

// strip drops what says who pays or who speaks, and says the second ourselves.
func (s *Service) strip(c tenant.Caller, r *request) error {
	root := r.Root.Shallow()
	root.Delete("billing_policy")
	root.Delete("fallback_credit_token")
	if d := root.Get("diagnostics"); d.Is(claude.Object) && d.Get("previous_message_id") != nil {
		d = d.Shallow()
		d.Delete("previous_message_id")
		root.Set("diagnostics", d)
	}
	metadata := root.Get("metadata")
	switch {
	case metadata.IsNull():
		metadata = claude.NewObject()
	case metadata.Is(claude.Object):
		metadata = metadata.Shallow()
	default:
		return wire.Invalid("metadata: an object is required.")
	}
	metadata.Delete("user_id")
	if !r.counting {
		metadata.Set("user_id", claude.NewString(s.userID(c)))
	}
	if len(metadata.Members) > 0 {
		root.Set("metadata", metadata)
	} else {
		root.Delete("metadata")
	}
	r.Root = root
	return nil
}

// userID tells users apart for the upstream without saying who they are.
func (s *Service) userID(c tenant.Caller) string {
	m := hmac.New(sha256.New, s.UserKey)
	m.Write([]byte(c.AppID + "\x00" + c.Issuer + "\x00" + c.Subject))
	return "user_" + hex.EncodeToString(m.Sum(nil))
}
