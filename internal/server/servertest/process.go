// Package servertest runs a built airlock binary as a child process and speaks to it as a client would: for tests and
// measurements that kill it. It knows the wire and nothing of the inside, so a lie of the server cannot hide in shared code.
//
// Invariant: a failure that a living server told is an *AnswerError; every other error is a connection that ended, which a
// killed server explains.
//
// Files: process.go one run of the binary; client.go the requests; leftovers.go what a run has left on the host.
package servertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Options of Start.
type Options struct {
	// Binary is the built airlock.
	Binary string
	// Args stand before "serve" is given its address, upstream and data folder; usually empty. They replace the command
	// when Command is set.
	Args []string
	// Data is the data folder; the log goes to Log in it.
	Data string
	// Log is the file of the server's log, appended to; empty = Data/log.
	Log string
	// Env is added to the environment.
	Env []string
}

// Process is one run of the binary on a data folder. Its requests are safe for concurrent use.
type Process struct {
	Client
	// Instance is the id that names the run's cgroups and folders.
	Instance string
	Data     string

	cmd  *exec.Cmd
	log  string
	dead chan struct{} // closed once the process is reaped
	err  error         // of Wait
}

// Start waits for the line that says where the server listens. It serves the scripted model on loopback. The context kills it.
func Start(ctx context.Context, o Options) (*Process, error) {
	if o.Binary == "" {
		return nil, errors.New("no binary; type: make build, and set AIRLOCK_BIN=$PWD/bin/airlock")
	}
	p := &Process{Data: o.Data, log: o.Log, dead: make(chan struct{})}
	if p.log == "" {
		p.log = filepath.Join(o.Data, "log")
	}
	p.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	args := append(o.Args, "serve", "--listen", "127.0.0.1:0", "--upstream", "script", "--data", o.Data, "--allow-shared-kernel")
	p.cmd = exec.CommandContext(ctx, o.Binary, args...)
	// How full the disk of this machine is is no matter of the tests; Env may say otherwise.
	levels := []string{"AIRLOCK_DISK_CROWDED_PERCENT=99.8", "AIRLOCK_DISK_FULL_PERCENT=99.9"}
	p.cmd.Env = append(append(os.Environ(), levels...), o.Env...)
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "airlock ready url=")
	go func() { p.err = p.cmd.Wait(); close(p.dead) }()
	if err != nil || !ok {
		_ = p.Kill() // it may have ended by itself
		return nil, fmt.Errorf("the first line was %q, not the ready line: %w; log:\n%s", line, err, p.LogTail())
	}
	p.URL = url
	id, err := os.ReadFile(filepath.Join(o.Data, "instance"))
	if err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	p.Instance = strings.TrimSpace(string(id))
	return p, nil
}

// LogTail is the end of the log, for messages.
func (p *Process) LogTail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-6000):])
}

// Pid of the server.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.dead }

// Kill ends the run the hard way and waits until the process is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.dead
	p.HTTP.CloseIdleConnections()
	return nil
}

// Stop asks the server to end and gives what its exit said.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.dead
	p.HTTP.CloseIdleConnections()
	return p.err
}

// AdminKey of the data folder.
func (p *Process) AdminKey() (string, error) {
	b, err := os.ReadFile(filepath.Join(p.Data, "admin.key"))
	return strings.TrimSpace(string(b)), err
}

// NewKey makes an API key of the app "default".
func (p *Process) NewKey(ctx context.Context) (string, error) {
	admin, err := p.AdminKey()
	if err != nil {
		return "", err
	}
	c := p.Client
	c.Key = admin
	var k struct {
		Key string `json:"key"`
	}
	return k.Key, errors.Join(c.Call(ctx, http.MethodPost, "/airlock/v1/keys", map[string]any{"app": "default"}, &k))
}
