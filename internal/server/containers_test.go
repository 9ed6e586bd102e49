package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExecStreamsOutputAndTellsHowItEnded(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	id := r.container(r.key)
	res := r.exec(r.key, id, map[string]any{
		"argv": []string{"sh", "-c", `cat; echo "$A"; pwd; printf 'a\0b\377' >&2; exit 7`}, "cwd": "/tmp",
		"env": map[string]string{"A": "value"}, "stdin": "given\n",
	})
	if res.stdout != "given\nvalue\n/tmp\n" || res.stderr != "a\x00b\xff" {
		t.Errorf("stdout %q, stderr %q", res.stdout, res.stderr)
	}
	if res.exit["code"] != 7.0 || res.exit["timed_out"] != false || res.exit["signal"] != 0.0 || res.exit["oom"] != false {
		t.Errorf("exit %v", res.exit)
	}
	res = r.exec(r.key, id, map[string]any{"command": "echo partial; sleep 20", "timeout_seconds": 0.5})
	if res.stdout != "partial\n" || res.exit["timed_out"] != true {
		t.Errorf("timed out: %+v", res)
	}
	res = r.exec(r.key, id, map[string]any{"command": "kill -9 $$"})
	if res.exit["signal"] != 9.0 || res.exit["timed_out"] != false || res.exit["oom"] != false {
		t.Errorf("killed: %+v", res)
	}
	res = r.exec(r.key, id, map[string]any{"command": "tail /dev/zero"})
	if res.exit["oom"] != true || res.exit["timed_out"] != false || res.exit["code"] == 0.0 {
		t.Errorf("out of memory: %+v", res)
	}
	for name, body := range map[string]any{
		"unknown member": map[string]any{"command": "true", "tty": true},
		"nothing":        map[string]any{},
		"no program":     map[string]any{"argv": []string{"/no/such/program"}},
		"bad folder":     map[string]any{"argv": []string{"true"}, "cwd": "/no/such/folder"},
	} {
		if got := r.status("POST", "/airlock/v1/containers/"+id+"/exec", r.key, body); got != 400 {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestFilesOfAContainerAreReadWrittenAndDeletedWithTheRightsOfTheCode(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	file := r.upload(r.key, "in.txt", "input")
	var c struct {
		ID     string `json:"id"`
		Inputs []struct {
			FileID string `json:"file_id"`
			Path   string `json:"path"`
		} `json:"inputs"`
	}
	r.json("POST", "/airlock/v1/containers", r.key, map[string]any{"files": []string{file}}, 200, &c)
	if len(c.Inputs) != 1 || c.Inputs[0].Path != "/files/input/in.txt" || c.Inputs[0].FileID != file {
		t.Errorf("inputs %+v", c.Inputs)
	}
	base := "/airlock/v1/containers/" + c.ID + "/files/"
	big := strings.Repeat("0123456789abcdef", 100_000)
	for path, content := range map[string]string{"workspace/a/b/c.txt": "hello", "workspace/empty": "", "tmp/big": big} {
		if got := r.status("PUT", base+path, r.key, strings.NewReader(content)); got != 200 {
			t.Fatalf("put %s: %d", path, got)
		}
		resp := r.do("GET", base+path, r.key, nil)
		b, err := io.ReadAll(resp.Body)
		if err != nil || string(b) != content || resp.ContentLength != int64(len(content)) {
			t.Errorf("get %s: %d bytes of %d, %v", path, len(b), len(content), err)
		}
	}
	var list struct {
		Data []struct{ Name, Type string }
	}
	r.json("GET", base+"workspace?list=1", r.key, nil, 200, &list)
	if d := cmp.Diff([]struct{ Name, Type string }{{"a", "dir"}, {"empty", "file"}}, list.Data); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "files/input/in.txt", 200},
		{"PUT", "files/input/in.txt", 403},
		{"DELETE", "files/input/in.txt", 403},
		{"GET", "workspace/none", 404},
		{"GET", "workspace/a", 400},
		{"GET", "etc/shadow", 403},
		{"PUT", "etc/passwd", 403},
		{"GET", "proc/1/environ", 403},
		{"GET", "dev/zero", 403},
		{"DELETE", "workspace/a", 400},
		{"DELETE", "workspace/a?recursive=1", 204},
		{"DELETE", "workspace/empty", 204},
		{"GET", "workspace/empty", 404},
	} {
		if got := r.status(tt.method, base+tt.path, r.key, nil); got != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, got, tt.status)
		}
	}
}

func TestContainersOfAnotherAppAnswerLikeNone(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.json("POST", "/airlock/v1/apps", r.AdminKey(), map[string]any{"name": "other"}, 200, nil)
	other := r.newKey("other")
	mine := "/airlock/v1/containers/" + r.container(r.key)
	none := "/airlock/v1/containers/container_01aaaaaaaaaaaaaaaaaaaaaa"
	body := func(method, path string) string {
		resp := r.do(method, path, other, map[string]any{"command": "true"})
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(resp.StatusCode, strings.ReplaceAll(string(b), resp.Header.Get("request-id"), "REQ"))
	}
	for _, try := range [][2]string{
		{"GET", ""}, {"DELETE", ""}, {"POST", "/exec"}, {"GET", "/files/etc/passwd"}, {"PUT", "/files/tmp/f"}, {"DELETE", "/files/tmp/f"},
	} {
		got, want := body(try[0], mine+try[1]), body(try[0], none+try[1])
		if got != want || !strings.HasPrefix(got, "404") {
			t.Errorf("%s %s: foreign %s, unknown %s", try[0], try[1], got, want)
		}
	}
}

// With the header of a beta and without: a success says that it is gone, as reading back by every path shows.
func TestCase27DeletedContainerIsGone(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	other := "/airlock/v1/containers/" + r.container(r.key)
	if got := r.do("DELETE", other, r.key, nil, "anthropic-beta", "containers-2025-01-01").StatusCode; got != 200 {
		t.Fatalf("delete: %d", got)
	}
	if got := r.status("GET", other, r.key, nil); got != 404 {
		t.Errorf("after delete with the header of a beta: %d", got)
	}
	id := r.container(r.key)
	path := "/airlock/v1/containers/" + id
	if got := r.status("POST", path+"/exec", r.key, map[string]any{"command": "echo x > f"}); got != 200 {
		t.Fatalf("exec: %d", got)
	}
	if got := r.status("DELETE", path, r.key, nil); got != 200 {
		t.Fatalf("delete: %d", got)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if got := r.status(method, path, r.key, nil); got != 404 {
			t.Errorf("%s after delete: %d", method, got)
		}
	}
	for try, got := range map[string]int{
		"exec": r.status("POST", path+"/exec", r.key, map[string]any{"command": "true"}), "file": r.status("GET", path+"/files/workspace/f", r.key, nil),
		"fork": r.status("POST", path+"/fork", r.key, nil),
	} {
		if got != 404 {
			t.Errorf("%s after delete: %d", try, got)
		}
	}
	list, err := io.ReadAll(r.do("GET", "/airlock/v1/containers", r.key, nil).Body)
	if err != nil || strings.Contains(string(list), id) {
		t.Errorf("the list after delete: %s, %v", list, err)
	}
	if r.parts.containers.Workspaces.Size(id) != 0 || r.parts.containers.LiveCount() != 0 {
		t.Errorf("%d bytes and %d sandboxes are left", r.parts.containers.Workspaces.Size(id), r.parts.containers.LiveCount())
	}
}

func TestQuietExecSendsPings(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Messages.Ping = 50 * time.Millisecond
	r := start(t, cfg)
	res := r.exec(r.key, r.container(r.key), map[string]any{"command": "sleep 0.5; echo late"})
	if res.stdout != "late\n" || !strings.HasPrefix(res.errorType, "event: ping") {
		t.Errorf("got %+v", res)
	}
}

func TestMessagesTurnRunsCodeAndItsContainerGoesOn(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	body := map[string]any{
		"model": "script", "max_tokens": 1000,
		"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": "```bash\necho made > note; echo out > \"$OUTPUT_DIR/o.txt\"\n```\n"}},
	}
	var msg struct {
		Container struct {
			ID        string    `json:"id"`
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"container"`
		StopReason string `json:"stop_reason"`
	}
	r.json("POST", "/v1/messages", r.key, body, 200, &msg)
	if msg.Container.ID == "" || msg.StopReason != "end_turn" || time.Until(msg.Container.ExpiresAt) < 50*time.Minute {
		t.Fatalf("got %+v", msg)
	}
	if res := r.exec(r.key, msg.Container.ID, map[string]any{"command": "cat note"}); res.stdout != "made\n" {
		t.Errorf("in the container: %+v", res)
	}
	var files struct {
		Data []struct {
			Filename string `json:"filename"`
		} `json:"data"`
	}
	r.json("GET", "/v1/files", r.key, nil, 200, &files)
	if len(files.Data) != 1 || files.Data[0].Filename != "o.txt" {
		t.Errorf("files %+v", files.Data)
	}
}

// One setting limits a command, whoever starts it, and is what the model is told.
func TestTimeLimitOfACommandReachesTheTurn(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Sandbox.Wall = time.Second
	r := start(t, cfg)
	resp := r.do("POST", "/v1/messages", r.key, map[string]any{
		"model": "script", "max_tokens": 1000,
		"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": "```bash\nsleep 100\n```\n"}},
	})
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), "timed out after 1 s") {
		t.Errorf("%d %s %v", resp.StatusCode, b, err)
	}
}

// The cgroup setting reaches the driver: under a group that does not exist no sandbox can be made.
func TestCgroupParentReachesTheDriver(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Sandbox.CgroupParent = "/there/is/none"
	s, err := Open(t.Context(), cfg)
	if err == nil {
		t.Error("the setting was ignored", s.Close())
	}
}

func TestDeleteEndsATurnThatWaitsForTheModel(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	cfg := testConfig(t)
	cfg.Upstream = "http://model.invalid"
	cfg.UpstreamTransport = roundTrip(func(r *http.Request) (*http.Response, error) {
		close(asked)
		select {
		case <-r.Context().Done():
		case <-answer:
		}
		return nil, errors.New("no answer")
	})
	defer close(answer)
	r := start(t, cfg)
	id := r.container(r.key)
	status := make(chan int, 1)
	go func() {
		status <- r.status("POST", "/v1/messages", r.key, map[string]any{
			"model": "script", "max_tokens": 1000, "container": id,
			"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
			"messages": []any{map[string]any{"role": "user", "content": "hello"}},
		})
	}()
	<-asked
	if got := r.status("DELETE", "/airlock/v1/containers/"+id, r.key, nil); got != 200 {
		t.Errorf("delete: %d", got)
	}
	if got := <-status; got != 404 {
		t.Errorf("the turn: %d", got)
	}
}

// Who may begin is decided at the beginning. To stop what runs, its container is deleted.
func TestTurnGoesOnWhenItsKeyIsRevokedOrItsAppDisabled(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	var key struct{ ID, Key string }
	r.json("POST", r.AdminURL()+"/airlock/v1/keys", r.AdminKey(), map[string]any{"app": "default"}, 200, &key)
	id := r.container(r.key)
	running := r.do("POST", "/airlock/v1/containers/"+id+"/exec", key.Key, map[string]any{"command": "echo go; sleep 1; echo end"})
	first := make([]byte, 10)
	if _, err := io.ReadFull(running.Body, first); err != nil {
		t.Fatal(err)
	}
	r.json("DELETE", r.AdminURL()+"/airlock/v1/keys/"+key.ID, r.AdminKey(), nil, 200, nil)
	r.json("PATCH", r.AdminURL()+"/airlock/v1/apps/default", r.AdminKey(), map[string]any{"disabled": true}, 200, nil)
	for _, ended := range []string{key.Key, r.key} {
		if got := r.status("GET", "/airlock/v1/containers/"+id, ended, nil); got != 401 {
			t.Errorf("the next request: %d", got)
		}
	}
	if rest, err := io.ReadAll(running.Body); err != nil || !strings.Contains(string(rest), `"code":0`) {
		t.Errorf("the running turn ends with %q, %v", rest, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
