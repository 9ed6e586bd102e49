package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

// server is the binary that all tests share.
var server struct {
	bin, data, url, key string
}

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// anyDisk makes a server work however full the disk of this machine is.
var anyDisk = []string{"AIRLOCK_DISK_CROWDED_PERCENT=99.8", "AIRLOCK_DISK_FULL_PERCENT=99.9"}

func withServer(run func() int) (code int, err error) {
	server.bin = os.Getenv("AIRLOCK_BIN")
	if server.bin == "" {
		return 1, fmt.Errorf("AIRLOCK_BIN is not set; run it through make test, or: make build && AIRLOCK_BIN=$PWD/bin/airlock go test ./e2e/go")
	}
	if server.data, err = os.MkdirTemp("", "airlock-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(server.data)
	log, err := os.Create(filepath.Join(server.data, "log"))
	if err != nil {
		return 1, err
	}
	defer log.Close()
	cmd := exec.Command(server.bin, "serve", "--listen", "127.0.0.1:0", "--upstream", "script", "--data", server.data, "--allow-shared-kernel")
	cmd.Env = append(os.Environ(), anyDisk...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if waitErr := cmd.Wait(); waitErr != nil && err == nil {
			code, err = 1, fmt.Errorf("the server ended badly: %w\n%s", waitErr, tail(log.Name()))
		}
		if code != 0 {
			fmt.Fprintf(os.Stderr, "--- the end of the server's log\n%s\n", tail(log.Name()))
		}
	}()
	ready := bufio.NewScanner(out)
	ready.Scan()
	url, ok := strings.CutPrefix(ready.Text(), "airlock ready url=")
	if !ok {
		return 1, fmt.Errorf("the first line was %q, not the ready line\n%s", ready.Text(), tail(log.Name()))
	}
	server.url = url
	if server.key, err = newKey("default"); err != nil {
		return 1, err
	}
	return run(), nil
}

func tail(file string) string {
	b, _ := os.ReadFile(file)
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return string(b)
}

// airlock runs the binary as a command line client of the data folder.
func airlock(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, server.bin, args...)
	cmd.Env = append(os.Environ(), "AIRLOCK_DATA="+server.data, "AIRLOCK_URL=", "AIRLOCK_KEY=")
	out, err := cmd.Output()
	if err != nil {
		stderr := ""
		if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it unwrapped
			stderr = string(exit.Stderr)
		}
		return out, fmt.Errorf("airlock %s: %w\n%s", strings.Join(args, " "), err, stderr)
	}
	return out, nil
}

func newKey(app string) (string, error) {
	out, err := airlock("key", "create", "--app", app, "--json")
	if err != nil {
		return "", err
	}
	var k struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(out, &k); err != nil {
		return "", err
	}
	return k.Key, nil
}

// newApp makes an app of its own for a test, so that lists hold nothing of other tests.
func newApp(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	if len(name) > 40 {
		name = name[:40]
	}
	if _, err := airlock("app", "create", name); err != nil {
		t.Fatal(err)
	}
	key, err := newKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newClient(key string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(server.url), option.WithAPIKey(key))
}

// script joins lines to the prompt that the scripted model carries out.
func script(lines ...string) string { return strings.Join(lines, "\n") }

// fence makes an action of the scripted model.
func fence(info, body string) string { return "```" + info + "\n" + body + "\n```" }
