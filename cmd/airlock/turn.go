package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

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

// answer is what one response of the stream came to.
type answer struct {
	claude.Accumulator
	whole int // blocks that have ended
}

// wholeBlocks are the content blocks without one that is under way.
func (a *answer) wholeBlocks() []*claude.Node { return a.Blocks()[:a.whole] }

func (a *answer) stopReason() string { return a.Message().Get("stop_reason").Str() }

func (a *answer) container() string { return a.Message().At("container", "id").Str() }

// outputFiles lists the ids of the files that code left in $OUTPUT_DIR, in order.
func (a *answer) outputFiles() []string {
	var ids []string
	for _, b := range a.wholeBlocks() {
		for _, o := range b.At("content", "content").Elems() {
			if id := o.Get("file_id").Str(); id != "" {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// watcher sees an answer while it grows.
type watcher interface {
	text(s string)
	started(b *claude.Node)  // a content block begins; its input may still be empty
	finished(b *claude.Node) // it is whole
}

// add takes one event and tells w what it brought.
func (a *answer) add(data []byte, w watcher) error {
	event, err := claude.Parse(data)
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if err := a.Add(event); err != nil {
		return err
	}
	switch event.Type() {
	case "content_block_start":
		w.started(event.Get("content_block"))
	case "content_block_delta":
		if d := event.Get("delta"); d.Type() == "text_delta" {
			w.text(d.Get("text").Str())
		}
	case "content_block_stop":
		a.whole = len(a.Blocks())
		w.finished(a.Blocks()[a.whole-1])
	}
	return nil
}

// stream sends one request and accumulates its answer. With an error comes what there was of it until then.
func (c *client) stream(ctx context.Context, r messagesRequest, w watcher) (a *answer, err error) {
	a = &answer{}
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
	for !a.Done() {
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
		if err := a.add(frame.Data, w); err != nil {
			return a, err
		}
	}
	return a, nil
}
