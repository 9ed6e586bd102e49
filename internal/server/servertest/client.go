package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
)

// Client sends requests with one key.
type Client struct {
	HTTP     *http.Client
	URL, Key string
}

// AnswerError is a failure that a living server told.
type AnswerError struct {
	// Status of the answer; 0 if the answer itself was good and what it said was not.
	Status int
	Text   string
}

func (e *AnswerError) Error() string { return e.Text }

// Status of an AnswerError in err, -1 if there is none.
func Status(err error) int {
	if answer, ok := errors.AsType[*AnswerError](err); ok {
		return answer.Status
	}
	return -1
}

// Call sends JSON and decodes the answer; a status of 400 or more is an AnswerError.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	b, err := c.Send(ctx, method, path, body, "application/json")
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// Send makes one request and reads the whole answer.
func (c *Client) Send(ctx context.Context, method, path string, body io.Reader, contentType string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-api-key", c.Key)
	req.Header.Set("content-type", contentType)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = &AnswerError{resp.StatusCode, fmt.Sprintf("%s %s: %d %s", method, path, resp.StatusCode, b)}
	}
	return b, err
}

// Upload gives the id of the new file.
func (c *Client) Upload(ctx context.Context, name string, content []byte) (string, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	p, err := w.CreateFormFile("file", name)
	if err != nil {
		return "", err
	}
	if _, err := p.Write(content); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	out, err := c.Send(ctx, http.MethodPost, "/v1/files", &b, w.FormDataContentType())
	if err != nil {
		return "", err
	}
	var f struct {
		ID string `json:"id"`
	}
	return f.ID, json.Unmarshal(out, &f)
}

// Create gives the id of the new container.
func (c *Client) Create(ctx context.Context, files ...string) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	return made.ID, c.Call(ctx, http.MethodPost, "/airlock/v1/containers", map[string]any{"files": files}, &made)
}

// Delete ends a container.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.Call(ctx, http.MethodDelete, "/airlock/v1/containers/"+id, nil, nil)
}

// Containers gives the ids of all containers of the key's app.
func (c *Client) Containers(ctx context.Context) ([]string, error) {
	var ids []string
	for next := ""; ; {
		var page struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
			Next string `json:"next_page"`
		}
		q := url.Values{"limit": {"100"}}
		if next != "" {
			q.Set("page", next)
		}
		if err := c.Call(ctx, http.MethodGet, "/airlock/v1/containers?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, one := range page.Data {
			ids = append(ids, one.ID)
		}
		if next = page.Next; next == "" {
			return ids, nil
		}
	}
}

// Exit is the last event of an exec.
type Exit struct {
	Code     int  `json:"code"`
	Signal   int  `json:"signal"`
	TimedOut bool `json:"timed_out"`
	OOM      bool `json:"oom"`
}

// Exec runs a command and gives its standard output; an answer without an exit event, or with a code, is an error.
func (c *Client) Exec(ctx context.Context, id, command string) (string, error) {
	out, exit, err := c.Run(ctx, id, map[string]any{"command": command})
	if err == nil && exit.Code != 0 {
		err = &AnswerError{0, fmt.Sprintf("%s: %+v", command, exit)}
	}
	return out, err
}

// Run makes the request of an exec and gives standard output and the exit event. An answer that ends without one is an
// error that is no AnswerError: whoever made it was cut off.
func (c *Client) Run(ctx context.Context, id string, request any) (string, Exit, error) {
	in, err := json.Marshal(request)
	if err != nil {
		return "", Exit{}, err
	}
	b, err := c.Send(ctx, http.MethodPost, "/airlock/v1/containers/"+id+"/exec", bytes.NewReader(in), "application/json")
	if err != nil {
		return "", Exit{}, err
	}
	var stdout strings.Builder
	for frame := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		name, data, _ := strings.Cut(frame, "\ndata: ")
		switch name {
		case "event: out":
			var v struct {
				Stream string `json:"stream"`
				Data   []byte `json:"data_base64"`
			}
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				return "", Exit{}, fmt.Errorf("frame %q: %w", frame, err)
			}
			if v.Stream == "stdout" {
				stdout.Write(v.Data)
			}
		case "event: exit":
			var exit Exit
			if err := json.Unmarshal([]byte(data), &exit); err != nil {
				return "", Exit{}, fmt.Errorf("frame %q: %w", frame, err)
			}
			return stdout.String(), exit, nil
		case "event: error":
			return stdout.String(), Exit{}, &AnswerError{statusOf(data), command(request) + ": " + data}
		}
	}
	return stdout.String(), Exit{}, fmt.Errorf("no exit event in %q", b)
}

func command(request any) string {
	b, err := json.Marshal(request)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// statusOf gives an error event the status that its type has as an answer.
func statusOf(data string) int {
	for kind, status := range map[string]int{
		"overloaded_error": 529, "rate_limit_error": 429, "not_found_error": 404, "invalid_request_error": 400,
	} {
		if strings.Contains(data, kind) {
			return status
		}
	}
	return 500
}

// Turn is what the scripted model made of one request.
type Turn struct {
	Container string
	// Files are the ids of the outputs.
	Files []string
	// Results are the result blocks of the code execution tool, raw.
	Results []json.RawMessage
}

// Ask has the scripted model carry out a prompt, in a new container if none is named.
func (c *Client) Ask(ctx context.Context, container, prompt string) (Turn, error) {
	body := map[string]any{
		"model": "script", "max_tokens": 1024,
		"tools":    []any{map[string]any{"type": "code_execution_20260120", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": prompt}},
	}
	if container != "" {
		body["container"] = container
	}
	var m struct {
		Container struct {
			ID string `json:"id"`
		} `json:"container"`
		Content []json.RawMessage `json:"content"`
	}
	if err := c.Call(ctx, http.MethodPost, "/v1/messages", body, &m); err != nil {
		return Turn{}, err
	}
	made := Turn{Container: m.Container.ID}
	for _, raw := range m.Content {
		var block struct {
			Type    string `json:"type"`
			Content struct {
				Content []struct {
					FileID string `json:"file_id"`
				} `json:"content"`
			} `json:"content"`
		}
		if !strings.Contains(string(raw), "_tool_result") {
			continue
		}
		if err := json.Unmarshal(raw, &block); err != nil {
			return made, err
		}
		made.Results = append(made.Results, raw)
		for _, f := range block.Content.Content {
			made.Files = append(made.Files, f.FileID)
		}
	}
	return made, nil
}
