package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func TestExecReturnsExitCodeAndBothStreams(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "echo out; echo err >&2; exit 7")
	if o.out != "out\n" || o.err != "err\n" || o.Code != 7 || o.Signal != 0 {
		t.Errorf("got %+v", o)
	}
	if o.Wall <= 0 || o.MaxRSS <= 0 || o.CPU <= 0 {
		t.Errorf("not accounted: %+v", o.Result)
	}
}

func TestExecRunsAsCodeWithoutPrivilegesAndWithItsMarker(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "id -u; id -g; id -G; pwd; echo $$ $(cut -d' ' -f6 /proc/$$/stat); grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l; umask")
	lines := strings.Split(o.out, "\n")
	if lines[0] != "1000" || lines[1] != "1000" || !strings.HasPrefix(lines[2], "1000 2") || lines[3] != "/workspace" {
		t.Errorf("ids and folder: %q", lines)
	}
	var pid, sid int
	if _, err := fmt.Sscan(lines[4], &pid, &sid); err != nil || pid == 0 || pid != sid {
		t.Errorf("not a session of its own: %q", lines[4])
	}
	for _, l := range lines[5:9] {
		if !strings.HasSuffix(l, "0000000000000000") {
			t.Errorf("capability left: %q", l)
		}
	}
	// 0, 1, 2 and the folder that ls reads: nothing of the guest's is inherited.
	if lines[9] != "500" || lines[10] != "4" || lines[11] != "0022" {
		t.Errorf("score, descriptors, umask: %q", lines[9:])
	}
}

func TestExecGivesOnlyTheEnvironmentOfTheSandbox(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{Env: map[string]string{"OMP_NUM_THREADS": "2", "LANG": "de_DE.UTF-8"}})
	o := g.run(t, guest.Command{Argv: []string{"env"}, Env: map[string]string{"OUTPUT_DIR": "/files/output/x", "TERM": "vt100"}})
	got := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(o.out), "\n") {
		k, v, _ := strings.Cut(line, "=")
		got[k] = v
	}
	want := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/workspace", "USER": "airlock",
		"LOGNAME": "airlock", "SHELL": "/bin/bash", "LANG": "de_DE.UTF-8", "TERM": "vt100", "INPUT_DIR": "/files/input",
		"MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1", "GIT_TERMINAL_PROMPT": "0", "DEBIAN_FRONTEND": "noninteractive",
		"PAGER": "cat", "OMP_NUM_THREADS": "2", "OUTPUT_DIR": "/files/output/x",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
}

func TestExecStartFailuresAreErrorsAndNotExitCodes(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	huge := strings.Repeat("x", 200<<10)
	if err := g.Mkdir(t.Context(), "/root-only", guest.MkdirOptions{Mode: 0o700}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cmd  guest.Command
		want error
		text string
	}{
		{"missing program", guest.Command{Argv: []string{"no-such-program"}}, guest.ErrNotExist, "no-such-program"},
		{"missing path", guest.Command{Argv: []string{"/bin/no-such"}}, guest.ErrNotExist, "/bin/no-such"},
		{"not executable", guest.Command{Argv: []string{"/etc/passwd"}}, guest.ErrPermission, "/etc/passwd"},
		{"closed folder", guest.Command{Argv: []string{"true"}, Cwd: "/root-only"}, guest.ErrPermission, "/root-only"},
		{"missing folder", guest.Command{Argv: []string{"true"}, Cwd: "/no/such"}, guest.ErrNotExist, "working directory /no/such"},
		{"neither", guest.Command{}, guest.ErrInvalidPath, "exactly one"},
		{"both", guest.Command{Argv: []string{"true"}, Shell: "true"}, guest.ErrInvalidPath, "exactly one"},
		{"NUL in script", guest.Command{Shell: "echo a\x00b"}, guest.ErrInvalidPath, "NUL"},
		{"NUL in argument", guest.Command{Argv: []string{"echo", "a\x00b"}}, guest.ErrInvalidPath, "NUL"},
		{"huge variable", guest.Command{Shell: "true", Env: map[string]string{"A": huge}}, guest.ErrTooLarge, "too large"},
		{"huge environment", guest.Command{Shell: "true", Env: map[string]string{"A": strings.Repeat(huge, 8)}}, guest.ErrTooLarge, "1 MiB"},
		{"bad variable", guest.Command{Shell: "true", Env: map[string]string{"A=B": "c"}}, guest.ErrInvalidPath, "A=B"},
		{"script too long", guest.Command{Shell: strings.Repeat("#", guest.MaxCode+1)}, guest.ErrTooLarge, "limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := g.try(t.Context(), tt.cmd)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
			if o.Result != (guest.Result{}) {
				t.Errorf("invented a result: %+v", o.Result)
			}
		})
	}
	if o := g.shell(t, "echo fine"); o.out != "fine\n" {
		t.Errorf("guest unusable afterwards: %+v", o)
	}
}

func TestCase54HeredocsRunAndTheNextCommandToo(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "cat > f <<'EOF'\nline $HOME `x`\nEOF\ncat f; cat <<EOF | tr a-z A-Z\nabc\nEOF\n")
	if o.out != "line $HOME `x`\nABC\n" || o.Code != 0 {
		t.Errorf("got %+v", o)
	}
	// An unterminated one ends with the script.
	if o := g.shell(t, "cat <<'EOF'\nopen end"); o.out != "open end\n" && o.out != "open end" {
		t.Errorf("got %+v", o)
	}
	if o := g.shell(t, "pwd"); o.out != "/workspace\n" {
		t.Errorf("got %+v", o)
	}
}

func TestCase59StdinIsEOF(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "cat > f.txt; read x; echo r=$?; python3 -c 'input()' 2>&1 | tail -1; wc -c < f.txt")
	if o.out != "r=1\nEOFError: EOF when reading a line\n0\n" {
		t.Errorf("got %+v", o)
	}
}

func TestCase60NoControllingTerminal(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	// Where the tests run without a terminal the guest has none to pass on, so look at the session too.
	o := g.shell(t, "(: < /dev/tty) 2>/dev/null && echo has tty || echo none; test $(cut -d' ' -f6 /proc/$$/stat) = $$ && echo own session")
	if o.out != "none\nown session\n" {
		t.Errorf("got %+v", o)
	}
}

// A guest that carried it, were it for a moment, could be the one whom the kernel ends when what an earlier command left uses up
// the memory.
func TestGuestNeverHasTheOOMScoreOfCode(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	score, err := os.Open(fmt.Sprintf("/proc/%d/oom_score_adj", g.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer score.Close()
	read := func() string {
		buf := make([]byte, 16)
		n, _ := score.ReadAt(buf, 0) // EOF follows each value
		return string(buf[:n])
	}
	own, over, seen := read(), make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(seen)
		for {
			select {
			case <-over:
				return
			default:
			}
			if now := read(); now != own {
				seen <- now
				return
			}
		}
	}()
	for range 30 {
		if o := g.shell(t, "read score < /proc/self/oom_score_adj; echo $score"); o.out != "500\n" {
			t.Fatalf("code: %+v", o)
		}
	}
	close(over)
	if now := <-seen; now != "" {
		t.Errorf("the guest had %q, its own is %q", now, own)
	}
}

func TestExecFeedsStdinToItsEnd(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	in := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
	o := g.run(t, guest.Command{Shell: "sha256sum | cut -c1-8; echo end", Stdin: bytes.NewReader(in)})
	if o.out != "c9a1a2bf\nend\n" && !strings.HasSuffix(o.out, "\nend\n") {
		t.Errorf("got %+v", o)
	}
	o = g.run(t, guest.Command{Shell: "wc -c", Stdin: bytes.NewReader(in)})
	if strings.TrimSpace(o.out) != fmt.Sprint(len(in)) {
		t.Errorf("got %+v", o)
	}
	o = g.run(t, guest.Command{Shell: "wc -c", Stdin: strings.NewReader("")})
	if strings.TrimSpace(o.out) != "0" {
		t.Errorf("empty stdin: got %+v", o)
	}
}

// endless never ends and never blocks.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestExecEndsAlthoughStdinIsNotRead(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	for _, script := range []string{"exit 3", "exec <&-; sleep 0.1; exit 3", "head -c 100000 > /dev/null; exit 3"} {
		o := g.run(t, guest.Command{Shell: script, Stdin: endless{}, Timeout: 20 * time.Second})
		if o.Code != 3 {
			t.Errorf("%s: got %+v", script, o)
		}
	}
}

func TestExecRunsTenMebibyteScripts(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	var b strings.Builder
	b.WriteString("set -- \"$@\" x; echo first\n")
	for b.Len() < 10<<20 {
		b.WriteString(": '0123456789012345678901234567890123456789012345678901234567890123456789'\n")
	}
	b.WriteString("echo last $# $0; exit 5\n")
	o := g.run(t, guest.Command{Shell: b.String(), Timeout: 100 * time.Second})
	if o.out != "first\nlast 1 bash\n" || o.Code != 5 {
		t.Errorf("got %+v", o)
	}
	// A here-document of a hundred thousand lines.
	doc := strings.Repeat("a line of text\n", 100_000)
	o = g.run(t, guest.Command{Shell: "wc -l <<'X'\n" + doc + "X\n", Timeout: 60 * time.Second})
	if strings.TrimSpace(o.out) != "100000" {
		t.Errorf("got %+v", o)
	}
}

func TestCase61And62RawBytesPassUnchanged(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, `printf 'a\0b\377\376\303'; printf '\033[31m' >&2`)
	if o.out != "a\x00b\xff\xfe\xc3" || o.err != "\x1b[31m" {
		t.Errorf("got %q %q", o.out, o.err)
	}
	o = g.run(t, guest.Command{Argv: []string{"printf", "%s", "\xff\xfe/é"}, Env: map[string]string{"X": "\xff"}})
	if o.out != "\xff\xfe/é" {
		t.Errorf("argument: got %q", o.out)
	}
	o = g.run(t, guest.Command{Shell: `python3 -c 'print("é€"*5000, end="")'`})
	if o.out != strings.Repeat("é€", 5000) {
		t.Errorf("characters over read boundaries differ")
	}
}

func TestExecOpensDevStdoutAndStderr(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "echo one > /dev/stderr; echo two | tee /dev/stderr > /proc/self/fd/1")
	if o.err != "one\ntwo\n" || o.out != "two\n" {
		t.Errorf("got %+v", o)
	}
}

func TestCase71TwoExecsAtOnceDoNotMix(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			line := fmt.Sprintf("call %d", i)
			o, err := g.try(t.Context(), guest.Command{Shell: fmt.Sprintf("for i in {1..2000}; do echo %s; echo e%d >&2; done; exit %d", line, i, i)})
			if err != nil {
				t.Error(err)
				return
			}
			if o.out != strings.Repeat(line+"\n", 2000) || o.err != strings.Repeat(fmt.Sprintf("e%d\n", i), 2000) || o.Code != i {
				t.Errorf("call %d mixed up: code %d, %d and %d bytes", i, o.Code, len(o.out), len(o.err))
			}
		})
	}
	wg.Wait()
}

func TestExecSlowsTheCommandToItsConsumer(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	// The command prints 8 MiB and then touches a file. While the consumer
	// stands still it cannot get there: window and pipe hold 1.1 MiB.
	w := &gate{open: make(chan struct{}), began: make(chan struct{})}
	done := make(chan outcome, 1)
	go func() {
		o, err := g.try(t.Context(), guest.Command{Shell: "head -c 8388608 /dev/zero; touch /tmp/through", Stdout: w, OutputBytes: -1})
		if err != nil {
			t.Error(err)
		}
		done <- o
	}()
	<-w.began
	if _, err := g.Stat(t.Context(), "/tmp/through", guest.StatOptions{AsCode: true}); !errors.Is(err, guest.ErrNotExist) {
		t.Errorf("the command was not slowed down: %v", err)
	}
	// Other calls are served meanwhile.
	if o := g.shell(t, "echo alive"); o.out != "alive\n" {
		t.Errorf("got %+v", o)
	}
	close(w.open)
	o := <-done
	if o.Code != 0 || w.n != 8<<20 || o.StdoutDropped != 0 {
		t.Errorf("got %d bytes, %+v", w.n, o)
	}
}

type gate struct {
	began, open chan struct{}
	once        sync.Once
	n           int
}

func (w *gate) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.began) })
	<-w.open
	w.n += len(p)
	return len(p), nil
}

func TestExecStopsWhenItsConsumerFails(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o, err := g.try(t.Context(), guest.Command{Shell: "yes", Stdout: failing{}, OutputBytes: -1})
	if !errors.Is(err, io.ErrShortBuffer) || !o.Canceled {
		t.Errorf("got %+v, %v", o, err)
	}
	if n := g.processes(t); n != 0 {
		t.Errorf("%d processes left", n)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortBuffer }

func TestExecWithEndedContextStartsNothing(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	_, err := g.try(ctx, guest.Command{Shell: "touch /tmp/started"})
	if !errors.Is(err, errTest) {
		t.Errorf("got %v", err)
	}
	if _, err := g.Stat(t.Context(), "/tmp/started", guest.StatOptions{AsCode: true}); !errors.Is(err, guest.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
}

func TestCase63EndlessOutputIsBounded(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "yes & yes errors >&2", Timeout: 2 * time.Second})
	if !o.TimedOut || o.StdoutDropped < 1<<20 || o.StderrDropped < 1<<20 {
		t.Errorf("got %+v", o.Result)
	}
	marker := fmt.Sprintf("\n... %d bytes dropped ...\n", o.StdoutDropped)
	head, tail, ok := strings.Cut(o.out, marker)
	if !ok || len(head) != 1<<20-1<<20*3/10 || len(tail) != 1<<20*3/10 || !strings.HasPrefix(head, "y\ny\n") || !strings.HasSuffix(tail, "y\n") {
		t.Errorf("got %d and %d bytes, marker %v", len(head), len(tail), ok)
	}
	if peak := peakRSS(t, g.cmd.Process.Pid); peak > 48<<20 {
		t.Errorf("the guest grew to %d MiB", peak>>20)
	}
	if o := g.shell(t, "echo next"); o.out != "next\n" {
		t.Errorf("got %+v", o)
	}
}

func TestExecKeepsTheEndOfBigOutput(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "seq 1 1000000", OutputBytes: 1000})
	head, tail, ok := strings.Cut(o.out, fmt.Sprintf("\n... %d bytes dropped ...\n", o.StdoutDropped))
	if !ok || !strings.HasPrefix(head, "1\n2\n3\n") || !strings.HasSuffix(tail, "999999\n1000000\n") || int64(len(head)+len(tail))+o.StdoutDropped != 6888896 {
		t.Errorf("got %q", o.out)
	}
	var n int
	o = g.run(t, guest.Command{Shell: "seq 1 1000000", OutputBytes: -1, Stdout: counter{&n}})
	if n != 6888896 || o.StdoutDropped != 0 {
		t.Errorf("without bound: got %d bytes", n)
	}
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }
