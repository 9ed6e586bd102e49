package script

import (
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// injected marks text that Airlock put into a user message; it is no script.
const injected = "[airlock]"

// find returns the script, which is the text of the newest user message that
// has any, and for each result after it whether it is a failure.
func find(messages []*claude.Node) (text string, results []bool) {
	at := len(messages)
	for i := len(messages) - 1; i >= 0 && text == ""; i-- {
		if messages[i].Get("role").Str() == "user" {
			text, at = scriptText(messages[i]), i
		}
	}
	if text == "" {
		return "", nil
	}
	ordinal := map[string]int{}
	var late []*claude.Node
	for _, m := range messages[at+1:] {
		for _, b := range claude.Blocks(m) {
			switch b.Type() {
			case "tool_use":
				ordinal[b.Get("id").Str()] = len(ordinal)
			case "tool_result":
				late = append(late, b)
			}
		}
	}
	results = make([]bool, len(late))
	for i, b := range late {
		k, ok := ordinal[b.Get("tool_use_id").Str()]
		if !ok || k >= len(late) {
			k = i
		}
		results[k] = results[k] || failed(b)
	}
	return text, results
}

func scriptText(m *claude.Node) string {
	var texts []string
	for _, b := range claude.Blocks(m) {
		if t := b.Get("text").Str(); b.Type() == "text" && strings.TrimSpace(t) != "" && !strings.HasPrefix(t, injected) {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "\n\n")
}

// failed reports whether a tool_result says that the call went wrong: by its
// flag, or by the code that Airlock's own results carry.
func failed(b *claude.Node) bool {
	if b.Get("is_error").IsTrue() {
		return true
	}
	for _, c := range claude.Blocks(b) {
		n, err := claude.Parse([]byte(c.Get("text").Str()))
		if err != nil {
			continue
		}
		if code, ok := n.Get("return_code").Int(); ok && code != 0 {
			return true
		}
		if n.Get("error_code").Str() != "" {
			return true
		}
	}
	return false
}

// toolbox is what the request offers.
type toolbox map[string]bool

func offered(tools []*claude.Node) toolbox {
	t := toolbox{}
	for _, n := range tools {
		t[n.Get("name").Str()] = true
	}
	return t
}
