package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errCellOver is the cause of the context of a Call whose cell has ended.
var errCellOver = errors.New("the cell has ended")

// desk is the host's side of the calls that a cell makes. The goroutine of the cell puts the frames of the guest in; each
// complete group is answered by a goroutine of its own, because answers wait for a window that only the cell's goroutine
// keeps moving. There is never more than one: until the last piece of its answers is on its way, a further call is a breach.
//
//	collecting --EOF of the guest--> Call --> answers --EOF of the host--> collecting
type desk struct {
	c     *Conn
	k     *call
	names []string
	call  CallFunc
	stop  context.CancelCauseFunc

	group []ToolCall
	part  bool // the last call of the group is not complete
	size  int  // bytes of the inputs of the group
	last  uint64

	busy    atomic.Bool // a group is being answered
	away    atomic.Bool // Call has not returned
	running sync.WaitGroup
	waited  time.Duration // in Call; read it after close
}

// close ends the context of a Call under way, and waits for it.
func (d *desk) close() {
	d.stop(errCellOver)
	d.running.Wait()
}

// waits tells whether the host does not expect anything of the guest, because the next move is the host's.
func (d *desk) waits() bool { return d != nil && d.away.Load() }

// take handles a frame of the guest, which is not trusted. The text says what is wrong with it.
func (d *desk) take(ctx context.Context, f *Frame) (breach string) {
	switch {
	case d == nil:
		return "a call of a tool"
	case d.busy.Load():
		return "a call of a tool while others are answered"
	}
	if breach := d.add(f); breach != "" || !f.EOF {
		return breach
	}
	if d.part {
		return "an incomplete group of calls"
	}
	group := d.group
	d.group, d.size = nil, 0
	d.busy.Store(true)
	d.away.Store(true)
	d.running.Go(func() { d.answer(ctx, group) })
	return ""
}

// add takes a piece of a call.
func (d *desk) add(f *Frame) (breach string) {
	p := f.Tool
	if p == nil {
		return "a call without content"
	}
	if !d.part {
		switch {
		case p.Call != d.last+1 || p.Call > MaxToolCalls:
			return fmt.Sprintf("call %d of a tool after call %d", p.Call, d.last)
		case p.Tool < 0 || p.Tool >= len(d.names):
			return "a call of an unknown tool"
		case len(d.group) >= MaxToolPending:
			return "too many calls at once"
		}
		d.last = p.Call
		d.group = append(d.group, ToolCall{ID: p.Call, Name: d.names[p.Tool]})
	}
	k := &d.group[len(d.group)-1]
	d.size += len(f.Payload)
	switch {
	case p.Call != k.ID:
		return "calls of tools that are mixed up"
	case len(k.Input)+len(f.Payload) > MaxToolInput || d.size > MaxToolInputs:
		return "too large an input of a tool"
	case p.More && len(f.Payload) == 0:
		return "an empty piece of a call"
	}
	k.Input = append(k.Input, f.Payload...)
	d.part = p.More
	if !p.More && !ValidToolInput(k.Input) {
		return "an input of a tool that is no JSON object"
	}
	return ""
}

// answer has a group answered and sends what comes of it.
func (d *desk) answer(ctx context.Context, group []ToolCall) {
	began := time.Now()
	answers := d.call(ctx, group)
	d.waited += time.Since(began)
	d.away.Store(false)
	known := map[uint64]string{}
	for _, k := range group {
		known[k.ID] = k.Name
	}
	// One that is not answered raises when the group ends; one that is answered twice has the first answer.
	last := &Frame{Type: TypeAnswer, ID: d.k.id}
	for _, a := range answers {
		name, wanted := known[a.ID]
		if !wanted {
			continue
		}
		delete(known, a.ID)
		if last.Tool != nil && !d.send(ctx, last) {
			return
		}
		if last = d.pieces(ctx, name, a); last == nil {
			return
		}
	}
	last.EOF = true
	d.busy.Store(false) // before the guest can know of it
	d.send(ctx, last)
}

// pieces sends an answer but for its last piece, which it returns; nil if nobody wants the rest any more.
func (d *desk) pieces(ctx context.Context, name string, a ToolAnswer) *Frame {
	text, raise := strings.ToValidUTF8(a.Text, "\uFFFD"), a.Raise
	if len(text) > MaxToolAnswer {
		text, raise = fmt.Sprintf("the answer of %s has %d bytes; the limit is %d", name, len(text), MaxToolAnswer), RaiseTool
	}
	for {
		n := min(len(text), MaxData)
		f := &Frame{
			Type: TypeAnswer, ID: d.k.id, Payload: []byte(text[:n]),
			Tool: &ToolPart{Call: a.ID, Raise: raise, More: n < len(text)},
		}
		if text = text[n:]; text == "" {
			return f
		}
		if !d.send(ctx, f) {
			return nil
		}
	}
}

// send is false if the call is over or the connection broken, which the goroutine of the cell sees by itself.
func (d *desk) send(ctx context.Context, f *Frame) bool {
	over, err := d.c.sendWithin(ctx, d.k, f)
	return !over && err == nil
}
