package claude

import (
	"errors"
	"fmt"
	"strings"
)

// ErrStream is the error of events that do not form one message (no
// message_start, a second one, a gap in the block indexes, a delta for a block
// that is not open).
var ErrStream = errors.New("malformed message stream")

// Accumulator adds the events of one stream up to the message they describe.
// The zero value is ready. It is not safe for concurrent use.
type Accumulator struct {
	message *Node
	open    int // index of the open block plus one, 0 = none
	joined  map[string]*strings.Builder
	broken  map[int]bool
	done    bool
}

// Add takes the data of the next event. Unknown events and deltas are ignored,
// as clients do.
func (a *Accumulator) Add(event *Node) error {
	switch event.Type() {
	case "message_start":
		return a.start(event.Get("message"))
	case "content_block_start":
		return a.blockStart(event)
	case "content_block_delta":
		return a.delta(event)
	case "content_block_stop":
		return a.blockStop(event)
	case "message_delta":
		return a.messageDelta(event)
	case "message_stop":
		a.done = true
	}
	return nil
}

// Message returns the message so far, nil before message_start. It shares its
// nodes with the accumulator.
func (a *Accumulator) Message() *Node { return a.message }

// Blocks are the content blocks so far.
func (a *Accumulator) Blocks() []*Node { return a.message.Get("content").Elems() }

// Broken reports whether the input of a call came in pieces that are no JSON together; the block has {} in its place.
func (a *Accumulator) Broken(index int) bool { return a.broken[index] }

// Done reports whether message_stop was seen.
func (a *Accumulator) Done() bool { return a.done }

func (a *Accumulator) start(m *Node) error {
	if a.message != nil || !m.Is(Object) {
		return fmt.Errorf("%w: unexpected message_start", ErrStream)
	}
	a.message = m.Clone()
	if !a.message.Get("content").Is(Array) {
		a.message.Set("content", NewArray())
	}
	return nil
}

func (a *Accumulator) blockStart(event *Node) error {
	index, _ := event.Get("index").Int()
	content := a.message.Get("content")
	if content == nil || a.open != 0 || index != int64(len(content.Items)) || !event.Get("content_block").Is(Object) {
		return fmt.Errorf("%w: unexpected content_block_start", ErrStream)
	}
	content.Items = append(content.Items, event.Get("content_block").Clone())
	a.open = int(index) + 1
	a.joined = map[string]*strings.Builder{}
	return nil
}

// block returns the open block when the event is about it.
func (a *Accumulator) block(event *Node) (*Node, error) {
	index, ok := event.Get("index").Int()
	if !ok || a.open == 0 || index != int64(a.open-1) {
		return nil, fmt.Errorf("%w: %s for a block that is not open", ErrStream, event.Type())
	}
	return a.message.Get("content").Items[index], nil
}

func (a *Accumulator) delta(event *Node) error {
	b, err := a.block(event)
	if err != nil {
		return err
	}
	d := event.Get("delta")
	switch d.Type() {
	case "text_delta":
		a.join("text", d.Get("text").Str())
	case "thinking_delta":
		a.join("thinking", d.Get("thinking").Str())
	case "input_json_delta":
		a.join("input", d.Get("partial_json").Str())
	case "signature_delta":
		b.Set("signature", d.Get("signature"))
	case "citations_delta":
		if !b.Get("citations").Is(Array) {
			b.Set("citations", NewArray())
		}
		c := b.Get("citations")
		c.Items = append(c.Items, d.Get("citation").Clone())
	}
	return nil
}

func (a *Accumulator) join(member, s string) {
	w := a.joined[member]
	if w == nil {
		w = &strings.Builder{}
		a.joined[member] = w
	}
	w.WriteString(s)
}

func (a *Accumulator) blockStop(event *Node) error {
	b, err := a.block(event)
	if err != nil {
		return err
	}
	a.settle(b)
	return nil
}

// settle writes the joined deltas into the block and closes it.
func (a *Accumulator) settle(b *Node) {
	for member, w := range a.joined {
		if member != "input" {
			b.Set(member, NewString(b.Get(member).Str()+w.String()))
			continue
		}
		if w.Len() == 0 {
			continue
		}
		// A call that max_tokens cut in the middle has no readable input.
		input, err := Parse([]byte(w.String()))
		if err != nil {
			if a.broken == nil {
				a.broken = map[int]bool{}
			}
			a.broken[a.open-1] = true
			input = NewObject()
		}
		b.Set("input", input)
	}
	a.open, a.joined = 0, nil
}

func (a *Accumulator) messageDelta(event *Node) error {
	if a.message == nil {
		return fmt.Errorf("%w: unexpected message_delta", ErrStream)
	}
	if a.open != 0 {
		a.settle(a.message.Get("content").Items[a.open-1])
	}
	if d := event.Get("delta"); d.Is(Object) {
		for _, m := range d.Members {
			a.message.Set(m.Name, m.Value.Clone())
		}
	}
	if u := event.Get("usage"); u.Is(Object) {
		usage := a.message.Get("usage")
		if !usage.Is(Object) {
			usage = NewObject()
			a.message.Set("usage", usage)
		}
		for _, m := range u.Members {
			if !m.Value.IsNull() {
				usage.Set(m.Name, m.Value.Clone())
			}
		}
	}
	for _, m := range event.Members {
		if m.Name != "type" && m.Name != "delta" && m.Name != "usage" {
			a.message.Set(m.Name, m.Value.Clone())
		}
	}
	return nil
}
