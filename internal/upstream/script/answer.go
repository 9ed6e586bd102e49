package script

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// resolve turns the call of a script into the tool and input that the request
// offers for it.
func (t toolbox) resolve(c call) (name string, input *claude.Node, err error) {
	switch c.want {
	case "tool":
		return c.name, c.input, nil
	case "bash":
		for _, n := range []string{"bash_code_execution", "bash"} {
			if t[n] {
				return n, c.input, nil
			}
		}
	case "cell":
		if t["code_execution"] {
			return "code_execution", c.input, nil
		}
	case "python":
		if t["code_execution"] {
			return "code_execution", c.input, nil
		}
		code := c.input.Get("code").Str()
		return t.resolve(call{want: "bash", input: claude.NewObject("command", heredoc(code))})
	default:
		for _, n := range []string{"text_editor_code_execution", "str_replace_based_edit_tool"} {
			if t[n] {
				return n, c.input, nil
			}
		}
	}
	return "", nil, fmt.Errorf("the script has the action %s, but the request offers no tool for it", c.want)
}

// heredoc runs code with python3, with an end word that the code does not have.
func heredoc(code string) string {
	end := "PYTHON"
	for strings.Contains(code, end) {
		end += "_"
	}
	return "python3 - <<'" + end + "'\n" + code + "\n" + end
}

// answer is one message, ready to be sent.
type answer struct {
	id, model string
	blocks    []block
	stop      string
	usage     *claude.Node
	mid       *fault
}

// block is text or a tool call, with what to wait for before it.
type block struct {
	sleep time.Duration
	text  string
	id    string
	name  string
	input *claude.Node
}

// tokens is one per four bytes, rounded up.
func tokens(bytes int) int64 { return int64((bytes + 3) / 4) }

// inputBytes are the bytes of a request that count: system, tools, messages.
func inputBytes(root *claude.Node) int {
	n := 0
	for _, name := range []string{"system", "tools", "messages"} {
		if v := root.Get(name); !v.IsNull() {
			n += len(v.Bytes())
		}
	}
	return n
}

// compose builds the answer of a turn.
func compose(req *claude.Request, t turn) (*answer, error) {
	box := offered(req.Tools())
	seed := sha256.Sum256(req.Root.Get("messages").Bytes())
	a := &answer{id: "msg_" + ident(seed, 0), model: req.Model(), stop: t.stop}
	out := 0
	var sleep time.Duration
	for _, s := range t.steps {
		b := block{sleep: sleep, text: s.text}
		switch {
		case s.call != nil:
			var err error
			if b.name, b.input, err = box.resolve(*s.call); err != nil {
				return nil, err
			}
			b.id = "toolu_" + ident(seed, len(a.blocks)+1)
			out += len(b.input.Bytes())
		case s.text != "":
			out += len(s.text)
		default:
			sleep += s.sleep
			continue
		}
		sleep = 0
		a.blocks = append(a.blocks, b)
	}
	if sleep > 0 {
		a.blocks = append(a.blocks, block{sleep: sleep})
	}
	if a.stop == "" {
		a.stop = "end_turn"
		if t.calls > 0 {
			a.stop = "tool_use"
		}
	}
	a.usage = usage(tokens(inputBytes(req.Root)), tokens(out))
	for _, u := range t.usage {
		for _, m := range u.Members {
			a.usage.Set(m.Name, m.Value)
		}
	}
	return a, nil
}

func usage(in, out int64) *claude.Node {
	return claude.NewObject(
		"input_tokens", in, "cache_creation_input_tokens", 0, "cache_read_input_tokens", 0,
		"cache_creation", claude.NewObject("ephemeral_5m_input_tokens", 0, "ephemeral_1h_input_tokens", 0),
		"output_tokens", out, "service_tier", "standard")
}

// ident makes the id of one thing in an answer. It is a function of the
// conversation, so a repeated request gets the same ids and a later one others.
func ident(seed [32]byte, n int) string {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	h := sha256.Sum256(append(seed[:], []byte(strconv.Itoa(n))...))
	out := []byte("01")
	for _, c := range h[:22] {
		out = append(out, alphabet[int(c)%len(alphabet)])
	}
	return string(out)
}

// emit sends the answer as the events of a stream.
func (a *answer) emit(ctx context.Context, event func(*claude.Node) error) error {
	start := a.usage.Shallow()
	start.Set("output_tokens", claude.NewInt(0))
	message := claude.NewObject("id", a.id, "type", "message", "role", "assistant", "model", a.model, "content", claude.NewArray(),
		"stop_reason", nil, "stop_sequence", nil, "usage", start)
	if err := event(claude.NewObject("type", "message_start", "message", message)); err != nil {
		return err
	}
	index := 0
	for _, b := range a.blocks {
		if err := wait(ctx, b.sleep); err != nil {
			return err
		}
		if b.text == "" && b.name == "" {
			continue
		}
		if err := b.emit(index, event); err != nil {
			return err
		}
		index++
	}
	if a.mid != nil {
		return event(a.mid.body())
	}
	delta := claude.NewObject("stop_reason", a.stop, "stop_sequence", nil)
	if err := event(claude.NewObject("type", "message_delta", "delta", delta, "usage", a.usage)); err != nil {
		return err
	}
	return event(claude.NewObject("type", "message_stop"))
}

func (b block) emit(index int, event func(*claude.Node) error) error {
	start := claude.NewObject("type", "text", "text", "")
	pieces := chunks(b.text, 24)
	kind, member := "text_delta", "text"
	if b.name != "" {
		start = claude.NewObject("type", "tool_use", "id", b.id, "name", b.name, "input", claude.NewObject())
		kind, member = "input_json_delta", "partial_json"
		pieces = []string{""}
		if len(b.input.Members) > 0 {
			pieces = append(pieces, chunks(b.input.Text(), 48)...)
		}
	}
	if err := event(claude.NewObject("type", "content_block_start", "index", index, "content_block", start)); err != nil {
		return err
	}
	for _, p := range pieces {
		if err := event(claude.NewObject("type", "content_block_delta", "index", index, "delta", claude.NewObject("type", kind, member, p))); err != nil {
			return err
		}
	}
	return event(claude.NewObject("type", "content_block_stop", "index", index))
}

// chunks cuts s into pieces of about n bytes, at word ends where there are any.
func chunks(s string, n int) []string {
	var out []string
	for len(s) > n {
		cut := strings.IndexByte(s[n:], ' ')
		if cut < 0 || cut > n {
			cut = 0
		}
		cut += n
		for cut < len(s) && s[cut]&0xC0 == 0x80 {
			cut++
		}
		out = append(out, s[:cut])
		s = s[cut:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
