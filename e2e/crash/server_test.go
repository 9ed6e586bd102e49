package crash

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// server is one run of the binary on a data folder.
type server struct {
	t        *testing.T
	data     string
	cmd      *exec.Cmd
	url, key string
	instance string
	client   *http.Client
}

func startServer(t *testing.T, data string) *server {
	t.Helper()
	bin := os.Getenv("AIRLOCK_BIN")
	if bin == "" {
		t.Fatal("AIRLOCK_BIN is not set; type: make build && AIRLOCK_BIN=$PWD/bin/airlock go test ./e2e/crash")
	}
	s := &server{t: t, data: data, client: &http.Client{Transport: &http.Transport{}}}
	s.cmd = exec.CommandContext(t.Context(), bin, "serve", "--listen", "127.0.0.1:0", "--upstream", "script", "--data", data, "--allow-shared-kernel")
	// Idle sandboxes are not frozen here: their ticking is how a test sees that they live.
	s.cmd.Env = append(os.Environ(), "AIRLOCK_CONTAINER_IDLE_FREEZE=-1s", "AIRLOCK_SANDBOX_DISK_BYTES=134217728")
	log, err := os.OpenFile(filepath.Join(data, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "airlock ready url=")
	if err != nil || !ok {
		t.Fatalf("first line %q, %v; log:\n%s", line, err, s.log())
	}
	s.url = url
	id, err := os.ReadFile(filepath.Join(data, "instance"))
	if err != nil {
		t.Fatal(err)
	}
	s.instance = strings.TrimSpace(string(id))
	return s
}

func (s *server) log() string {
	b, err := os.ReadFile(filepath.Join(s.data, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-6000):])
}

// kill ends the run the hard way and waits until the process is gone.
func (s *server) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait() // says that it was killed
	s.client.CloseIdleConnections()
}

func (s *server) newKey() string {
	s.t.Helper()
	admin, err := os.ReadFile(filepath.Join(s.data, "admin.key"))
	if err != nil {
		s.t.Fatal(err)
	}
	var k struct {
		Key string `json:"key"`
	}
	s.key = strings.TrimSpace(string(admin))
	if err := s.call("POST", "/airlock/v1/keys", map[string]any{"app": "default"}, &k); err != nil {
		s.t.Fatal(err)
	}
	return k.Key
}

// call sends JSON and decodes the answer; a status of 400 or more is an error.
func (s *server) call(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	b, err := s.send(method, path, body, "application/json")
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(b, out)
}

func (s *server) send(method, path string, body io.Reader, contentType string) ([]byte, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-api-key", s.key)
	req.Header.Set("content-type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = &answerError{fmt.Sprintf("%s %s: %d %s", method, path, resp.StatusCode, b)}
	}
	return b, err
}

// answerError is a failure that a living server told; every other error is a connection that the kill cut.
type answerError struct{ text string }

func (e *answerError) Error() string { return e.text }

func (s *server) upload(name string, content []byte) (string, error) {
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
	out, err := s.send("POST", "/v1/files", &b, w.FormDataContentType())
	if err != nil {
		return "", err
	}
	var f struct {
		ID string `json:"id"`
	}
	return f.ID, json.Unmarshal(out, &f)
}

func (s *server) create(files ...string) (string, error) {
	var c struct {
		ID string `json:"id"`
	}
	return c.ID, s.call("POST", "/airlock/v1/containers", map[string]any{"files": files}, &c)
}

// exec runs a command and gives its standard output; an answer without an exit event or a code is an error.
func (s *server) exec(id, command string) (string, error) {
	in, err := json.Marshal(map[string]any{"command": command})
	if err != nil {
		return "", err
	}
	b, err := s.send("POST", "/airlock/v1/containers/"+id+"/exec", bytes.NewReader(in), "application/json")
	if err != nil {
		return "", err
	}
	var stdout strings.Builder
	for frame := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		name, data, _ := strings.Cut(frame, "\ndata: ")
		var v struct {
			Stream string `json:"stream"`
			Data   string `json:"data_base64"`
			Code   int    `json:"code"`
		}
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return "", fmt.Errorf("frame %q: %w", frame, err)
		}
		switch {
		case name == "event: out" && v.Stream == "stdout":
			raw, err := base64.StdEncoding.DecodeString(v.Data)
			if err != nil {
				return "", err
			}
			stdout.Write(raw)
		case name == "event: exit" && v.Code != 0:
			return stdout.String(), &answerError{fmt.Sprintf("%s: exit code %d", command, v.Code)}
		case name == "event: exit":
			return stdout.String(), nil
		}
	}
	return stdout.String(), fmt.Errorf("no exit event in %q", b)
}

// message is what a turn made.
type message struct {
	container string
	files     []string
}

// turn has the scripted model run one bash command.
func (s *server) turn(container, command string) (message, error) {
	body := map[string]any{
		"model": "script", "max_tokens": 1024,
		"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": "```bash\n" + command + "\n```"}},
	}
	if container != "" {
		body["container"] = container
	}
	b, err := json.Marshal(body)
	if err != nil {
		return message{}, err
	}
	out, err := s.send("POST", "/v1/messages", bytes.NewReader(b), "application/json")
	if err != nil {
		return message{}, err
	}
	return parseMessage(out)
}

func parseMessage(b []byte) (message, error) {
	var m struct {
		Container struct {
			ID string `json:"id"`
		} `json:"container"`
		Content []struct {
			Type    string          `json:"type"`
			Content json.RawMessage `json:"content"`
		} `json:"content"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return message{}, err
	}
	made := message{container: m.Container.ID}
	for _, block := range m.Content {
		if block.Type != "bash_code_execution_tool_result" {
			continue
		}
		var r struct {
			Content []struct {
				FileID string `json:"file_id"`
			} `json:"content"`
		}
		if err := json.Unmarshal(block.Content, &r); err != nil {
			return made, err
		}
		for _, f := range r.Content {
			made.files = append(made.files, f.FileID)
		}
	}
	return made, nil
}

// leftovers lists what a run of this data folder has left on the host.
func (s *server) leftovers() []string {
	var found []string
	prefix := "airlock-" + s.instance + "-"
	procs, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err == nil && bytes.Contains(b, []byte(prefix)) {
			found = append(found, "process "+p)
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return []string{err.Error()}
	}
	for _, l := range loops {
		b, err := os.ReadFile(l)
		if err == nil && strings.HasPrefix(string(b), s.data) {
			found = append(found, "loop device "+l+" of "+strings.TrimSpace(string(b)))
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(b, []byte(s.data)) || bytes.Contains(b, []byte(prefix)) {
		found = append(found, fmt.Sprint("mount, ", err))
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups of others come and go while this walks
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
			found = append(found, "cgroup "+path)
		}
		return nil
	})
	if err != nil {
		found = append(found, err.Error())
	}
	entries, err := os.ReadDir(filepath.Join(s.data, "run"))
	if err != nil {
		found = append(found, err.Error())
	}
	for _, e := range entries {
		found = append(found, "runtime folder "+e.Name())
	}
	return found
}

// wantClean waits until nothing is left; the kernel takes some milliseconds to let go of loop devices.
func (s *server) wantClean(since time.Time) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		found := s.leftovers()
		if len(found) == 0 {
			return
		}
		if time.Since(since) > 10*time.Second {
			s.t.Fatalf("10 s after the restart there is still:\n%s", strings.Join(found, "\n"))
		}
		<-tick.C
	}
}
