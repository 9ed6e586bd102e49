package airlock

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// Outputs is what a conversation left behind.
type Outputs struct {
	// ContainerID is the last container of the steps, "" if no code ran; ExpiresAt is its end.
	ContainerID string
	ExpiresAt   time.Time
	// FileIDs are the files that the sandbox made, each once, in the order in which they appeared.
	FileIDs []string
}

// CollectOutputs goes through the steps in order, whether they were streamed or not. A nil step is left out.
func CollectOutputs(steps ...*anthropic.Message) Outputs {
	var out Outputs
	seen := map[string]bool{}
	for _, step := range steps {
		if step == nil {
			continue
		}
		if step.Container.ID != "" {
			out.ContainerID, out.ExpiresAt = step.Container.ID, step.Container.ExpiresAt
		}
		for _, block := range step.Content {
			// Results of tools that the server ran. A file id elsewhere, as in the text, is something the model said.
			if !strings.HasSuffix(block.Type, "_tool_result") {
				continue
			}
			eachFileID(json.NewDecoder(strings.NewReader(block.RawJSON())), "", func(id string) {
				if !seen[id] {
					seen[id] = true
					out.FileIDs = append(out.FileIDs, id)
				}
			})
		}
	}
	return out
}

// eachFileID reads one JSON value, the one of key, and reports the non-empty strings that are members named file_id, in
// the order of the text. Broken JSON ends it.
func eachFileID(d *json.Decoder, key string, found func(string)) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	switch t := token.(type) {
	case string:
		if key == "file_id" && t != "" {
			found(t)
		}
	case json.Delim:
		for d.More() {
			member := ""
			if t == '{' {
				name, err := d.Token()
				if err != nil {
					return false
				}
				member, _ = name.(string)
			}
			if !eachFileID(d, member, found) {
				return false
			}
		}
		_, err := d.Token() // the closing one
		return err == nil
	}
	return true
}
