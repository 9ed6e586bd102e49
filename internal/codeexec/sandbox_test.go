package codeexec_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a container with a real sandbox and a turn in it.
type place struct {
	*codeexec.Runner
	env *containertest.Env
}

func newPlace(t *testing.T, v codeexec.Version) *place {
	t.Helper()
	return newPlaceOn(t, v, "native")
}

func newPlaceOn(t *testing.T, v codeexec.Version, driver string) *place {
	t.Helper()
	env := containertest.NewOn(t, dbtest.SQLite(t), driver)
	lease, err := env.Acquire(t.Context(), env.Caller, "")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{Runner: &codeexec.Runner{Lease: lease, Version: v}, env: env}
	t.Cleanup(func() { p.Lease.Release(context.WithoutCancel(t.Context())) })
	return p
}

// call runs one call and returns the content of its result.
func (p *place) call(t *testing.T, tool string, pairs ...any) *claude.Node {
	t.Helper()
	b, err := p.Run(t.Context(), codeexec.Call{ID: wire.NewID("srvtoolu"), Name: tool, Input: claude.NewObject(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	return b.Result.Get("content")
}

func (p *place) bash(t *testing.T, command string) *claude.Node {
	t.Helper()
	return p.call(t, codeexec.ToolBash, "command", command)
}

func (p *place) cell(t *testing.T, code string) *claude.Node {
	t.Helper()
	return p.call(t, codeexec.ToolCell, "code", code)
}

// want checks the output of a bash call or cell.
func want(t *testing.T, c *claude.Node, stdout, stderr, code string) {
	t.Helper()
	if c.Get("stdout").Str() != stdout || c.Get("stderr").Str() != stderr || c.Get("return_code").Text() != code {
		t.Errorf("got %s, want stdout %q, stderr %q, code %s", c.Text(), stdout, stderr, code)
	}
}

func TestCase59ReadersOfStdinSeeItsEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	want(t, p.bash(t, "cat > f.py; read x; echo code $?; wc -c < f.py"), "code 1\n0\n", "", "0")
	if c := p.bash(t, "python3 -c 'input()'"); !strings.Contains(c.Get("stderr").Str(), "EOFError") || c.Get("return_code").Text() != "1" {
		t.Errorf("input() gave %s", c.Text())
	}
}

func TestCase54HereDocumentsOfAnySize(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	text := strings.Repeat("line with 'quotes' and $vars\n", 20_000)
	want(t, p.bash(t, "cat > f <<'EOF'\n"+text+"EOF\nwc -c < f"), "580000\n", "", "0")
	want(t, p.bash(t, "pwd"), "/workspace\n", "", "0")
}

func TestCase51BackgroundProcessesDoNotHoldACall(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	for _, command := range []string{"echo hi; sleep 300 &", "setsid sleep 300 & echo hi", "(sleep 300 &) ; echo hi", "setsid setsid sh -c 'sleep 300; echo late' & disown; echo hi"} {
		begin := time.Now()
		want(t, p.bash(t, command), "hi\n", "", "0")
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("%s took %s", command, d)
		}
	}
	want(t, p.bash(t, "grep -l '^sleep' /proc/[0-9]*/comm 2>/dev/null | wc -l"), "0\n", "", "0")
}

func TestCase56TimeoutAnswersInTimeWithWhatWasSaid(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	p.Limits.Command = time.Second
	begin := time.Now()
	want(t, p.bash(t, "printf partial; sleep 300"), "partial", "timed out after 1 s\n", "124")
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("the answer took %s", d)
	}
	p.Limits.Command = 0
	want(t, p.bash(t, "echo next"), "next\n", "", "0")
}

func TestCase60PromptsFailAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	want(t, p.bash(t, "(: < /dev/tty) 2>/dev/null || echo no terminal; echo $GIT_TERMINAL_PROMPT $DEBIAN_FRONTEND $PAGER $TERM"), "no terminal\n0 noninteractive cat dumb\n", "", "0")
}

func TestCase61And62OutputBytesNeverFail(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	want(t, p.bash(t, `printf 'a\0b\377'`), "a\uFFFDb\uFFFD", "", "0")
	if c := p.bash(t, "head -c 5000 /dev/urandom"); !utf8.ValidString(c.Get("stdout").Str()) || strings.Contains(c.Get("stdout").Str(), "\x00") {
		t.Error("random bytes gave text that is no UTF-8")
	}
	want(t, p.bash(t, `for i in $(seq 3000); do printf '日本'; done | wc -m`), "6000\n", "", "0")
}

func TestCase63EndlessOutputIsCutAndCounted(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	c := p.bash(t, "echo first; yes | head -c 20000000; echo last")
	out := c.Get("stdout").Str()
	if n := utf8.RuneCountInString(out); n > codeexec.MaxCharacters || !strings.HasPrefix(out, "first\ny\n") || !strings.HasSuffix(out, "y\nlast\n") || c.Get("return_code").Text() != "0" {
		t.Errorf("%d characters, code %s", n, c.Get("return_code").Text())
	}
	if strings.Count(out, "bytes dropped") != 1 {
		t.Errorf("%d lines tell what was dropped", strings.Count(out, "bytes dropped"))
	}
}

func TestMemoryLimitIsSaid(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	c := p.bash(t, "python3 -c 'x = bytearray(1 << 30)'")
	if c.Get("return_code").Text() != "137" || !strings.Contains(c.Get("stderr").Str(), "out of memory") {
		t.Errorf("got %s", c.Text())
	}
	want(t, p.bash(t, "echo alive"), "alive\n", "", "0")
}

func TestOutputFolderIsNewForEachCallAndItsTopLevelIsTaken(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20260120)
	c := p.bash(t, `cd "$OUTPUT_DIR" && ls -A && : > zero && echo b > 'größe 日.txt' && mkdir d && echo x > d/in && ln -s /etc/passwd link; exit 7`)
	files := c.Get("content").Elems()
	if len(files) != 2 || c.Get("return_code").Text() != "7" || c.Get("stdout").Str() != "" {
		t.Fatalf("got %s", c.Text())
	}
	var names []string
	for _, f := range files {
		meta, err := p.env.Files.Get(t.Context(), p.env.Caller, fileID(f.Get("file_id").Str()))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, meta.Filename)
	}
	if got := strings.Join(names, " "); got != "größe 日.txt zero" {
		t.Errorf("files %q", got)
	}
	for _, skipped := range []string{`"d"`, `"link"`} {
		if !strings.Contains(c.Get("stderr").Str(), skipped) {
			t.Errorf("stderr %q does not name %s", c.Get("stderr").Str(), skipped)
		}
	}
	want(t, p.bash(t, `ls -A "$OUTPUT_DIR"`), "", "", "0")
	if c := p.cell(t, "import os; open(os.environ['OUTPUT_DIR'] + '/from cell.txt', 'w').write('x')\nNone"); len(c.Get("content").Elems()) != 1 || c.Get("content").Items[0].Type() != "code_execution_output" {
		t.Errorf("a cell gave %s", c.Text())
	}
}

func TestCellsKeepStateAndSayWhenItIsLost(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20260120)
	want(t, p.cell(t, "import asyncio\nx = 20\nasync def f(): return x + 1\nawait f()"), "21\n", "", "0")
	want(t, p.cell(t, "print(x + asyncio.run(f()))"), "41\n", "", "0")
	if c := p.cell(t, "1/0"); c.Get("return_code").Text() != "1" || !strings.Contains(c.Get("stderr").Str(), "ZeroDivisionError") {
		t.Errorf("an exception gave %s", c.Text())
	}
	want(t, p.cell(t, "x = 5"), "", "", "0")
	// The sandbox dies; the container and its files live on.
	sb, err := p.Lease.Sandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := p.cell(t, "print('x' in globals())")
	if c.Get("stdout").Str() != "False\n" || !strings.Contains(c.Get("stderr").Str(), "lost") {
		t.Errorf("after the loss: %s", c.Text())
	}
	want(t, p.cell(t, "print(1)"), "1\n", "", "0")
}

// next ends the turn, lets time go by, and begins the next one.
func (p *place) next(t *testing.T, meanwhile ...time.Duration) {
	t.Helper()
	id := p.Lease.Container().ID
	p.Lease.Release(t.Context())
	for _, d := range meanwhile {
		p.env.Clock.Add(d)
		p.env.SweepIdle(t.Context())
	}
	var err error
	if p.Lease, err = p.env.Acquire(t.Context(), p.env.Caller, id); err != nil {
		t.Fatal(err)
	}
}

// What native sandboxes lose the model is told; those of gVisor go on where they were, as often as one likes.
func TestVariablesOutliveTheSandboxOrAreToldLost(t *testing.T) {
	t.Parallel()
	for _, driver := range containertest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			p := newPlaceOn(t, codeexec.V20260120, driver)
			p.env.Preload = []string{"json"}
			want(t, p.cell(t, "import json, random\nx = 1\nrandom.seed(7)\nf = open('data', 'w+')"), "", "", "0")
			want(t, p.cell(t, "y = [random.random() for _ in range(3)]"), "", "", "0")
			for n := range 3 {
				p.next(t, 31*time.Second, 10*time.Minute) // frozen, destroyed
				if p.env.LiveCount() != 0 {
					t.Fatal("the sandbox lives")
				}
				c := p.cell(t, "print(x); x += 1; y += [random.random()]; f.write('%d' % x); f.flush(); print(open('data').read())")
				if driver == "gvisor" {
					want(t, c, []string{"1\n2\n", "2\n23\n", "3\n234\n"}[n], "", "0")
					continue
				}
				if told := c.Get("stderr").Str(); !strings.Contains(told, "variables and imports of earlier cells are lost") || !strings.Contains(told, "NameError") {
					t.Errorf("the model is told %q", told)
				}
				want(t, p.cell(t, "import random; x = 1; y = []; f = open('data', 'w+')"), "", "", "0")
			}
			if driver == "gvisor" {
				// A seeded generator goes on, too: nothing is drawn twice, and nothing is reseeded behind the code's back.
				want(t, p.cell(t, "random.seed(7); print(y == [random.random() for _ in range(6)])"), "True\n", "", "0")
			}
		})
	}
}

func TestCellTimeLimit(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20260521)
	p.Limits.Cell = time.Second
	want(t, p.cell(t, "kept = 1"), "", "", "0")
	c := p.cell(t, "import time\nprint('step', flush=True)\ntime.sleep(300)")
	if c.Get("stdout").Str() != "step\n" || c.Get("return_code").Text() != "124" || !strings.Contains(c.Get("stderr").Str(), "detection_timeout") {
		t.Errorf("got %s", c.Text())
	}
	want(t, p.cell(t, "print(kept)"), "1\n", "", "0")
}

func TestFreshCellsShareNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250522)
	want(t, p.cell(t, "x = 1; open('f', 'w').write('kept')"), "4\n", "", "0")
	want(t, p.cell(t, "print('x' in globals(), open('f').read())"), "False kept\n", "", "0")
}

func TestEditorWorksInsideTheSandbox(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	edit := func(pairs ...any) *claude.Node { return p.call(t, codeexec.ToolEditor, pairs...) }
	if c := edit("command", "create", "path", "a/b/c.txt", "file_text", "one\ntwo\n"); c.Get("is_file_update").Text() != "false" {
		t.Errorf("create gave %s", c.Text())
	}
	want(t, p.bash(t, "stat -c '%u %a' a/b/c.txt; ln -s /etc/shadow s; ln -s a/b/c.txt l; mkdir .hid; chmod 750 a/b/c.txt"), "1000 644\n", "", "0")
	if c := edit("command", "str_replace", "path", "l", "old_str", "two", "new_str", "2"); c.Type() != "text_editor_code_execution_str_replace_result" {
		t.Errorf("str_replace gave %s", c.Text())
	}
	want(t, p.bash(t, "cat a/b/c.txt; stat -c %a a/b/c.txt"), "one\n2\n750\n", "", "0")
	for path, code := range map[string]string{"s": "invalid_tool_input", "/nothing": "file_not_found", "/proc/1/environ": "invalid_tool_input", "a/b/c.txt/x": "invalid_tool_input", "/dev/zero": "invalid_tool_input"} {
		if c := edit("command", "view", "path", path); c.Get("error_code").Str() != code || c.Get("error_message").Str() == "" {
			t.Errorf("view %s gave %s, want %s", path, c.Text(), code)
		}
	}
	if c := edit("command", "create", "path", "$INPUT_DIR/x", "file_text", "x"); c.Get("error_code").Str() != "invalid_tool_input" {
		t.Errorf("create in the input folder gave %s", c.Text())
	}
	if c := edit("command", "view", "path", "."); !strings.Contains(c.Get("content").Str(), "/workspace/a/b/") || strings.Contains(c.Get("content").Str(), ".hid") || strings.Contains(c.Get("content").Str(), "c.txt") {
		t.Errorf("the listing is %s", c.Text())
	}
}

func TestInputsAreReadOnlyToTheCode(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	f := p.env.Upload(t, p.env.Caller, "data 1.csv", "a,b\n")
	path, err := p.Lease.AddFile(t.Context(), p.env.Caller, f)
	if err != nil {
		t.Fatal(err)
	}
	if path != "/files/input/data 1.csv" {
		t.Errorf("path %q", path)
	}
	want(t, p.bash(t, `cat "$INPUT_DIR/data 1.csv"; (echo x >> "$INPUT_DIR/data 1.csv") 2>/dev/null || echo refused; (touch "$INPUT_DIR/n") 2>/dev/null || echo refused`), "a,b\nrefused\nrefused\n", "", "0")
}

func TestCase66CancelEndsEveryProcessOfTheCall(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	want(t, p.bash(t, "mkfifo began"), "", "", "0")
	left := errors.New("client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, codeexec.Call{ID: wire.NewID("srvtoolu"), Name: codeexec.ToolBash, Input: claude.NewObject("command", "setsid sleep 999 & sleep 999 & echo x > began; wait")})
		done <- err
	}()
	sb, err := p.Lease.Sandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(t.Context(), shell("cat began")); err != nil {
		t.Fatal(err)
	}
	cancel(left)
	if err := <-done; !errors.Is(err, left) {
		t.Errorf("a cancelled call gave %v", err)
	}
	want(t, p.bash(t, "grep -l '^sleep' /proc/[0-9]*/comm 2>/dev/null | wc -l"), "0\n", "", "0")
}

func TestGoneSandboxIsUnavailableAndTheNextCallWorks(t *testing.T) {
	t.Parallel()
	p := newPlace(t, codeexec.V20250825)
	want(t, p.bash(t, "echo kept > f; mkfifo began"), "", "", "0")
	done := make(chan *claude.Node, 1)
	go func() { done <- p.bash(t, "echo x > began; sleep 300") }()
	sb, err := p.Lease.Sandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(t.Context(), shell("cat began")); err != nil {
		t.Fatal(err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := <-done; c.Get("error_code").Str() != "unavailable" {
		t.Errorf("a call whose sandbox died gave %s", c.Text())
	}
	want(t, p.bash(t, "cat f"), "kept\n", "", "0")
}

func fileID(s string) file.ID { return file.ID(s) }

func shell(s string) sandbox.Command { return sandbox.Command{Shell: s} }
