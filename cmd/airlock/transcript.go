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

	"github.com/google/renameio/v2"
)

// transcript is the last conversation with one server as one app, kept for `ask -c`.
type transcript struct {
	Model     string    `json:"model"`
	Container string    `json:"container,omitempty"`
	Messages  []message `json:"messages"`

	path string
}

// transcriptFor names the transcript of a server (its instance; an address or data folder where that is not known) and an app.
func transcriptFor(where, app string) (*transcript, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		state = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(where + "\x00" + app))
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
