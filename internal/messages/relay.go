package messages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// relay passes the events of one upstream answer on as a part of the client's
// message: block indexes go on from the parts before, inner starts and ends are
// hidden, and calls of our sub-tools are shown as server_tool_use.
type relay struct {
	t      *turn
	start  *claude.Node // usage of message_start
	begun  bool
	blocks map[int64]*openBlock
	open   *openBlock
	reply  reply
}

// reply is how an upstream answer ended.
type reply struct {
	stop    string
	delta   *claude.Node // the whole message_delta event, nil when there was none
	calls   []codeexec.Call
	clients int // calls for the client
}

// openBlock is a block that was started and not stopped.
type openBlock struct {
	index  int
	server string // name of our sub-tool, "" = the block goes on as it is
	client bool
	gated  bool // input deltas pass the gate
	gate   gate
	whole  *claude.Node // input that came with the start
}

// maxBlocks bounds the blocks of one message: an empty one costs little to send
// and much to keep.
const maxBlocks = 10_000

// pump relays until the answer ends.
func (r *relay) pump(ctx context.Context, s *upstream.Stream, first, idle time.Duration) (reply, error) {
	r.blocks = map[int64]*openBlock{}
	wait := first
	for {
		e, err := s.Next(ctx, wait)
		wait = idle
		if errors.Is(err, io.EOF) || (errors.Is(err, upstream.ErrEnded) && r.reply.stop != "") {
			break
		}
		if err != nil {
			return r.reply, err
		}
		if err := r.event(e); err != nil {
			return r.reply, err
		}
	}
	if !r.begun {
		return r.reply, badAnswer("it has no message_start")
	}
	return r.reply, r.closeOpen()
}

// badGateway is the status of an upstream that does not keep the protocol.
const badGateway = 502

func badAnswer(why string) error {
	return &wire.Error{
		Type: wire.TypeAPI, Status: badGateway, Message: "The upstream's answer could not be read.",
		Err: fmt.Errorf("malformed answer of the upstream: %s", why),
	}
}

func (r *relay) event(e *claude.Node) error {
	if t := e.Type(); t != "message_start" && t != "ping" && !r.begun {
		return badAnswer("it does not begin with message_start")
	}
	switch e.Type() {
	case "message_start":
		return r.messageStart(e.Get("message"))
	case "content_block_start":
		return r.blockStart(e)
	case "content_block_delta":
		return r.blockDelta(e)
	case "content_block_stop":
		b, err := r.find(e)
		if err != nil {
			return err
		}
		return r.close(b)
	case "message_delta":
		r.messageDelta(e)
		return nil
	case "message_stop":
		return nil
	}
	if strings.ContainsFunc(e.Type(), unicode.IsControl) {
		return badAnswer("an event has a control character in its type")
	}
	return r.t.out.pass(e)
}

func (r *relay) messageStart(m *claude.Node) error {
	if r.begun || !m.Is(claude.Object) {
		return badAnswer("it has a second message_start")
	}
	r.begun = true
	r.start = m.Get("usage")
	r.t.usageStart = r.start
	return r.t.begin(m)
}

// messageDelta keeps the end of the answer; there may be several, and each says
// only what it changes.
func (r *relay) messageDelta(e *claude.Node) {
	if s := e.At("delta", "stop_reason").Str(); s != "" {
		r.reply.stop = s
	}
	r.t.usageDelta = overlay(r.t.usageDelta, e.Get("usage"))
	if last := r.reply.delta; last != nil {
		e = overlay(last, e)
		e.Set("delta", overlay(last.Get("delta"), e.Get("delta")))
	}
	r.reply.delta = e
}

// find returns the block an event is about.
func (r *relay) find(e *claude.Node) (*openBlock, error) {
	i, ok := e.Get("index").Int()
	b := r.blocks[i]
	if !ok || b == nil {
		return nil, badAnswer(e.Type() + " for a block that is not open")
	}
	return b, nil
}

func (r *relay) blockStart(e *claude.Node) error {
	i, ok := e.Get("index").Int()
	b := e.Get("content_block")
	if !ok || !b.Is(claude.Object) || r.blocks[i] != nil {
		return badAnswer("unexpected content_block_start")
	}
	// Some upstreams do not say that a block ends before they begin the next.
	if err := r.closeOpen(); err != nil {
		return err
	}
	o := &openBlock{index: len(r.t.out.sum.Blocks())}
	if o.index >= maxBlocks {
		return badAnswer("it has too many content blocks")
	}
	shown := r.shown(o, b)
	r.blocks[i], r.open = o, o
	e = e.Shallow()
	e.Set("index", claude.NewInt(int64(o.index)))
	e.Set("content_block", shown)
	if err := r.t.out.send(e); err != nil {
		return err
	}
	if o.server == "" {
		return nil
	}
	// The hosted service begins with an empty delta too.
	return r.input(o, "")
}

// shown is the block as the client sees it start.
func (r *relay) shown(o *openBlock, b *claude.Node) *claude.Node {
	code := r.t.req.version != ""
	switch {
	case b.Type() == "text" && code && b.Get("citations") == nil:
		b = b.Shallow()
		b.Set("citations", claude.NewNull())
	case b.Type() == "tool_use":
		o.client = true
		o.gated = code
		in := b.Get("input")
		b = b.Shallow()
		b.Set("input", claude.NewObject())
		if in.Is(claude.Object) && len(in.Members) > 0 {
			o.whole = in
		}
		if !code {
			return b
		}
		if name := b.Get("name").Str(); r.t.req.offer().Offers(name) {
			o.client, o.server = false, name
			return claude.NewObject("type", "server_tool_use", "id", serverID(b.Get("id").Str(), r.t.taken), "name", name,
				"input", claude.NewObject(), "caller", direct())
		}
		if b.Get("caller") == nil {
			b.Set("caller", direct())
		}
	}
	return b
}

func direct() *claude.Node { return claude.NewObject("type", "direct") }

func (r *relay) blockDelta(e *claude.Node) error {
	b, err := r.find(e)
	if err != nil || b != r.open {
		return errors.Join(err, r.notOpen(b))
	}
	if b.gated && e.At("delta", "type").Str() == "input_json_delta" {
		piece := b.gate.write(e.At("delta", "partial_json").Str())
		if piece == "" {
			return nil
		}
		b.whole = nil
		return r.input(b, piece)
	}
	if e.At("delta", "type").Str() == "input_json_delta" && e.At("delta", "partial_json").Str() != "" {
		b.whole = nil
	}
	e = e.Shallow()
	e.Set("index", claude.NewInt(int64(b.index)))
	return r.t.out.send(e)
}

func (r *relay) notOpen(b *openBlock) error {
	if b == nil {
		return nil
	}
	return badAnswer("a delta for a block that was closed")
}

// input sends a piece of the input of a call.
func (r *relay) input(b *openBlock, piece string) error {
	return r.t.out.send(claude.NewObject("type", "content_block_delta", "index", b.index,
		"delta", claude.NewObject("type", "input_json_delta", "partial_json", piece)))
}

func (r *relay) closeOpen() error {
	if r.open == nil {
		return nil
	}
	return r.close(r.open)
}

// close ends a block and notes the call that it is.
func (r *relay) close(b *openBlock) error {
	if b != r.open {
		return nil // it was closed when the next one began
	}
	r.open = nil
	if b.whole != nil {
		// The start had the whole input. Clients take it from the start or from
		// deltas and never from both, so it goes out in the second form.
		if err := r.input(b, b.whole.Text()); err != nil {
			return err
		}
	}
	if err := r.t.out.send(claude.NewObject("type", "content_block_stop", "index", b.index)); err != nil {
		return err
	}
	if b.client {
		r.reply.clients++
	}
	if b.server != "" {
		done := r.t.out.sum.Blocks()[b.index]
		c := codeexec.Call{ID: done.Get("id").Str(), Name: b.server, Input: done.Get("input")}
		if b.gate.refused || r.t.out.sum.Broken(b.index) {
			c.Input = nil // the {} that is shown is not what the model sent
		}
		r.reply.calls = append(r.reply.calls, c)
	}
	return nil
}

// gate makes the first piece of an input begin with "{" and be more than "{}":
// the AI SDK (@ai-sdk/anthropic 4) cuts off one character of the first delta
// that is not empty and puts a member in its place. An empty object passes as
// nothing, which all clients read as {}.
type gate struct {
	held    string
	state   gateState
	refused bool // the input is no object
}

type gateState uint8

const (
	gateHolding gateState = iota
	gateOpen
	gateShut // the input is {} or no object; nothing passes
)

func (g *gate) write(s string) string {
	switch g.state {
	case gateOpen:
		return s
	case gateShut:
		return ""
	case gateHolding:
	}
	const space = " \t\r\n"
	g.held += s
	at := strings.TrimLeft(g.held, space)
	if at == "" {
		return ""
	}
	rest := strings.TrimLeft(at[1:], space)
	switch {
	case at[0] != '{':
		g.state, g.refused = gateShut, true
	case rest == "":
	case rest[0] == '}':
		g.state = gateShut
	default:
		g.state = gateOpen
		return "{" + rest
	}
	return ""
}
