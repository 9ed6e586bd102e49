package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// messagesRequest is what ask sends. Content stays raw, so that a conversation goes back as it came.
type messagesRequest struct {
	Model     string    `json:"model"`
	MaxTokens int       `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	Container string    `json:"container,omitempty"`
	Tools     []any     `json:"tools"`
	Messages  []message `json:"messages"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// block is a content block as a map: members nobody here knows stay in it.
type block map[string]any

func (b block) str(name string) string {
	s, _ := b[name].(string)
	return s
}

// answer is what one response of the stream came to.
type answer struct {
	Content    []block
	StopReason string
	Container  string
}

// watcher sees an answer while it grows.
type watcher interface {
	text(s string)
	started(b block)  // a content block begins; its input may still be empty
	finished(b block) // it is whole
}

// stream sends one request and accumulates its answer.
func (c *client) stream(ctx context.Context, r messagesRequest, w watcher) (a answer, err error) {
	r.Stream = true
	b, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/messages", "application/json", bytes.NewReader(b))
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	frames := claude.NewFrameReader(resp.Body)
	acc := accumulator{answer: &a, watch: w}
	for {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return a, errors.New("the connection ended before the answer did")
		}
		if err != nil {
			return a, err
		}
		if frame.Event == "error" {
			return a, parseError(resp.StatusCode, frame.Data)
		}
		end, err := acc.add(frame.Data)
		if err != nil || end {
			return a, err
		}
	}
}

// accumulator joins the deltas of a stream to content blocks.
type accumulator struct {
	answer *answer
	watch  watcher
	input  strings.Builder // the input of the block that is open now
}

// event is the part of a stream event that matters here.
type event struct {
	Type    string         `json:"type"`
	Index   int            `json:"index"`
	Block   block          `json:"content_block"`
	Delta   map[string]any `json:"delta"`
	Message struct {
		Container *containerRef `json:"container"`
	} `json:"message"`
}

type containerRef struct {
	ID string `json:"id"`
}

// add takes one event and reports whether it was the last.
func (a *accumulator) add(data []byte) (end bool, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var e event
	if err := dec.Decode(&e); err != nil {
		return false, fmt.Errorf("stream: %w", err)
	}
	switch e.Type {
	case "message_start":
		if e.Message.Container != nil {
			a.answer.Container = e.Message.Container.ID
		}
	case "content_block_start":
		if e.Index != len(a.answer.Content) || e.Block == nil {
			return false, fmt.Errorf("stream: block %d came when block %d was due", e.Index, len(a.answer.Content))
		}
		a.input.Reset()
		a.answer.Content = append(a.answer.Content, e.Block)
		a.watch.started(e.Block)
	case "content_block_delta":
		return false, a.delta(e)
	case "content_block_stop":
		return false, a.stop(e)
	case "message_delta":
		a.messageDelta(e.Delta)
	case "message_stop":
		return true, nil
	}
	return false, nil
}

func (a *accumulator) open(e event) (block, error) {
	if e.Index != len(a.answer.Content)-1 || e.Index < 0 {
		return nil, fmt.Errorf("stream: an event for block %d, which is not open", e.Index)
	}
	return a.answer.Content[e.Index], nil
}

func (a *accumulator) delta(e event) error {
	b, err := a.open(e)
	if err != nil {
		return err
	}
	d := block(e.Delta)
	switch d.str("type") {
	case "text_delta":
		b["text"] = b.str("text") + d.str("text")
		a.watch.text(d.str("text"))
	case "input_json_delta":
		a.input.WriteString(d.str("partial_json"))
	case "thinking_delta":
		b["thinking"] = b.str("thinking") + d.str("thinking")
	case "signature_delta":
		b["signature"] = b.str("signature") + d.str("signature")
	case "citations_delta":
		list, _ := b["citations"].([]any)
		b["citations"] = append(list, e.Delta["citation"])
	}
	return nil
}

func (a *accumulator) stop(e event) error {
	b, err := a.open(e)
	if err != nil {
		return err
	}
	if a.input.Len() > 0 {
		b["input"] = json.RawMessage(a.input.String())
		if !json.Valid([]byte(a.input.String())) {
			return fmt.Errorf("stream: the input of block %d is no JSON", e.Index)
		}
	}
	a.watch.finished(b)
	return nil
}

func (a *accumulator) messageDelta(d map[string]any) {
	if s, ok := d["stop_reason"].(string); ok {
		a.answer.StopReason = s
	}
	if c, ok := d["container"].(map[string]any); ok {
		a.answer.Container = block(c).str("id")
	}
}

// outputFiles lists the ids of the files that code left in $OUTPUT_DIR, in order.
func (a *answer) outputFiles() []string {
	var ids []string
	for _, b := range a.Content {
		result, ok := b["content"].(map[string]any)
		if !ok {
			continue
		}
		list, _ := result["content"].([]any)
		for _, e := range list {
			if m, ok := e.(map[string]any); ok && block(m).str("file_id") != "" {
				ids = append(ids, block(m).str("file_id"))
			}
		}
	}
	return ids
}
