//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/cmd/airlock/demo"
	"github.com/airlock-sandbox/airlock/internal/server"
)

func newDemoCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch code in a sandbox edit a report, from nothing",
		Long: "Serve on a free loopback port, upload a 40-page report and a workbook, let the scripted model edit the\n" +
			"report in a sandbox, download the results and stop the server. The office root file system is made first\n" +
			"if there is none, which takes some minutes. With ANTHROPIC_API_KEY set, Claude does it in place of the script.\n" +
			"Files that exist are never overwritten. Needs root.",
		Example: "  sudo airlock demo\n  sudo airlock demo --out /tmp/try",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &demoRun{notes: newNotes(cmd), out: cmd.OutOrStdout(), dir: out, script: os.Getenv("ANTHROPIC_API_KEY") == ""}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&out, "out", "airlock-demo", "folder for the originals and the results")
	return cmd
}

// demoRun is one run of the demo: the account goes to out, progress to the notes.
type demoRun struct {
	notes
	out    io.Writer
	dir    string
	script bool // the scripted model; otherwise Claude
	start  time.Time
}

func (d *demoRun) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...) // a reader that left is noticed when the command ends
}

func (d *demoRun) run(ctx context.Context) (err error) {
	d.start = time.Now()
	d.say("Airlock demo: a model edits a report with code in a sandbox.\n")
	cfg, err := d.config()
	if err != nil {
		return err
	}
	image, err := ensureImage(ctx, d.notes, cfg.RootFS, "office")
	if err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return err
	}
	here, err := serveHere(ctx, cfg)
	if err != nil {
		return err
	}
	stop := func() error {
		// The documents are downloaded by now; nothing of the demo's own data folder is worth keeping.
		return errors.Join(here.stop(), os.RemoveAll(cfg.Data))
	}
	defer func() {
		if stop != nil {
			err = errors.Join(err, stop())
		}
	}()
	c := &client{url: here.url, adminURL: here.url, key: here.adminKey, http: here.http}
	if err := c.becomeApp(ctx, "default"); err != nil {
		return err
	}
	d.say("  server   %s, in this process, from %s", here.url, image.Name)
	if d.script {
		d.say("  model    the script that comes with Airlock (set ANTHROPIC_API_KEY to have Claude do it)")
	} else {
		d.say("  model    Claude, because ANTHROPIC_API_KEY is set: this uses your account")
	}
	turn, err := d.turn(ctx, c)
	if err != nil {
		return err
	}
	if err := d.results(ctx, c, turn); err != nil {
		return err
	}
	c.close(ctx)
	last := stop
	stop = nil
	if err := last(); err != nil {
		return err
	}
	d.say("\nDone in %s. The server has stopped.", time.Since(d.start).Round(100*time.Millisecond))
	return nil
}

// config is that of a server of its own, beside any other on this machine. Only what says how sandboxes are made comes
// from the environment.
func (d *demoRun) config() (server.Config, error) {
	upstream := "anthropic"
	if d.script {
		upstream = "script"
	}
	var env []string
	for _, kv := range os.Environ() {
		for _, keep := range []string{"AIRLOCK_ROOTFS=", "AIRLOCK_SANDBOX_", "AIRLOCK_LOG_LEVEL=", "ANTHROPIC_"} {
			if strings.HasPrefix(kv, keep) {
				env = append(env, kv)
			}
		}
	}
	cfg, err := server.LoadConfig(server.LoadOptions{Env: env, Flags: map[string]string{
		"listen": "127.0.0.1:0", "data": filepath.Join(dataHome(), "demo"), "upstream": upstream, "sandbox.rootfs": "office",
	}})
	if cfg.LogLevel == "info" {
		cfg.LogLevel = "error"
	}
	return cfg, err
}

// demoTurn is what the conversation came to.
type demoTurn struct {
	files     []string // ids
	container string
	took      time.Duration
}

func (d *demoRun) turn(ctx context.Context, c *client) (*demoTurn, error) {
	content, err := d.upload(ctx, c)
	if err != nil {
		return nil, err
	}
	model := "airlock-script"
	if !d.script {
		o := &askOptions{}
		t := &transcript{}
		if err := o.complete(ctx, c, t); err != nil {
			return nil, err
		}
		model = t.Model
	}
	began := time.Now()
	turn := &demoTurn{}
	view := &demoView{notes: d.notes, out: d.out}
	defer view.stopClock()
	r := messagesRequest{
		Model: model, MaxTokens: 32_000, Messages: []message{{Role: "user", Content: content}},
		Tools: []any{map[string]any{"type": "code_execution_20260120", "name": "code_execution"}},
	}
	d.say("")
	for range maxPauses {
		a, err := c.stream(ctx, r, view)
		if err != nil {
			return nil, fmt.Errorf("turn: %w", err)
		}
		turn.files = append(turn.files, a.outputFiles()...)
		turn.container = a.container()
		if a.stopReason() != "pause_turn" {
			break
		}
		r.Container = turn.container
		r.Messages = append(r.Messages, message{Role: "assistant", Content: a.Message().Get("content").Bytes()})
	}
	turn.took = time.Since(began)
	if view.failed > 0 && d.script {
		return nil, fmt.Errorf("%d of the model's steps failed", view.failed)
	}
	return turn, nil
}

// upload writes the samples to disk, so that they can be compared with the results, and sends them.
func (d *demoRun) upload(ctx context.Context, c *client) (json.RawMessage, error) {
	text, err := demo.Prompt()
	if d.script {
		text, err = demo.Script()
	}
	if err != nil {
		return nil, err
	}
	content := []map[string]any{{"type": "text", "text": text}}
	originals := filepath.Join(d.dir, "originals")
	if err := d.mkdir(originals); err != nil {
		return nil, err
	}
	for _, name := range []string{demo.Report, demo.Workbook} {
		sample, err := demo.Sample(name)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(originals, name)
		if err := d.original(path, sample); err != nil {
			return nil, err
		}
		raw, err := c.upload(ctx, notes{w: io.Discard}, nil, path, 0)
		if err != nil {
			return nil, err
		}
		var f remoteFile
		if err := json.Unmarshal(raw, &f); err != nil {
			return nil, fmt.Errorf("upload of %s: %w", name, err)
		}
		d.say("  upload   %-20s %9s  %s", name, byteCount(int64(len(sample))), f.ID)
		content = append(content, map[string]any{"type": "container_upload", "file_id": f.ID})
	}
	return json.Marshal(content)
}

// original keeps a file that is there: it is either the sample of an earlier run or somebody's own.
func (d *demoRun) original(path string, sample []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		old, err := os.ReadFile(path)
		if err == nil && string(old) != string(sample) {
			err = fmt.Errorf("%s is another file: name an empty folder with --out", path)
		}
		return err
	}
	if err != nil {
		return err
	}
	_, err = f.Write(sample)
	return errors.Join(err, f.Close(), giveBack(path))
}

func (d *demoRun) mkdir(path string) error {
	_, err := os.Stat(d.dir)
	fresh := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(path, 0o755); err != nil || !fresh {
		return err
	}
	return errors.Join(giveBack(d.dir), giveBack(path))
}

// giveBack makes a file that sudo made belong to who called sudo.
func giveBack(path string) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil {
		return nil //nolint:nilerr // not under sudo
	}
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil {
		return nil //nolint:nilerr // not under sudo
	}
	return os.Lchown(path, uid, gid)
}
