package airlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// ErrMaxSteps is returned beside all steps when the model needed yet another one.
var ErrMaxSteps = errors.New("airlock: the model is not done after the last step that was allowed")

// Tool is a tool of the application.
type Tool struct {
	// Param is what the model is told; see [CallableFromSandbox].
	Param anthropic.ToolUnionParam
	// Name is the name in Param.
	Name string
	// Call answers a call. An error is told to the model, or raised in the code that called. Calls of one step run at the
	// same time. ctx ends with the time limit of the call, and Call must then return.
	Call func(ctx context.Context, input json.RawMessage) (string, error)
}

const (
	defaultMaxSteps    = 20
	defaultToolTimeout = 225 * time.Second // less than the 270 s for which code in the sandbox waits
)

// RunOptions has useful zero values.
type RunOptions struct {
	// MaxSteps limits the requests of one run; 20 if 0.
	MaxSteps int
	// ToolTimeout is the time limit of one call of a tool; 225 s if 0. Code in a sandbox waits 270 s.
	ToolTimeout time.Duration
	// OnEvent sees every event of every step, in order, on the goroutine of Run.
	OnEvent func(anthropic.MessageStreamEventUnion)
	// OnMessage is given each message that belongs behind those of the request if the conversation is to go on: the answers,
	// and between them the results of tools. In order, on the goroutine of Run. The last one is that of the last step.
	OnMessage func(anthropic.MessageParam)
}

// Run streams steps until the model needs nothing more from the application. From step to step it goes on in the same
// container; it answers all calls of a step in one message, and goes on after pause_turn. Params of tools that p does not
// have are added. p is not changed; see OnMessage for what the next turn has to repeat. The last step that is allowed calls no
// tool, since nobody would get the answers.
//
// It gives the steps that were finished, also beside an error: that of a request, of the context, or [ErrMaxSteps]. It
// returns when every call of a tool has returned.
func Run(ctx context.Context, c anthropic.Client, p anthropic.MessageNewParams, tools []Tool, o RunOptions) ([]*anthropic.Message, error) {
	r := newRunner(tools, o)
	defer r.running.Wait()
	p.Tools = r.offer(p.Tools)
	p.Messages = slices.Clone(p.Messages)
	add := func(m anthropic.MessageParam) {
		p.Messages = append(p.Messages, m)
		if o.OnMessage != nil {
			o.OnMessage(m)
		}
	}
	var steps []*anthropic.Message
	for range r.options.MaxSteps {
		m, err := r.step(ctx, c, p)
		if err != nil {
			return steps, err
		}
		steps = append(steps, m)
		calls := toolCalls(m)
		add(m.ToParam())
		if m.StopReason != anthropic.StopReasonPauseTurn && len(calls) == 0 {
			return steps, nil
		}
		ForwardContainer(&p, m)
		if len(calls) > 0 && len(steps) < r.options.MaxSteps {
			results := r.answers(ctx, calls)
			if err := ctx.Err(); err != nil {
				return steps, context.Cause(ctx)
			}
			add(anthropic.NewUserMessage(results...))
		}
	}
	return steps, ErrMaxSteps
}

// toolCalls are those that the message waits for. A message that was cut off may hold half a call: it waits for nothing.
func toolCalls(m *anthropic.Message) []anthropic.ToolUseBlock {
	if m.StopReason != anthropic.StopReasonToolUse {
		return nil
	}
	var calls []anthropic.ToolUseBlock
	for _, block := range m.Content {
		if call, ok := block.AsAny().(anthropic.ToolUseBlock); ok {
			calls = append(calls, call)
		}
	}
	return calls
}

type runner struct {
	tools   map[string]Tool
	added   []Tool
	options RunOptions
	// running are calls of tools, also those whose time was up.
	running sync.WaitGroup
}

func newRunner(tools []Tool, o RunOptions) *runner {
	if o.MaxSteps <= 0 {
		o.MaxSteps = defaultMaxSteps
	}
	if o.ToolTimeout <= 0 {
		o.ToolTimeout = defaultToolTimeout
	}
	r := &runner{tools: map[string]Tool{}, added: tools, options: o}
	for _, t := range tools {
		r.tools[t.Name] = t
	}
	return r
}

// offer adds the tools of the run to those of the request.
func (r *runner) offer(given []anthropic.ToolUnionParam) []anthropic.ToolUnionParam {
	offered := map[string]bool{}
	for _, t := range given {
		if name := t.GetName(); name != nil {
			offered[*name] = true
		}
	}
	all := slices.Clone(given)
	for _, t := range r.added {
		if !offered[t.Name] {
			all = append(all, t.Param)
		}
	}
	return all
}

func (r *runner) step(ctx context.Context, c anthropic.Client, p anthropic.MessageNewParams) (*anthropic.Message, error) {
	stream := c.Messages.NewStreaming(ctx, p)
	defer stream.Close()
	m, whole := &anthropic.Message{}, false
	for stream.Next() {
		event := stream.Current()
		if err := m.Accumulate(event); err != nil {
			return nil, fmt.Errorf("airlock: read the stream: %w", err)
		}
		whole = whole || event.Type == "message_stop"
		if r.options.OnEvent != nil {
			r.options.OnEvent(event)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if !whole {
		return nil, fmt.Errorf("airlock: read the stream: %w", io.ErrUnexpectedEOF)
	}
	return m, nil
}

// answers runs all calls at the same time and gives their results in the order of the calls.
func (r *runner) answers(ctx context.Context, calls []anthropic.ToolUseBlock) []anthropic.ContentBlockParamUnion {
	waits := make([]func() anthropic.ContentBlockParamUnion, len(calls))
	for i, call := range calls {
		waits[i] = r.start(ctx, call)
	}
	results := make([]anthropic.ContentBlockParamUnion, len(calls))
	for i, wait := range waits {
		results[i] = wait()
	}
	return results
}

type outcome struct {
	text     string
	err      error
	panicked any
}

// start begins a call. What it returns waits for the result, at most until the time limit: an answer that comes later is
// one that nobody waits for.
func (r *runner) start(ctx context.Context, call anthropic.ToolUseBlock) func() anthropic.ContentBlockParamUnion {
	tool, ok := r.tools[call.Name]
	if !ok {
		return func() anthropic.ContentBlockParamUnion {
			return anthropic.NewToolResultBlock(call.ID, fmt.Sprintf("There is no tool named %q.", call.Name), true)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.ToolTimeout)
	done := make(chan outcome, 1)
	r.running.Go(func() {
		defer cancel()
		var out outcome
		defer func() {
			out.panicked = recover()
			done <- out
		}()
		out.text, out.err = tool.Call(ctx, call.Input)
	})
	return func() anthropic.ContentBlockParamUnion {
		select {
		case out := <-done:
			return out.block(call.ID)
		case <-ctx.Done():
		}
		select {
		case out := <-done: // its end was the end of ctx
			return out.block(call.ID)
		default:
			return anthropic.NewToolResultBlock(call.ID, fmt.Sprintf("The tool did not answer within %v.", r.options.ToolTimeout), true)
		}
	}
}

// block panics where the tool did: on the goroutine of the caller, who may have a handler that recovers.
func (o outcome) block(id string) anthropic.ContentBlockParamUnion {
	switch {
	case o.panicked != nil:
		panic(o.panicked)
	case o.err != nil:
		return anthropic.NewToolResultBlock(id, o.err.Error(), true)
	case o.text == "": // a text block must not be empty
		return anthropic.ContentBlockParamUnion{OfToolResult: &anthropic.ToolResultBlockParam{ToolUseID: id}}
	default:
		return anthropic.NewToolResultBlock(id, o.text, false)
	}
}
