package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

// lives runs the chaos while containers live: all of them, and for the time asked at the least.
func lives(ctx context.Context, w *world) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	trouble, calm := context.WithCancel(ctx)
	defer calm()
	ended := make(chan error, 1)
	go func() {
		err := chaos(trouble, w)
		if err != nil {
			cancel(err)
		}
		ended <- err
	}()
	jobs := make(chan uint64)
	var workers sync.WaitGroup
	for range w.o.workers {
		workers.Go(func() {
			for n := range jobs {
				w.life(ctx, w.o.random(n+1000))
			}
		})
	}
	began := time.Now()
	for n := 0; ctx.Err() == nil && (n < w.o.containers || time.Since(began) < w.o.life); n++ {
		jobs <- uint64(n)
	}
	close(jobs)
	workers.Wait()
	calm()
	if err := <-ended; err != nil {
		return err
	}
	return errors.Join(context.Cause(ctx), w.stopAndCheck(ctx))
}

// box is a container and what is known of it.
type box struct {
	w   *world
	id  string
	rng *rand.Rand

	lines []line          // of the file "log"
	blob  map[string]bool // what the file "blob" may hold, by hash; exactly one if the last write was acknowledged
	x     string          // what the variable x of the interpreter must be, "" if unknown
	next  int
	told  bool // that files may be lost or damaged: what is there at the next look counts

	faults int // that were reported of it
}

// line was written to the file; one that is not sure may be missing, because nobody said that it was written.
type line struct {
	text string
	sure bool
}

var steps = []struct {
	name string
	run  func(*box, context.Context) error
}{
	{"append", (*box).append},
	{"append", (*box).append},
	{"put", (*box).put},
	{"read", (*box).read},
	{"read", (*box).read},
	{"set a variable", (*box).setX},
	{"read a variable", (*box).readX},
	{"output file", (*box).output},
	{"fork", (*box).fork},
	{"exit code", (*box).exitCode},
	{"time limit", (*box).timeLimit},
	{"memory limit", (*box).memoryLimit},
	{"rest until frozen", func(_ *box, ctx context.Context) error { pause(ctx, 1300*time.Millisecond); return nil }},
	{"rest until destroyed", func(_ *box, ctx context.Context) error { pause(ctx, 4*time.Second); return nil }},
	{"rest until packed", func(_ *box, ctx context.Context) error { pause(ctx, 9*time.Second); return nil }},
}

// life is one container from its creation to its end.
func (w *world) life(ctx context.Context, rng *rand.Rand) {
	b := &box{w: w, rng: rng, blob: map[string]bool{}}
	for b.id == "" {
		if ctx.Err() != nil {
			return
		}
		b.try(ctx, "create", func(c *servertest.Client) (err error) {
			b.id, err = c.Create(ctx)
			return err
		})
	}
	for range 6 + rng.IntN(10) {
		if ctx.Err() != nil {
			return
		}
		s := steps[rng.IntN(len(steps))]
		w.report.count("step: " + s.name)
		if err := s.run(b, ctx); err != nil {
			b.fault("lie", "%s: %v", s.name, err)
		}
	}
	b.end(ctx, 3*time.Minute)
}

// end looks whether everything is still there and deletes the container. Trouble passes, so both must succeed before long.
// A life counts as one that kept everything only if nothing was wrong with it from the beginning on.
func (b *box) end(ctx context.Context, limit time.Duration) {
	deadline := time.Now().Add(limit)
	for looked := false; !looked; {
		if ctx.Err() != nil {
			return
		}
		if time.Now().After(deadline) {
			b.fault("lost", "could not be read for %s", limit)
			break
		}
		var err error
		if looked, err = b.look(ctx); err != nil {
			b.fault("lie", "at its end: %v", err)
		}
	}
	for !b.try(ctx, "delete", func(c *servertest.Client) error { return c.Delete(ctx, b.id) }) {
		if ctx.Err() != nil {
			return
		}
		if time.Now().After(deadline) {
			b.fault("lost", "could not be deleted")
			break
		}
	}
	if b.faults == 0 {
		b.w.report.count("containers that lived and kept everything")
	} else {
		b.w.report.count("containers with faults")
	}
}

// fault reports what is wrong with this container.
func (b *box) fault(kind, format string, args ...any) {
	b.faults++
	b.w.report.fault(kind, "container %s, %s", b.id, fmt.Sprintf(format, args...))
}

// try makes one request and says whether it was answered well. A failure must have an explanation: the server was killed,
// or it said that it could not now. It waits a little after a failure.
func (b *box) try(ctx context.Context, what string, request func(*servertest.Client) error) bool {
	c, changed := b.w.current()
	err := request(c)
	if err == nil {
		return true
	}
	status := servertest.Status(err)
	switch {
	case ctx.Err() != nil:
		return false
	case status < 0:
		b.w.report.count("requests cut off by a kill")
		select {
		case <-changed:
		case <-ctx.Done():
		case <-time.After(15 * time.Second):
			b.fault("answer", "%s: %v, and the server was not killed", what, err)
		}
		return false
	case status == http.StatusNotFound && what == "delete":
		return true // the answer of an earlier try was lost
	case status == http.StatusNotFound:
		b.fault("lost", "%s: %v", what, err)
	case status == 429 || status == 529 || status == http.StatusInsufficientStorage:
		b.w.report.count(fmt.Sprintf("answers with status %d", status))
	case b.hears(err.Error()):
	case status == 0:
		b.w.report.count("commands that failed and said so")
	case strings.Contains(err.Error(), "sandbox"):
		b.w.report.count("answers that a sandbox had ended")
	default:
		b.fault("answer", "%s: %s", what, b.w.why(err))
	}
	pause(ctx, 500*time.Millisecond)
	return false
}

// hears looks whether the container's owner is told that files may be lost.
func (b *box) hears(text string) bool {
	if !strings.Contains(text, "may be lost or damaged") {
		return false
	}
	b.told = true
	b.w.report.count("losses that were told")
	return true
}

// append writes a line and syncs nothing itself: an acknowledged command must be enough.
func (b *box) append(ctx context.Context) error {
	b.next++
	text := fmt.Sprintf("%d-%x", b.next, b.rng.Uint64())
	ok := b.try(ctx, "append", func(c *servertest.Client) error {
		_, err := c.Exec(ctx, b.id, "echo "+text+" >> log")
		return err
	})
	b.lines = append(b.lines, line{text, ok})
	return nil
}

// put replaces a file as a whole.
func (b *box) put(ctx context.Context) error {
	content := make([]byte, b.rng.IntN(300_000))
	for i := range content {
		content[i] = byte(b.rng.Uint32())
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	ok := b.try(ctx, "put", func(c *servertest.Client) error {
		_, err := c.Send(ctx, http.MethodPut, "/airlock/v1/containers/"+b.id+"/files/workspace/blob", strings.NewReader(string(content)), "application/octet-stream")
		return err
	})
	if ok {
		clear(b.blob)
	} else if len(b.blob) == 0 {
		b.blob["none"] = true
	}
	b.blob[hash] = true
	return nil
}

func (b *box) read(ctx context.Context) error {
	_, err := b.look(ctx)
	return err
}

// look compares what the container holds with what it must; looked is false if it could not be asked.
func (b *box) look(ctx context.Context) (looked bool, err error) {
	var out string
	looked = b.try(ctx, "read", func(c *servertest.Client) (err error) {
		out, err = c.Exec(ctx, b.id, "cat log 2>/dev/null; echo; test -e blob || echo none; test ! -e blob || sha256sum < blob")
		return err
	})
	if !looked {
		return false, nil
	}
	log, blob, _ := strings.Cut(out, "\n\n")
	if len(b.lines) == 0 || !strings.Contains(out, "\n\n") {
		log, blob = "", strings.TrimPrefix(out, "\n")
	}
	hash := strings.Fields(blob + " ?")[0]
	if b.told {
		b.told, b.lines, b.blob = false, nil, map[string]bool{hash: true}
		for text := range strings.FieldsSeq(log) {
			b.lines = append(b.lines, line{text, true})
		}
	}
	if err := b.wantLines(strings.Fields(log)); err != nil {
		return true, fmt.Errorf("%w in %q", err, out)
	}
	if len(b.blob) == 0 {
		b.blob["none"] = true
	}
	if !b.blob[hash] {
		return true, fmt.Errorf("the file is %s and not one of %v", hash, slices.Collect(maps.Keys(b.blob)))
	}
	// What is there now is there for good.
	b.blob = map[string]bool{hash: true}
	return true, nil
}

// wantLines checks that every sure line is there, in order, and nothing that was never written.
func (b *box) wantLines(have []string) error {
	kept := b.lines[:0:0]
	for _, l := range b.lines {
		switch {
		case len(have) > 0 && have[0] == l.text:
			have = have[1:]
			kept = append(kept, line{l.text, true})
		case l.sure:
			return fmt.Errorf("the acknowledged line %s is missing", l.text)
		default:
			// It may still arrive: whoever was cut off runs on for a moment.
			kept = append(kept, l)
		}
	}
	if len(have) > 0 {
		return fmt.Errorf("lines %v were never written", have)
	}
	b.lines = kept
	return nil
}

func (b *box) setX(ctx context.Context) error {
	b.x = ""
	value := fmt.Sprint(b.rng.Uint32())
	b.try(ctx, "set a variable", func(c *servertest.Client) error {
		r, err := b.cell(ctx, c, "x = "+value)
		if err == nil && r.Code != 0 {
			err = &servertest.AnswerError{Text: r.Stderr}
		}
		if err == nil {
			b.x = value
		}
		return err
	})
	return nil
}

// readX: the variable has its value, or the model is told that variables are lost.
func (b *box) readX(ctx context.Context) error {
	var r cellResult
	ok := b.try(ctx, "read a variable", func(c *servertest.Client) (err error) {
		r, err = b.cell(ctx, c, "print(x)")
		return err
	})
	want := b.x
	b.x = ""
	switch {
	case !ok || want == "":
	case r.Stdout == want+"\n" && r.Code == 0:
		b.x = want
		b.w.report.count("variables that were still there")
	case r.Code != 0 && strings.Contains(r.Stderr, "variables"):
		b.w.report.count("variables lost, and the model was told")
	default:
		return fmt.Errorf("x was %s, print(x) gave %+v", want, r)
	}
	return nil
}

type cellResult struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Code   int    `json:"return_code"`
	Error  string `json:"error_code"`
}

func (b *box) cell(ctx context.Context, c *servertest.Client, code string) (cellResult, error) {
	t, err := c.Ask(ctx, b.id, "```cell\n"+code+"\n```")
	if err != nil {
		return cellResult{}, err
	}
	var block struct {
		Content cellResult `json:"content"`
	}
	if len(t.Results) != 1 {
		return block.Content, &servertest.AnswerError{Text: "the turn had no result: the model said that it could not"}
	}
	if err := json.Unmarshal(t.Results[0], &block); err != nil {
		return block.Content, err
	}
	b.hears(block.Content.Stderr)
	if block.Content.Error != "" {
		return block.Content, &servertest.AnswerError{Text: "the tool answered " + block.Content.Error}
	}
	return block.Content, nil
}

// output: a file that a turn names can be downloaded, and is what the command wrote.
func (b *box) output(ctx context.Context) error {
	word := fmt.Sprintf("out-%x", b.rng.Uint64())
	var got []byte
	ok := b.try(ctx, "output file", func(c *servertest.Client) error {
		t, err := c.Ask(ctx, b.id, "```bash\necho "+word+" > \"$OUTPUT_DIR/out.txt\"\n```")
		if err != nil {
			return err
		}
		if len(t.Files) != 1 {
			return &servertest.AnswerError{Text: fmt.Sprintf("no output file: %s", t.Results)}
		}
		b.hears(fmt.Sprintf("%s", t.Results))
		if got, err = c.Send(ctx, http.MethodGet, "/v1/files/"+t.Files[0]+"/content", nil, ""); err != nil {
			return err
		}
		return c.Call(ctx, http.MethodDelete, "/v1/files/"+t.Files[0], nil, nil)
	})
	if ok && string(got) != word+"\n" {
		return fmt.Errorf("the output file is %q and not %q", got, word)
	}
	return nil
}

// fork: the copy has what the original has, and what is written to the one does not show in the other.
func (b *box) fork(ctx context.Context) error {
	if looked, err := b.look(ctx); !looked || err != nil {
		return err
	}
	copied := &box{w: b.w, rng: b.rng, lines: slices.Clone(b.lines), blob: maps.Clone(b.blob), next: b.next}
	var made struct {
		ID string `json:"id"`
	}
	// One whose answer was cut off stays until it expires.
	if !b.try(ctx, "fork", func(c *servertest.Client) error {
		return c.Call(ctx, http.MethodPost, "/airlock/v1/containers/"+b.id+"/fork", nil, &made)
	}) {
		return nil
	}
	copied.id = made.ID
	if err := copied.append(ctx); err != nil {
		return err
	}
	if _, err := copied.look(ctx); err != nil {
		return fmt.Errorf("the copy %s: %w", copied.id, err)
	}
	if _, err := b.look(ctx); err != nil {
		return fmt.Errorf("after its copy was written: %w", err)
	}
	copied.try(ctx, "delete", func(c *servertest.Client) error { return c.Delete(ctx, copied.id) })
	b.faults += copied.faults
	return nil
}

// ends runs a command and checks how it ended, if it was answered.
func (b *box) ends(ctx context.Context, request map[string]any, want servertest.Exit) error {
	var exit servertest.Exit
	ok := b.try(ctx, "command", func(c *servertest.Client) (err error) {
		_, exit, err = c.Run(ctx, b.id, request)
		return err
	})
	exit.Signal = 0 // how the process died is not what is promised
	if want.TimedOut {
		exit.Code = 0
	}
	if ok && exit != want {
		return fmt.Errorf("%v ended with %+v, want %+v", request, exit, want)
	}
	return nil
}

func (b *box) exitCode(ctx context.Context) error {
	code := b.rng.IntN(100)
	return b.ends(ctx, map[string]any{"command": fmt.Sprintf("exit %d", code)}, servertest.Exit{Code: code})
}

func (b *box) timeLimit(ctx context.Context) error {
	return b.ends(ctx, map[string]any{"command": "sleep 60", "timeout_seconds": 1}, servertest.Exit{TimedOut: true})
}

func (b *box) memoryLimit(ctx context.Context) error {
	return b.ends(ctx, map[string]any{"argv": []string{"python3", "-c", "bytearray(700 << 20)"}}, servertest.Exit{Code: 137, OOM: true})
}
