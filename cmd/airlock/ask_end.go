package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// breakOff is an answer that ended before it was whole.
type breakOff struct {
	begun  int    // index of the message it answers
	had    string // the container before
	part   *answer
	result *askResult
}

// lastWordsLimit bounds what an interrupted command still does.
const lastWordsLimit = 5 * time.Second

// keep saves what a next request can go on from and says where that is. A request that was refused as a whole changes
// nothing: the conversation before it stays the last one.
func (o *askOptions) keep(cmd *cobra.Command, c *client, t *transcript, view *askView, b breakOff) error {
	interrupted := cmd.Context().Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), lastWordsLimit)
	defer cancel()
	if id := b.part.container(); id != "" {
		t.Container = id
	}
	if t.Container == "" {
		t.Container = c.madeContainer(ctx, uploads(t.Messages[b.begun]), b.part)
	}
	if err := t.cut(b.begun, b.part); err != nil {
		return err
	}
	b.result.complete(t, view)
	changed := len(t.Messages) > b.begun || t.Container != b.had
	if changed {
		o.save(t, view.notes)
	}
	if !interrupted && (!changed || o.asJSON) {
		return nil
	}
	b.result.StopReason = "error"
	if interrupted {
		b.result.StopReason = "interrupted"
	}
	if left := b.part.outputFiles(); len(left) > 0 {
		view.line("still on the server, see 'airlock file download': %s", strings.Join(left, ", "))
	}
	return o.report(cmd, view.notes, b.result)
}

// uploads lists the files that a message puts into the container.
func uploads(m message) []string {
	content, err := claude.Parse(m.Content)
	if err != nil {
		return nil // then it has none
	}
	var ids []string
	for _, b := range content.Elems() {
		if id := b.Get("file_id").Str(); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// errFound ends a walk through a list.
var errFound = errors.New("found")

// madeContainer finds the container of a turn whose end, which would have named it, never came: the one that got the files
// of this turn, or, if code was called, the one that was made since this command began. If there are several, none is it.
func (c *client) madeContainer(ctx context.Context, files []string, part *answer) string {
	called := slices.ContainsFunc(part.wholeBlocks(), func(b *claude.Node) bool { return b.Type() == "server_tool_use" })
	if c.began.IsZero() || len(files) == 0 && !called {
		return ""
	}
	var found []string
	err := c.list(ctx, "/airlock/v1/containers", func(raw json.RawMessage) error {
		var box struct {
			ID        string    `json:"id"`
			CreatedAt time.Time `json:"created_at"`
			Inputs    []struct {
				FileID string `json:"file_id"`
			} `json:"inputs"`
		}
		if err := json.Unmarshal(raw, &box); err != nil {
			return err
		}
		if box.CreatedAt.Before(c.began) {
			return errFound // the newest come first
		}
		has := len(files) == 0 && len(box.Inputs) == 0
		for _, in := range box.Inputs {
			has = has || slices.Contains(files, in.FileID)
		}
		if has {
			found = append(found, box.ID)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) || len(found) != 1 {
		return ""
	}
	return found[0]
}

// whyUnavailable asks for a sandbox directly, which is told the reason; a result block only says that there was none.
func (c *client) whyUnavailable(ctx context.Context, container string) error {
	if container == "" {
		var made struct {
			ID string `json:"id"`
		}
		if err := c.call(ctx, http.MethodPost, "/airlock/v1/containers", map[string]any{}, &made); err != nil {
			return err
		}
		container = made.ID
		// A container that stays expires by itself.
		defer func() { _ = c.call(ctx, http.MethodDelete, containerPath(container), nil, nil) }()
	}
	if _, err := c.exec(ctx, container, execRequest{Argv: []string{"true"}}, io.Discard, io.Discard); err != nil {
		return err
	}
	return errors.New("the server had no sandbox; it has one now, and its log says why")
}
