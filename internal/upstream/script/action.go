package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// kind is what an action does.
type kind uint8

const (
	actCall     kind = iota // a tool call
	actParallel             // begins a group
	actEnd                  // ends it
	actSay                  // streams words
	actStop                 // sets the stop reason and ends the script
	actSleep                // waits
	actUsage                // changes the usage of the message
	actError                // fails the request
)

// call is a tool call before it is known which tools the request offers.
type call struct {
	want  string // bash, cell, python, view, create, replace, tool
	name  string // of the action tool
	input *claude.Node
	must  bool
}

// action is one fenced block that is no text.
type action struct {
	kind  kind
	call  call
	words int
	stop  string
	sleep time.Duration
	usage *claude.Node
	fault fault
}

// fault is a failure to answer with.
type fault struct {
	status  int
	times   int // how many requests fail; 0 = every one
	mid     bool
	message string
	ordinal int
}

// Limits of a script.
const (
	maxWords = 100_000
	maxSleep = 10 * time.Minute
)

// names are the first words of actions.
func names() []string {
	return []string{"bash", "cell", "python", "view", "create", "replace", "tool", "parallel", "end", "say", "stop", "sleep", "usage", "error"}
}

// parseAction reads a fenced block. It returns nil when the info string names
// no action, so that the block is text.
func parseAction(p part) (*action, error) {
	word, rest, _ := strings.Cut(p.info, " ")
	rest = strings.TrimSpace(rest)
	known := false
	for _, n := range names() {
		known = known || n == word
	}
	if !known {
		if n := misspelt(word); n != "" {
			return nil, fmt.Errorf("did you mean %q? The block %q names no action", n, word)
		}
		return nil, nil
	}
	a := &action{}
	var err error
	switch word {
	case "parallel", "end":
		a.kind = actParallel
		if word == "end" {
			a.kind = actEnd
		}
		err = nothing(word, rest)
	case "say":
		a.kind = actSay
		a.words, err = number(word, rest, 1, maxWords)
	case "stop":
		a.kind, a.stop = actStop, rest
		if !stopReason(rest) {
			err = fmt.Errorf("stop needs one of the stop reasons of the Messages API, not %q", rest)
		}
	case "sleep":
		a.kind = actSleep
		a.sleep, err = time.ParseDuration(rest)
		if err != nil || a.sleep < 0 || a.sleep > maxSleep {
			err = fmt.Errorf("sleep needs a duration such as 2s, at most %s", maxSleep)
		}
	case "usage":
		a.kind = actUsage
		a.usage, err = object("usage", strings.TrimSpace(rest+"\n"+p.body))
	case "error":
		a.kind = actError
		a.fault, err = parseFault(rest, strings.TrimSpace(p.body))
	default:
		a.kind = actCall
		a.call, err = parseCall(word, rest, p)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func parseCall(word, rest string, p part) (call, error) {
	c := call{want: word}
	if rest == "must" || strings.HasSuffix(rest, " must") {
		c.must = true
		rest = strings.TrimSpace(strings.TrimSuffix(rest, "must"))
	}
	switch word {
	case "bash":
		c.input = claude.NewObject("command", p.body)
		return c, nothing(word, rest)
	case "cell", "python":
		c.input = claude.NewObject("code", p.body)
		return c, nothing(word, rest)
	case "tool":
		c.name = rest
		if rest == "" || strings.ContainsAny(rest, " \t") {
			return c, fmt.Errorf("tool needs one tool name")
		}
		body := strings.TrimSpace(p.body)
		if body == "" {
			body = "{}"
		}
		var err error
		c.input, err = object("tool "+rest, body)
		return c, err
	}
	if rest == "" {
		return c, fmt.Errorf("%s needs a path", word)
	}
	switch word {
	case "view":
		c.input = claude.NewObject("command", "view", "path", rest)
	case "create":
		text := p.body
		if p.lines > 0 {
			text += "\n"
		}
		c.input = claude.NewObject("command", "create", "path", rest, "file_text", text)
	case "replace":
		before, after, ok := cutLine(p.body, "=======")
		if !ok {
			return c, fmt.Errorf("replace needs the old and the new text, with a line ======= between them")
		}
		c.input = claude.NewObject("command", "str_replace", "path", rest, "old_str", before, "new_str", after)
	}
	return c, nil
}

// cutLine cuts s around the first line that is exactly sep.
func cutLine(s, sep string) (before, after string, found bool) {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if l == sep {
			return strings.Join(lines[:i], "\n"), strings.Join(lines[i+1:], "\n"), true
		}
	}
	return "", "", false
}

func parseFault(rest, message string) (fault, error) {
	f := fault{message: message}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return f, fmt.Errorf("error needs a status")
	}
	var err error
	if f.status, err = number("error", fields[0], 400, 599); err != nil {
		return f, err
	}
	for _, w := range fields[1:] {
		n, ok := strings.CutPrefix(w, "times=")
		switch {
		case w == "mid":
			f.mid = true
		case ok:
			if f.times, err = number("error times", n, 1, 1000); err != nil {
				return f, err
			}
		default:
			return f, fmt.Errorf("error takes times=N and mid, not %q", w)
		}
	}
	return f, nil
}

func nothing(word, rest string) error {
	if rest != "" {
		return fmt.Errorf("%s takes nothing after it, not %q", word, rest)
	}
	return nil
}

func number(word, s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s needs a number from %d to %d", word, low, high)
	}
	return n, nil
}

func object(what, s string) (*claude.Node, error) {
	n, err := claude.Parse([]byte(s))
	if err != nil || !n.Is(claude.Object) {
		return nil, fmt.Errorf("%s needs a JSON object", what)
	}
	return n, nil
}

func stopReason(s string) bool {
	switch s {
	case "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded":
		return true
	}
	return false
}

// misspelt returns the action that word was probably meant to be: another
// letter case, or one letter more, fewer, other or swapped.
func misspelt(word string) string {
	low := strings.ToLower(word)
	for _, n := range names() {
		if low == n || (len(low) > 2 && oneOff(low, n)) {
			return n
		}
	}
	return ""
}

func oneOff(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	if i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:] {
		return true
	}
	return i < len(a) && a[i+1:] == b[i+1:]
}
