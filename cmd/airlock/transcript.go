package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// transcript is the last conversation with one server as one app or user, kept for `ask -c`.
type transcript struct {
	Model     string    `json:"model"`
	Container string    `json:"container,omitempty"`
	Messages  []message `json:"messages"`

	path string
}

// transcriptFor names the transcript of a server (its instance; an address or data folder where that is not known), an app and
// a user of it ("" = the app itself).
func transcriptFor(where, app, user string) (*transcript, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		state = filepath.Join(home, ".local", "state")
	}
	name := where + "\x00" + app
	if user != "" {
		name += "\x00" + user
	}
	sum := sha256.Sum256([]byte(name))
	return &transcript{path: filepath.Join(state, "airlock", "ask-"+hex.EncodeToString(sum[:8])+".json")}, nil
}

// load reads what was saved.
func (t *transcript) load() error {
	b, err := os.ReadFile(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no conversation to continue yet")
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, t); err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	return nil
}

// save writes the conversation for the user alone: it holds what was asked and answered.
func (t *transcript) save() error {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return renameio.WriteFile(t.path, b, 0o600)
}

// cut ends the conversation where a next request can go on from. Of the answer to the message at index asked it keeps what
// is whole, in part what the last, broken-off response brought; if that is nothing, it takes the message itself out too.
func (t *transcript) cut(asked int, part *answer) error {
	var blocks []*claude.Node
	for _, m := range t.Messages[asked+1:] {
		content, err := claude.Parse(m.Content)
		if err != nil {
			return fmt.Errorf("conversation: %w", err)
		}
		blocks = append(blocks, content.Elems()...)
	}
	if blocks = acceptable(append(blocks, part.wholeBlocks()...)); len(blocks) == 0 {
		t.Messages = t.Messages[:asked]
		return nil
	}
	t.Messages = append(t.Messages[:asked+1], message{Role: "assistant", Content: claude.NewArray(blocks...).Bytes()})
	return nil
}

// acceptable leaves out what the Messages API refuses in an assistant's message that a user's follows: calls without a
// result, empty texts, and thinking at the end.
func acceptable(blocks []*claude.Node) []*claude.Node {
	answered := map[string]bool{}
	for _, b := range blocks {
		answered[b.Get("tool_use_id").Str()] = true
	}
	var kept []*claude.Node
	for _, b := range blocks {
		open := strings.HasSuffix(b.Type(), "tool_use") && !answered[b.Get("id").Str()]
		if !open && (b.Type() != "text" || strings.TrimSpace(b.Get("text").Str()) != "") {
			kept = append(kept, b)
		}
	}
	for len(kept) > 0 && strings.HasSuffix(kept[len(kept)-1].Type(), "thinking") {
		kept = kept[:len(kept)-1]
	}
	return kept
}
