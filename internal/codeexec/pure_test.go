package codeexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// broken is a place in which things go wrong as told; files live in a map.
type broken struct {
	machineErr, execErr, exportErr error
	result                         sandbox.CellResult
	stdout, stderr                 []byte
	exported, notes                []string
	lost                           bool
	holds                          []bool
	files                          map[string][]byte
	command                        sandbox.Command
	cell                           sandbox.Cell
	during                         func(context.Context) error
	dirs                           []string
	unsaved                        string
}

func (b *broken) Machine(context.Context) (machine, error) { return b, b.machineErr }

func (b *broken) OutputDir(_ context.Context, id string) (string, error) {
	b.dirs = append(b.dirs, id)
	return "/files/output/" + id, nil
}

func (b *broken) Export(context.Context, string) ([]string, []string, error) {
	return b.exported, b.notes, b.exportErr
}

func (b *broken) NoteREPL(_ context.Context, holds bool) error {
	b.holds = append(b.holds, holds)
	return nil
}

func (b *broken) REPLLost() bool { return b.lost }

func (b *broken) Unsaved(context.Context) string { return b.unsaved }

func (b *broken) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	b.command = c
	return b.result.Result, b.write(ctx, c.Stdout, c.Stderr)
}

func (b *broken) Cell(ctx context.Context, c sandbox.Cell) (sandbox.CellResult, error) {
	b.cell = c
	return b.result, b.write(ctx, c.Stdout, c.Stderr)
}

func (b *broken) ID() string { return "container_01broken" }

func (b *broken) Owner() any { return "owner" }

func (b *broken) EndParked(context.Context, error) error { return nil }

func (b *broken) Begin(context.Context, sandbox.Cell, func()) (running, error) {
	return nil, b.machineErr
}

func (b *broken) Park(running, time.Duration, bool, func(context.Context, place)) {}

func (b *broken) Resume(context.Context, running) error { return nil }

func (b *broken) write(ctx context.Context, stdout, stderr io.Writer) error {
	_, err1 := stdout.Write(b.stdout)
	_, err2 := stderr.Write(b.stderr)
	if b.during != nil {
		return b.during(ctx)
	}
	return errors.Join(err1, err2, b.execErr)
}

func (b *broken) Put(_ context.Context, p string, r io.Reader, _ guest.PutOptions) error {
	if strings.HasPrefix(p, "/files/input/") {
		return &guest.Error{Op: "put", Path: p, Err: guest.ErrPermission}
	}
	data, err := io.ReadAll(r)
	b.files[p] = data
	return err
}

func (b *broken) Get(_ context.Context, p string, o guest.GetOptions) (io.ReadCloser, sandbox.FileInfo, error) {
	data, ok := b.files[p]
	if !ok {
		return nil, sandbox.FileInfo{}, &guest.Error{Op: "get", Path: p, Err: guest.ErrNotExist}
	}
	if o.Max > 0 && int64(len(data)) > o.Max {
		return nil, sandbox.FileInfo{}, &guest.Error{Op: "get", Path: p, Err: guest.ErrTooLarge}
	}
	return io.NopCloser(strings.NewReader(string(data))), sandbox.FileInfo{}, nil
}

func (b *broken) Stat(_ context.Context, p string, _ guest.StatOptions) (sandbox.FileInfo, error) {
	if _, ok := b.files[p]; ok {
		return sandbox.FileInfo{Path: p, Type: guest.TypeFile}, nil
	}
	for name := range b.files {
		if strings.HasPrefix(name, p+"/") {
			return sandbox.FileInfo{Path: p, Type: guest.TypeDir}, nil
		}
	}
	return sandbox.FileInfo{}, &guest.Error{Op: "stat", Path: p, Err: guest.ErrNotExist}
}

func (b *broken) List(_ context.Context, dir string, _, _ int) ([]sandbox.FileInfo, error) {
	out := []sandbox.FileInfo{{Path: dir + "/sub", Type: guest.TypeDir}}
	for name := range b.files {
		out = append(out, sandbox.FileInfo{Path: name, Type: guest.TypeFile})
	}
	return out, nil
}

func call(name, input string) Call {
	n, err := claude.Parse([]byte(input))
	if err != nil {
		panic(err)
	}
	return Call{ID: "srvtoolu_01abc", Name: name, Input: n}
}

func runOn(t *testing.T, b *broken, v Version, c Call) *claude.Node {
	t.Helper()
	r := &Runner{Version: v}
	step, err := r.run(t.Context(), b, c)
	if err != nil {
		t.Fatal(err)
	}
	block := step.Result
	if block.Type() != c.Name+"_tool_result" || block.Get("tool_use_id").Str() != c.ID {
		t.Errorf("block %s", block.Text())
	}
	return block.Get("content")
}

func TestOfferedSubTools(t *testing.T) {
	t.Parallel()
	lib := Library{Python: "3.13", Packages: []string{"pandas"}}
	for v, want := range map[Version][]string{
		V20250522: {ToolCell}, V20250825: {ToolBash, ToolEditor}, V20260120: {ToolBash, ToolEditor, ToolCell}, V20260521: {ToolBash, ToolEditor, ToolCell},
	} {
		var got []string
		all := ""
		for _, n := range (Offer{Version: v}).Tools(lib, Limits{}) {
			got = append(got, n.Get("name").Str())
			all += n.Get("description").Str()
			if !json.Valid(n.Get("input_schema").Bytes()) || n.At("input_schema", "type").Str() != "object" {
				t.Errorf("%s: schema %s", v, n.Get("input_schema").Text())
			}
		}
		if d := cmp.Diff(got, want); d != "" {
			t.Errorf("%s (-got +want):\n%s", v, d)
		}
		for _, w := range []string{"INPUT_DIR", "OUTPUT_DIR", "without any network", "pandas", "Python 3.13"} {
			if !strings.Contains(all, w) {
				t.Errorf("%s does not tell %q", v, w)
			}
		}
		if tells := strings.Contains(all, "90 seconds"); tells != (v == V20260521) {
			t.Errorf("%s tells the limit of a cell: %v", v, tells)
		}
	}
}

// What the model is told, what the sandbox is asked for and what a result says come from one setting.
func TestLimitsFollowTheSetting(t *testing.T) {
	t.Parallel()
	limits := LimitsFor(60 * time.Second)
	if want := (Limits{60 * time.Second, 90 * time.Second, 60 * time.Second}); limits != want {
		t.Errorf("limits %+v, want %+v", limits, want)
	}
	if got := LimitsFor(time.Hour); got.Cell != 90*time.Second || got.Call <= time.Hour {
		t.Errorf("limits of an hour %+v", got)
	}
	told := ""
	for _, n := range (Offer{Version: V20260521}).Tools(Library{}, limits) {
		told += n.Get("description").Str()
	}
	if !strings.Contains(told, "A command may run for 60 seconds.") || !strings.Contains(told, "interrupted after 60 seconds") {
		t.Errorf("the model is told %s", told)
	}
	b := &broken{}
	b.result.TimedOut = true
	r := &Runner{Version: V20260521, Limits: limits}
	for name, want := range map[string]string{ToolBash: "timed out after 60 s\n", ToolCell: "ran longer than 60 s "} {
		step, err := r.run(t.Context(), b, call(name, `{"command":"x","code":"x"}`))
		block := step.Result
		if err != nil || !strings.Contains(block.At("content", "stderr").Str(), want) {
			t.Errorf("%s gave %s, %v", name, block.Text(), err)
		}
	}
	if b.command.Timeout != time.Minute || b.cell.Timeout != time.Minute {
		t.Errorf("the sandbox was asked for %v and %v", b.command.Timeout, b.cell.Timeout)
	}
}

func TestBashResultShape(t *testing.T) {
	t.Parallel()
	b := &broken{stdout: []byte("out"), stderr: []byte("err"), exported: []string{"file_01x"}}
	b.result.Code = 3
	got := runOn(t, b, V20250825, call(ToolBash, `{"command":"x","type":"bash_code_execution"}`)).Text()
	want := `{"type":"bash_code_execution_result","stdout":"out","stderr":"err","return_code":3,"content":[{"type":"bash_code_execution_output","file_id":"file_01x"}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b.command.Shell != "x" || b.command.Env["OUTPUT_DIR"] != "/files/output/srvtoolu_01abc" || b.command.Keep || b.command.Timeout != 300*time.Second {
		t.Errorf("command %+v", b.command)
	}
}

func TestCellResultShape(t *testing.T) {
	t.Parallel()
	b := &broken{stdout: []byte("1\n"), exported: []string{"file_01x"}}
	b.result.Holds = true
	got := runOn(t, b, V20260521, call(ToolCell, `{"code":"x"}`)).Text()
	want := `{"type":"code_execution_result","stdout":"1\n","stderr":"","return_code":0,"content":[{"type":"code_execution_output","file_id":"file_01x"}]}`
	if got != want || b.cell.Fresh || b.cell.Timeout != 90*time.Second {
		t.Errorf("got  %s\nwant %s (%+v)", got, want, b.cell)
	}
	if d := cmp.Diff(b.holds, []bool{true}); d != "" {
		t.Errorf("state noted (-got +want):\n%s", d)
	}
	runOn(t, b, V20250522, call(ToolCell, `{"code":"x"}`))
	if !b.cell.Fresh || len(b.holds) != 1 {
		t.Errorf("20250522 ran in a shared interpreter: %+v", b.cell)
	}
}

func TestLostInterpreterIsTold(t *testing.T) {
	t.Parallel()
	b := &broken{stderr: []byte("own"), lost: true}
	b.result.Started = true
	if got := runOn(t, b, V20260120, call(ToolCell, `{"code":"x"}`)).Get("stderr").Str(); got != noteREPLLost+"\nown" {
		t.Errorf("stderr = %q", got)
	}
	// What counts next time is what is there after the cell, whatever was lost before it.
	b = &broken{}
	b.result.Started, b.result.StateLost = true, true
	runOn(t, b, V20260120, call(ToolCell, `{"code":"x"}`))
	b.result.Holds = true
	runOn(t, b, V20260120, call(ToolCell, `{"code":"x"}`))
	if d := cmp.Diff(b.holds, []bool{false, true}); d != "" {
		t.Errorf("state noted (-got +want):\n%s", d)
	}
}

func TestCase57TimeoutKeepsPartialOutput(t *testing.T) {
	t.Parallel()
	b := &broken{stdout: []byte("partial"), stderr: []byte("warn")}
	b.result.TimedOut, b.result.Code, b.result.Signal = true, 143, 15
	c := runOn(t, b, V20250825, call(ToolBash, `{"command":"x"}`))
	if c.Get("stdout").Str() != "partial" || c.Get("stderr").Str() != "warn\ntimed out after 300 s\n" || c.Get("return_code").Text() != "124" {
		t.Errorf("got %s", c.Text())
	}
	b.notes = []string{"not exported: x"}
	if got := runOn(t, b, V20250825, call(ToolBash, `{"command":"x"}`)).Get("stderr").Str(); !strings.HasSuffix(got, "not exported: x\ntimed out after 300 s\n") {
		t.Errorf("stderr = %q", got)
	}
}

func TestCase68TimeoutMemorySignalAndExitDiffer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		res  sandbox.Result
		code string
		line string
	}{
		"exit 137": {sandbox.Result{Code: 137}, "137", ""},
		"signal":   {sandbox.Result{Code: 137, Signal: 9}, "137", ""},
		"memory":   {sandbox.Result{Code: 137, Signal: 9, OOM: true}, "137", noteOOM + "\n"},
		"timeout":  {sandbox.Result{Code: 137, Signal: 9, TimedOut: true}, "124", "timed out after 300 s\n"},
	} {
		b := &broken{}
		b.result.Result = tt.res
		c := runOn(t, b, V20250825, call(ToolBash, `{"command":"x"}`))
		if c.Get("return_code").Text() != tt.code || c.Get("stderr").Str() != tt.line {
			t.Errorf("%s: %s", name, c.Text())
		}
	}
}

func TestCellTimeoutIsANormalResult(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"", "detection_timeout: said by the guest\n"} {
		b := &broken{stderr: []byte(said)}
		b.result.TimedOut = true
		c := runOn(t, b, V20260120, call(ToolCell, `{"code":"x"}`))
		if n := strings.Count(c.Get("stderr").Str(), "detection_timeout"); n != 1 || c.Get("return_code").Text() != "124" || c.Type() != "code_execution_result" {
			t.Errorf("%q gave %s", said, c.Text())
		}
	}
}

func TestErrorCodes(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("sandbox x: %w", sandbox.ErrGone)
	tests := []struct {
		name string
		b    *broken
		v    Version
		c    Call
		want string
	}{
		{"no JSON", &broken{}, V20250825, Call{ID: "srvtoolu_01abc", Name: ToolBash}, `bash_code_execution_tool_result_error invalid_tool_input`},
		{"editor: no JSON", &broken{}, V20250825, Call{ID: "srvtoolu_01abc", Name: ToolEditor}, `text_editor_code_execution_tool_result_error invalid_tool_input input: it is no JSON object.`},
		{"no command", &broken{}, V20250825, call(ToolBash, `{}`), `bash_code_execution_tool_result_error invalid_tool_input`},
		{"command of another type", &broken{}, V20250825, call(ToolBash, `{"command":1}`), `bash_code_execution_tool_result_error invalid_tool_input`},
		{"NUL", &broken{}, V20250825, call(ToolBash, `{"command":"a\u0000"}`), `bash_code_execution_tool_result_error invalid_tool_input`},
		{"no code", &broken{}, V20260120, call(ToolCell, `{"command":"x"}`), `code_execution_tool_result_error invalid_tool_input`},
		{"cells are not offered", &broken{}, V20250825, call(ToolCell, `{"code":"x"}`), `code_execution_tool_result_error invalid_tool_input`},
		{"no sandbox", &broken{machineErr: sandbox.ErrCapacity}, V20250825, call(ToolBash, `{"command":"x"}`), `bash_code_execution_tool_result_error unavailable`},
		{"rate limit", &broken{machineErr: wire.RateLimited(time.Second, "slow")}, V20250825, call(ToolBash, `{"command":"x"}`), `bash_code_execution_tool_result_error too_many_requests`},
		{"sandbox died", &broken{execErr: gone}, V20250825, call(ToolBash, `{"command":"x"}`), `bash_code_execution_tool_result_error unavailable`},
		{"killed after its limit", &broken{execErr: fmt.Errorf("%w: %w", sandbox.ErrTimeout, sandbox.ErrGone)}, V20250825, call(ToolBash, `{"command":"x"}`), `bash_code_execution_tool_result_error execution_time_exceeded`},
		{"guest does not answer", &broken{execErr: fmt.Errorf("%w: %w", guest.ErrGone, os.ErrDeadlineExceeded)}, V20260120, call(ToolCell, `{"code":"x"}`), `code_execution_tool_result_error execution_time_exceeded`},
		{"script too large", &broken{execErr: guest.ErrTooLarge}, V20250825, call(ToolBash, `{"command":"x"}`), `bash_code_execution_tool_result_error invalid_tool_input`},
		{"export failed", &broken{exportErr: errors.New("disk")}, V20250825, call(ToolBash, `{"command":"x"}`), `bash_code_execution_tool_result_error unavailable`},
		{"editor: missing file", &broken{}, V20250825, call(ToolEditor, `{"command":"view","path":"/x"}`), `text_editor_code_execution_tool_result_error file_not_found no such file: /x`},
		{"editor: undo", &broken{}, V20250825, call(ToolEditor, `{"command":"undo_edit","path":"/x"}`), `text_editor_code_execution_tool_result_error invalid_tool_input command: view, create or str_replace is required.`},
		{"editor: no path", &broken{}, V20250825, call(ToolEditor, `{"command":"view"}`), `text_editor_code_execution_tool_result_error invalid_tool_input path: a string is required.`},
		{"editor: no sandbox", &broken{machineErr: errors.New("host path /var/secret")}, V20250825, call(ToolEditor, `{"command":"view","path":"/x"}`), `text_editor_code_execution_tool_result_error unavailable The sandbox is not available.`},
		{"editor: input folder", &broken{files: map[string][]byte{}}, V20250825, call(ToolEditor, `{"command":"create","path":"$INPUT_DIR/x"}`), `text_editor_code_execution_tool_result_error invalid_tool_input permission denied: /files/input/x cannot be read or written by the code.`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := runOn(t, tt.b, tt.v, tt.c)
			got := strings.TrimSpace(c.Type() + " " + c.Get("error_code").Str() + " " + c.Get("error_message").Str())
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestCallLimitIsAnErrorAndClientGoneIsNot(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	r := &Runner{Version: V20250825, Limits: Limits{Call: time.Millisecond}}
	step, err := r.run(t.Context(), &broken{during: wait}, call(ToolBash, `{"command":"x"}`))
	block := step.Result
	if err != nil || block.At("content", "error_code").Str() != "execution_time_exceeded" {
		t.Errorf("gave %v %v", block, err)
	}
	left := errors.New("client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if step, err := (&Runner{Version: V20250825}).run(ctx, &broken{during: wait}, call(ToolBash, `{"command":"x"}`)); !errors.Is(err, left) || step.Result != nil {
		t.Errorf("gave %v %v", block, err)
	}
}

func TestOddCallIDsGetAnotherFolder(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "../../etc", "a b", strings.Repeat("x", 200)} {
		b := &broken{}
		c := call(ToolBash, `{"command":"x"}`)
		c.ID = id
		runOn(t, b, V20250825, c)
		if got := b.dirs[0]; got == id || path.Base(got) != got || len(got) > 100 {
			t.Errorf("call id %q has the folder %q", id, got)
		}
	}
}

func TestCase61NULBecomesAReplacementCharacter(t *testing.T) {
	t.Parallel()
	if got := decode([]byte("a\x00b")); got != "a\uFFFDb" {
		t.Errorf("got %q", got)
	}
	if got := decode([]byte("\xed\xa0\x80")); strings.Trim(got, "\uFFFD") != "" || got == "" {
		t.Errorf("a lone surrogate gave %q", got)
	}
}

func TestCase62BytesThatAreNoUTF8NeverFail(t *testing.T) {
	t.Parallel()
	all := make([]byte, 0, 512)
	for i := range 512 {
		all = append(all, byte(i*7))
	}
	if got := decode(all); !utf8.ValidString(got) {
		t.Errorf("not UTF-8: %q", got)
	}
	// A character that two reads split is whole again.
	var c capture
	s := strings.Repeat("日本", 3000)
	for i := 0; i < len(s); i += 4096 {
		if _, err := c.Write([]byte(s[i:min(i+4096, len(s))])); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.text(0); got != s {
		t.Error("characters were damaged at the borders of reads")
	}
}

func TestCase63LongOutputKeepsHeadAndTailAndCountsTheRest(t *testing.T) {
	t.Parallel()
	b := []byte("HEAD" + strings.Repeat("é", 300_000) + "TAIL")
	got := clip(b, 0)
	if n := utf8.RuneCountInString(got); n > MaxCharacters || !strings.HasPrefix(got, "HEADé") || !strings.HasSuffix(got, "éTAIL") || !utf8.ValidString(got) {
		t.Errorf("%d characters, %q ... %q", n, got[:8], got[len(got)-8:])
	}
	var said int
	i := strings.Index(got, "\n... ")
	if _, err := fmt.Sscanf(got[i:], "\n... %d bytes dropped ...\n", &said); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("\n... %d bytes dropped ...\n", said)
	if kept := len(got) - len(line); kept+said != len(b) {
		t.Errorf("kept %d and dropped %d of %d bytes", kept, said, len(b))
	}
	// What the guest dropped counts too, and its own line is gone.
	mark := "\n... 5000000 bytes dropped ...\n"
	got = clip([]byte(strings.Repeat("a", 500_000)+mark+strings.Repeat("b", 200_000)), 5_000_000)
	i = strings.Index(got, "\n... ")
	if _, err := fmt.Sscanf(got[i:], "\n... %d bytes dropped ...\n", &said); err != nil || strings.Contains(got, mark) {
		t.Fatal(err)
	}
	if kept := len(got) - len(fmt.Sprintf("\n... %d bytes dropped ...\n", said)); kept+said != 5_700_000 {
		t.Errorf("kept %d and dropped %d of 5700000 bytes", kept, said)
	}
	if s := strings.Repeat("é", MaxCharacters-noteRoom); clip([]byte(s), 0) != s {
		t.Error("an output within the limit was cut")
	}
}

func TestStreamsStayWithinTheirLimitWithAllNotes(t *testing.T) {
	t.Parallel()
	b := &broken{stderr: []byte(strings.Repeat("é", 200_000)), lost: true}
	b.result.TimedOut, b.result.Started = true, true
	for i := range 30 {
		b.notes = append(b.notes, fmt.Sprintf("not exported: %d %s", i, strings.Repeat("日", 300)))
	}
	for _, tt := range []struct{ tool, last string }{{ToolBash, "timed out after 300 s\n"}, {ToolCell, "was interrupted\n"}} {
		got := runOn(t, b, V20260120, call(tt.tool, `{"command":"x","code":"x"}`)).Get("stderr").Str()
		if n := utf8.RuneCountInString(got); n > MaxCharacters || n < MaxCharacters-1000 {
			t.Errorf("%s: %d characters", tt.tool, n)
		}
		if !strings.Contains(got, "not exported: 0 ") || !strings.Contains(got, " more notes\n") || !strings.HasSuffix(got, tt.last) {
			t.Errorf("%s ends with %q", tt.tool, got[len(got)-200:])
		}
	}
}

func TestCase08CanonicalInput(t *testing.T) {
	t.Parallel()
	got := Canonical(ToolEditor, call(ToolEditor, `{"type":"x","new_str":"\u00e9","command":"str_replace","old_str":"a","path":"\/p"}`).Input).Text()
	if want := `{"command":"str_replace","path":"/p","old_str":"a","new_str":"é"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := Canonical(ToolBash, nil).Text(); got != `{}` {
		t.Errorf("no input gave %s", got)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a.txt": "/workspace/a.txt", "/x/../y": "/y", "$INPUT_DIR/a b.csv": "/files/input/a b.csv", "${INPUT_DIR}/x": "/files/input/x",
		"~/x": "/workspace/x", "$HOME": "/workspace", "/tmp/$": "/tmp/$", "/tmp/$1": "/tmp/$1", "../../etc/passwd": "/etc/passwd", "/a${": "/a${",
	} {
		if got, bad := resolve(in); bad != nil || got != want {
			t.Errorf("%q gave %q %v, want %q", in, got, bad, want)
		}
	}
	for _, in := range []string{"", "$OUTPUT_DIR/x", "${OUTPUT_DIR}", "$UNKNOWN/x"} {
		if got, bad := resolve(in); bad == nil || bad.Code != CodeInvalidInput {
			t.Errorf("%q gave %q %v", in, got, bad)
		}
	}
	b := &broken{files: map[string][]byte{}}
	if c := runOn(t, b, V20250825, call(ToolEditor, `{"command":"create","path":"/files/output/x/y"}`)); c.Get("error_message").Str() != noteOutputDir {
		t.Errorf("a literal output path gave %s", c.Text())
	}
}

func TestEditor(t *testing.T) {
	t.Parallel()
	b := &broken{files: map[string][]byte{
		"/workspace/crlf.txt": []byte("a\r\nb\r\n"), "/workspace/.hidden": nil, "/workspace/bin": []byte("PK\x03\x04\x00\x00"),
		"/workspace/big.txt": []byte(strings.Repeat("x\n", 80_000)), "/workspace/i.png": []byte("\x89PNG\r\n\x1a\n..."), "/workspace/twice": []byte("aaa"),
	}}
	steps := []struct{ in, want string }{
		{`{"command":"create","path":"app.ini","file_text":"[server]\nport = 8080\ndebug = true\nname = demo\n"}`, `{"type":"text_editor_code_execution_create_result","is_file_update":false}`},
		{`{"command":"create","path":"empty","file_text":null}`, `{"type":"text_editor_code_execution_create_result","is_file_update":false}`},
		{`{"command":"create","path":"empty"}`, `{"type":"text_editor_code_execution_create_result","is_file_update":true}`},
		{
			`{"command":"str_replace","path":"/workspace/app.ini","old_str":"debug = true","new_str":"debug = false"}`,
			`{"type":"text_editor_code_execution_str_replace_result","old_start":1,"old_lines":4,"new_start":1,"new_lines":4,"lines":[" [server]"," port = 8080","-debug = true","+debug = false"," name = demo"]}`,
		},
		{`{"command":"view","path":"app.ini"}`, `{"type":"text_editor_code_execution_view_result","file_type":"text","content":"[server]\nport = 8080\ndebug = false\nname = demo","num_lines":4,"start_line":1,"total_lines":4}`},
		{`{"command":"view","path":"app.ini","view_range":[2,-1]}`, `{"type":"text_editor_code_execution_view_result","file_type":"text","content":"port = 8080\ndebug = false\nname = demo","num_lines":3,"start_line":2,"total_lines":4}`},
		{`{"command":"view","path":"app.ini","view_range":[9,10]}`, `invalid_tool_input view_range: two line numbers from 1 to 4 are required; -1 is the last line.`},
		{`{"command":"view","path":"empty"}`, `{"type":"text_editor_code_execution_view_result","file_type":"text","content":"","num_lines":0,"start_line":1,"total_lines":0}`},
		{`{"command":"view","path":"crlf.txt"}`, `{"type":"text_editor_code_execution_view_result","file_type":"text","content":"a\r\nb\r","num_lines":2,"start_line":1,"total_lines":2}`},
		{`{"command":"view","path":"i.png"}`, `{"type":"text_editor_code_execution_view_result","file_type":"image","content":"iVBORw0KGgouLi4=","num_lines":null,"start_line":null,"total_lines":null}`},
		{`{"command":"view","path":"bin"}`, `invalid_tool_input /workspace/bin is not a text file; read it with bash or Python.`},
		{`{"command":"view","path":"big.txt"}`, `invalid_tool_input /workspace/big.txt: 159999 characters are too many to view at once (limit 100000); use view_range, or bash.`},
		{`{"command":"str_replace","path":"app.ini","old_str":"nothing"}`, `invalid_tool_input old_str does not occur in the file; it must match exactly, white space included.`},
		{`{"command":"str_replace","path":"app.ini","old_str":""}`, `invalid_tool_input old_str: a text that occurs in the file is required.`},
		{`{"command":"str_replace","path":"app.ini","old_str":"e","new_str":"e"}`, `invalid_tool_input old_str and new_str are the same; nothing would change.`},
		{`{"command":"str_replace","path":"twice","old_str":"aa"}`, `invalid_tool_input old_str occurs 2 times in the file; it must occur exactly once, so give more of the text around it.`},
		{`{"command":"str_replace","path":"none.ini","old_str":"a"}`, `file_not_found no such file: /workspace/none.ini`},
		{
			`{"command":"str_replace","path":"app.ini","old_str":"port = 8080\n"}`,
			`{"type":"text_editor_code_execution_str_replace_result","old_start":1,"old_lines":4,"new_start":1,"new_lines":3,"lines":[" [server]","-port = 8080"," debug = false"," name = demo"]}`,
		},
		{`{"command":"view","path":"."}`, `{"type":"text_editor_code_execution_view_result","file_type":"text","content":"/workspace/app.ini\n/workspace/big.txt\n/workspace/bin\n/workspace/crlf.txt\n/workspace/empty\n/workspace/i.png\n/workspace/sub/\n/workspace/twice","num_lines":8,"start_line":1,"total_lines":8}`},
	}
	for _, s := range steps {
		c := runOn(t, b, V20260521, call(ToolEditor, s.in))
		got := c.Text()
		if c.Get("error_code") != nil {
			got = c.Get("error_code").Str() + " " + c.Get("error_message").Str()
		}
		if got != s.want {
			t.Errorf("%s\ngot  %s\nwant %s", s.in, got, s.want)
		}
	}
	if got := string(b.files["/workspace/crlf.txt"]); got != "a\r\nb\r\n" {
		t.Errorf("line ends changed: %q", got)
	}
}

func TestHunks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, before, after string
		want                hunk
	}{
		{"middle of a long file", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n", hunk{2, 7, 2, 7, []string{" 2", " 3", " 4", "-5", "+X", " 6", " 7", " 8"}}},
		{"two places", "a\nb\nc\nd\ne\n", "a\nB\nc\nD\ne\n", hunk{1, 5, 1, 5, []string{" a", "-b", "+B", " c", "-d", "+D", " e"}}},
		{"all lines go", "a\nb\n", "", hunk{1, 2, 0, 0, []string{"-a", "-b"}}},
		{"last line end", "a", "a\nb", hunk{1, 1, 1, 2, []string{" a", "+b"}}},
		{"first line", "a\nb\nc\nd\ne\n", "X\nb\nc\nd\ne\n", hunk{1, 4, 1, 4, []string{"-a", "+X", " b", " c", " d"}}},
		{"grow", "a\n", "a\na\n", hunk{1, 1, 1, 2, []string{" a", "+a"}}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(diff(tt.before, tt.after), tt.want, cmp.AllowUnexported(hunk{})); d != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, d)
		}
	}
}

// FuzzHunk checks that a hunk turns the old lines into the new ones.
func FuzzHunk(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nX\nc\n")
	f.Add("", "x")
	f.Add("1\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\n6\n7\nY\n8\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		if len(before)+len(after) > 2000 {
			return
		}
		h := diff(before, after)
		a, b := splitLines(before), splitLines(after)
		var olds, news []string
		for _, l := range h.lines {
			if l[0] != '+' {
				olds = append(olds, l[1:])
			}
			if l[0] != '-' {
				news = append(news, l[1:])
			}
		}
		if len(olds) != h.oldLines || len(news) != h.newLines {
			t.Fatalf("header %+v does not count its lines", h)
		}
		from := max(h.oldStart-1, 0)
		if h.oldLines == 0 {
			from = h.oldStart
		}
		got := append(append(append([]string(nil), a[:from]...), news...), a[from+h.oldLines:]...)
		if d := cmp.Diff(got, append([]string(nil), b...)); d != "" {
			t.Fatalf("applied to %q, want %q:\n%s", before, after, d)
		}
	})
}

func TestRenderIsTheSameForAReplayedBlock(t *testing.T) {
	t.Parallel()
	own := outputBlock(Call{ID: "a", Name: ToolBash}, outcome{stdout: "é\n", code: 1, files: []string{"file_01"}})
	replayed, err := claude.Parse([]byte(`{"tool_use_id":"a","type":"bash_code_execution_tool_result","content":{"return_code":1,"stderr":"","stdout":"\u00e9\n","content":[],"type":"bash_code_execution_result"}}`))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := Render(own)
	b, _ := Render(replayed)
	if a.Text() != b.Text() || strings.Contains(a.Text(), "file_01") {
		t.Errorf("%s and %s", a.Text(), b.Text())
	}
	img, _ := Render(block(Call{Name: ToolEditor}, claude.NewObject("type", "text_editor_code_execution_view_result", "file_type", "image", "content", "iVBORw0KGgouLi4=")))
	if img.Items[0].Type() != "image" || img.Items[0].At("source", "media_type").Str() != "image/png" {
		t.Errorf("an image is shown as %s", img.Text())
	}
	if _, failed := Render(ErrorBlock(Call{Name: ToolBash}, CodeUnavailable, "")); !failed {
		t.Error("an error is not shown as one")
	}
}

// An editor that works on a damaged file shows and keeps the damage as if it were the user's text.
func TestEditorIsToldOfUnsavedFilesBeforeItWorks(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		`{"command":"view","path":"/workspace/f"}`, `{"command":"create","path":"/workspace/f","file_text":"new"}`,
		`{"command":"str_replace","path":"/workspace/f","old_str":"old","new_str":"new"}`,
	} {
		b := &broken{unsaved: "some files may be lost", files: map[string][]byte{"/workspace/f": []byte("old")}}
		got := runOn(t, b, V20260120, call(ToolEditor, input))
		if got.Get("error_code").Str() != string(CodeUnavailable) || !strings.Contains(got.Get("error_message").Str(), b.unsaved) {
			t.Errorf("%s: %s", input, got.Text())
		}
		if string(b.files["/workspace/f"]) != "old" {
			t.Errorf("%s: the file was changed", input)
		}
	}
}
