package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// askOptions are the flags of ask.
type askOptions struct {
	conn      connection
	files     []string
	out       string
	model     string
	container string
	goOn      bool
	asJSON    bool
	maxTokens int
}

func newAskCommand() *cobra.Command {
	var o askOptions
	cmd := &cobra.Command{
		Use:   "ask [flags] PROMPT",
		Short: "Let the model work on your files in a sandbox",
		Long: `Send a prompt and files to the model, let it run code in a sandbox, and save the files it makes.

The answer goes to standard output, what happens meanwhile to standard error. Results never replace a file:
a second report.docx becomes "report (2).docx". Without a running server on the data folder, one is started
inside this command for the time of the call. Without PROMPT, standard input is the prompt.

With --user the files and the container belong to that user of the app, as when the user's own application had asked.

Exit code 1 also if the model's code could not be run because the server had no sandbox for it. An answer that is
interrupted (exit code 130) or breaks off is kept as far as it is whole, and -c goes on from there.`,
		Example: `  airlock ask --file report.docx "Add a summary on page one"
  airlock ask --file sales.csv --out results "Draw a chart of sales by month"
  airlock ask -c "Now as a PDF"
  airlock ask --app invoices --user u1 --file in.csv "Which customers owe most?"`,
		RunE: func(cmd *cobra.Command, args []string) error { return runAsk(cmd, &o, args) },
	}
	o.conn.addFlags(cmd, true)
	f := cmd.Flags()
	f.StringArrayVar(&o.files, "file", nil, "a file the model may work on; - is standard input; may be repeated")
	f.StringVar(&o.out, "out", ".", "folder for the files that come back")
	f.StringVar(&o.model, "model", "", "model (AIRLOCK_MODEL; default: the first the server offers)")
	f.StringVar(&o.container, "container", "", "container to work in (default: a new one)")
	f.BoolVarP(&o.goOn, "continue", "c", false, "continue the last conversation")
	f.IntVar(&o.maxTokens, "max-tokens", 16000, "limit of one answer")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON document and nothing else")
	return cmd
}

// askResult is what --json prints.
type askResult struct {
	ContainerID *string    `json:"container_id"`
	Files       []askFile  `json:"files"`
	Text        string     `json:"text"`
	StopReason  string     `json:"stop_reason"`
	Cost        *askAmount `json:"cost"` // null: this server does not meter yet
}

type askAmount struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

type askFile struct {
	ID       string `json:"id"`
	Filename string `json:"filename"`
	Path     string `json:"path"`
}

func runAsk(cmd *cobra.Command, o *askOptions, args []string) error {
	ctx := cmd.Context()
	prompt, err := o.prompt(cmd, args)
	if err != nil {
		return err
	}
	if err := o.conn.resolve(); err != nil {
		return err
	}
	if err := outFolder(o.out); err != nil {
		return exitError{code: 2, err: fmt.Errorf("--out: %w", err)}
	}
	n := newNotes(cmd)
	if o.asJSON {
		n = notes{w: io.Discard}
	}
	c, stop, err := o.connect(ctx, n)
	if err != nil {
		return err
	}
	defer stop()
	defer c.close(ctx)

	where, err := o.where(ctx, c)
	if err != nil {
		return err
	}
	t, err := transcriptFor(where, o.conn.app, o.conn.user)
	if err != nil {
		return err
	}
	if o.goOn {
		if err := t.load(); err != nil {
			return err
		}
	}
	if err := o.complete(ctx, c, t); err != nil {
		return err
	}
	content, err := o.userContent(ctx, c, n, cmd.InOrStdin(), prompt)
	if err != nil {
		return err
	}
	view := &askView{notes: n, out: cmd.OutOrStdout(), silent: o.asJSON}
	begun := len(t.Messages)
	had := t.Container
	t.Messages = append(t.Messages, message{Role: "user", Content: content})
	result, part, err := o.converse(ctx, c, t, view)
	if err != nil {
		b := breakOff{begun: begun, had: had, part: part, result: result}
		return errors.Join(err, o.keep(cmd, c, t, view, b))
	}
	o.save(t, n)
	if err := o.report(cmd, n, result); err != nil {
		return err
	}
	if view.refused > 0 && view.ran == 0 {
		return fmt.Errorf("no code could be run: %w", c.whyUnavailable(ctx, t.Container))
	}
	return nil
}

func (o *askOptions) save(t *transcript, n notes) {
	if err := t.save(); err != nil {
		n.line("the conversation could not be kept for -c: %v", err)
	}
}

// outFolder says before the model works why its results could not be stored. The folder itself is made when there are some.
func outFolder(dir string) error {
	info, err := os.Stat(dir)
	if parent := filepath.Dir(filepath.Clean(dir)); errors.Is(err, fs.ErrNotExist) && parent != dir {
		return outFolder(parent)
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// prompt joins the arguments; without any, standard input is the prompt.
func (o *askOptions) prompt(cmd *cobra.Command, args []string) (string, error) {
	stdinIsFile := false
	for _, f := range o.files {
		stdinIsFile = stdinIsFile || f == "-"
	}
	prompt := strings.Join(args, " ")
	if len(args) == 0 && !stdinIsFile && !isTerminal(cmd.InOrStdin()) {
		b, err := io.ReadAll(interruptible(cmd.Context(), cmd.InOrStdin()))
		if err != nil {
			return "", err
		}
		prompt = string(b)
	}
	if strings.TrimSpace(prompt) == "" {
		return "", usageError(cmd, errors.New("a prompt is needed"))
	}
	return prompt, nil
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// where names the server for the transcript: by its instance, which stays when it answers at another address; by where it
// was found if it does not tell.
func (o *askOptions) where(ctx context.Context, c *client) (string, error) {
	var v struct {
		Instance string `json:"instance"`
	}
	err := c.call(ctx, http.MethodGet, "/version", nil, &v)
	if _, answered := errors.AsType[*apiError](err); err != nil && !answered {
		return "", err
	}
	switch {
	case v.Instance != "":
		return "instance " + v.Instance, nil
	case o.conn.url != "":
		return o.conn.url, nil
	}
	return o.conn.data, nil
}

// connect finds the running server or starts one in this process; stop ends what was started.
func (o *askOptions) connect(ctx context.Context, n notes) (c *client, stop func(), err error) {
	if o.conn.url == "" && !serverAnswers(ctx, o.conn.data) {
		return o.startHere(ctx, n)
	}
	c, err = o.conn.dialAPI(ctx)
	return c, func() {}, err
}

// complete fills in model and container: flags first, then the conversation, then what the server offers.
func (o *askOptions) complete(ctx context.Context, c *client, t *transcript) error {
	if o.container != "" {
		t.Container = o.container
	}
	if o.model == "" {
		o.model = os.Getenv("AIRLOCK_MODEL")
	}
	if o.model != "" {
		t.Model = o.model
	}
	if t.Model != "" {
		return nil
	}
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.call(ctx, "GET", "/v1/models", nil, &models); err != nil {
		return fmt.Errorf("list the models: %w", err)
	}
	if len(models.Data) == 0 {
		return errors.New("the server lists no model: name one with --model")
	}
	t.Model = models.Data[0].ID
	return nil
}

// userContent uploads the files and makes the blocks of the user's message.
func (o *askOptions) userContent(ctx context.Context, c *client, n notes, stdin io.Reader, prompt string) (json.RawMessage, error) {
	content := []map[string]any{{"type": "text", "text": prompt}}
	for _, path := range o.files {
		f, err := c.uploadFile(ctx, n, stdin, path)
		if err != nil {
			return nil, err
		}
		content = append(content, map[string]any{"type": "container_upload", "file_id": f.ID})
	}
	return json.Marshal(content)
}

// maxPauses bounds how often a paused answer is continued: a model that never ends is a bill that never ends.
const maxPauses = 20

// converse sends the conversation, continues it while the server pauses, and downloads what was made. With an error come
// the result so far and what there is of an answer that was broken off.
func (o *askOptions) converse(ctx context.Context, c *client, t *transcript, view *askView) (*askResult, *answer, error) {
	result := &askResult{Files: []askFile{}}
	for range maxPauses {
		a, err := o.turn(ctx, c, t, view)
		if err != nil {
			return result, a, err
		}
		result.StopReason = a.stopReason()
		if content := a.Message().Get("content"); len(content.Elems()) > 0 {
			t.Messages = append(t.Messages, message{Role: "assistant", Content: content.Bytes()})
		}
		if id := a.container(); id != "" {
			t.Container = id
		}
		if err := o.fetch(ctx, c, view.notes, a.outputFiles(), result); err != nil {
			return result, &answer{}, err
		}
		if result.StopReason != "pause_turn" {
			break
		}
	}
	result.complete(t, view)
	return result, nil, nil
}

func (r *askResult) complete(t *transcript, view *askView) {
	view.endText()
	r.Text = view.all.String()
	if t.Container != "" {
		r.ContainerID = &t.Container
	}
}

// turn is one request. A conversation outlives its container: when that has expired, the turn goes to a new one.
func (o *askOptions) turn(ctx context.Context, c *client, t *transcript, view *askView) (*answer, error) {
	r := messagesRequest{
		Model: t.Model, MaxTokens: o.maxTokens, Container: t.Container, Messages: t.Messages,
		Tools: []any{map[string]any{"type": "code_execution_20260120", "name": "code_execution"}},
	}
	a, err := c.stream(ctx, r, view)
	var e *apiError
	if o.container == "" && t.Container != "" && errors.As(err, &e) && (e.Code == "container_expired" || e.Code == "container_lost") {
		view.line("the container of this conversation has expired; working in a new one")
		t.Container, r.Container = "", ""
		return c.stream(ctx, r, view)
	}
	return a, err
}

func (o *askOptions) fetch(ctx context.Context, c *client, n notes, ids []string, result *askResult) error {
	if len(ids) == 0 {
		return nil
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, id := range ids {
		meta, path, err := c.download(ctx, n, id, o.out)
		if err != nil {
			return fmt.Errorf("result %s: %w", id, err)
		}
		result.Files = append(result.Files, askFile{ID: id, Filename: meta.Filename, Path: path})
	}
	return nil
}

// report prints the closing line: container, files, cost.
func (o *askOptions) report(cmd *cobra.Command, n notes, r *askResult) error {
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	parts := []string{"no container"}
	if r.ContainerID != nil {
		parts[0] = "container " + *r.ContainerID
	}
	names := make([]string, len(r.Files))
	for i, f := range r.Files {
		names[i] = printable(f.Path)
	}
	switch len(names) {
	case 0:
		parts = append(parts, "no files")
	default:
		parts = append(parts, "files: "+strings.Join(names, ", "))
	}
	parts = append(parts, "cost: not metered yet")
	if r.StopReason != "end_turn" {
		parts = append(parts, "stopped: "+r.StopReason)
	}
	n.line("%s", strings.Join(parts, " · "))
	return nil
}
