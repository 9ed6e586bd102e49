// Package airlocktest gives the tests of a Go application a real Airlock server: a process on loopback with the scripted
// model (docs/script.md) behind it, which runs real code in real sandboxes and ends with the test.
//
//	env := airlocktest.Start(t)
//	client, err := airlock.NewClient(env)
//
// It needs what `airlock serve` needs: Linux, root, and a root file system (`airlock rootfs build`). AIRLOCK_BIN names the
// binary, else it is the airlock of PATH; without one the test fails. Of the settings in the environment only AIRLOCK_ROOTFS
// and those of sandboxes (AIRLOCK_SANDBOX_*) apply.
package airlocktest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock"
)

// Start starts a server with one app and gives what the app needs to reach it: address, the owner's token, the app's id
// and its identity token. Tests that run at the same time each have a server of their own.
func Start(tb testing.TB) airlock.Env {
	tb.Helper()
	return New(tb).NewApp("test")
}

// Server is a running server.
type Server struct {
	// URL is its address, on loopback.
	URL string

	tb    testing.TB
	admin string
}

// New starts a server without any app. It ends, and its data folder goes, when the test does; a failed test shows the end
// of its log.
func New(tb testing.TB) *Server {
	tb.Helper()
	bin := binary(tb)
	data := tb.TempDir()
	log := &tail{}
	cmd := exec.Command(bin, "serve", "--listen", "127.0.0.1:0", "--upstream", "script", "--data", data, "--allow-shared-kernel")
	cmd.Env = environ()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("airlocktest: %v", err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("airlocktest: %v", err)
	}
	tb.Cleanup(func() { stop(tb, cmd, log) })
	// A server that does not come up is ended, and so is the wait for its line.
	late := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	ready := bufio.NewScanner(out)
	ready.Scan()
	late.Stop()
	url, ok := strings.CutPrefix(ready.Text(), "airlock ready url=")
	if !ok {
		tb.Fatalf("airlocktest: the server does not serve:\n%s", log)
	}
	admin, err := os.ReadFile(filepath.Join(data, "admin.key"))
	if err != nil {
		tb.Fatalf("airlocktest: %v", err)
	}
	return &Server{URL: url, tb: tb, admin: strings.TrimSpace(string(admin))}
}

// startLimit is how long a server may take until it serves.
const startLimit = time.Minute

// environ is what a server for tests is given: nothing of the developer's own server but where root file systems lie and how
// sandboxes are made. It takes files however full the disk is, and does not wait for turns when the test is over.
func environ() []string {
	all := []string{"AIRLOCK_DISK_CROWDED_PERCENT=99.8", "AIRLOCK_DISK_FULL_PERCENT=99.9", "AIRLOCK_SHUTDOWN_GRACE=5s"}
	for _, variable := range os.Environ() {
		ours := strings.HasPrefix(variable, "AIRLOCK_")
		if !ours || strings.HasPrefix(variable, "AIRLOCK_ROOTFS=") || strings.HasPrefix(variable, "AIRLOCK_SANDBOX_") {
			all = append(all, variable)
		}
	}
	return all
}

func binary(tb testing.TB) string {
	tb.Helper()
	if bin := os.Getenv("AIRLOCK_BIN"); bin != "" {
		return bin
	}
	bin, err := exec.LookPath("airlock")
	if err != nil {
		tb.Fatalf("airlocktest: there is no airlock in PATH, and AIRLOCK_BIN names none: %v", err)
	}
	return bin
}

func stop(tb testing.TB, cmd *exec.Cmd, log *tail) {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Errorf("airlocktest: stop the server: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		tb.Errorf("airlocktest: the server ended badly: %v", err)
	}
	if tb.Failed() {
		tb.Logf("airlocktest: the end of the server's log:\n%s", log)
	}
}

// NewApp makes an app and gives its environment. Names are unique on a server.
func (s *Server) NewApp(name string) airlock.Env {
	s.tb.Helper()
	var app struct {
		ID string `json:"id"`
	}
	s.call(http.MethodPost, "/airlock/v1/apps", map[string]any{"name": name}, &app)
	var env struct {
		Owner    string `json:"APP_OWNER_JWT"`
		ID       string `json:"DEEPSPACE_APP_ID"`
		Identity string `json:"APP_IDENTITY_TOKEN"`
	}
	s.call(http.MethodGet, "/airlock/v1/apps/"+app.ID+"/env", nil, &env)
	return airlock.Env{BaseURL: s.URL, OwnerJWT: env.Owner, AppID: env.ID, AppIdentityToken: env.Identity}
}

// UserToken gives a token of a user of the app, good for ttl.
func (s *Server) UserToken(env airlock.Env, user string, ttl time.Duration) string {
	s.tb.Helper()
	var made struct {
		Token string `json:"token"`
	}
	s.call(http.MethodPost, "/airlock/v1/tokens", map[string]any{"app": env.AppID, "user": user, "ttl_seconds": int64(ttl / time.Second)}, &made)
	return made.Token
}

// call speaks to the server as its operator.
func (s *Server) call(method, path string, in, out any) {
	s.tb.Helper()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			s.tb.Fatalf("airlocktest: %v", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.tb.Context(), method, s.URL+path, body)
	if err != nil {
		s.tb.Fatalf("airlocktest: %v", err)
	}
	req.Header.Set("authorization", "Bearer "+s.admin)
	req.Header.Set("content-type", "application/json")
	client := http.Client{Timeout: time.Minute}
	res, err := client.Do(req)
	if err != nil {
		s.tb.Fatalf("airlocktest: %v", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%d %s", res.StatusCode, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, out)
	}
	if err != nil {
		s.tb.Fatalf("airlocktest: %s %s: %v", method, path, err)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(len(t.text)-tailSize, 0):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
