package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// The names of package attack that every rule uses.
type (
	// Env is a driver with its surroundings, see attack.Env.
	Env = attack.Env
	// Box is one sandbox with shorthand, see attack.Box.
	Box = attack.Box
	// Factory makes the driver under test, see attack.Factory.
	Factory = attack.Factory
	// Option changes a spec, see attack.Option.
	Option = attack.Option
	// Output is how a command ended, see attack.Output.
	Output = attack.Output
)

// Run is the conformance suite: what callers of a sandbox may rely on with
// every driver. Each part has a sandbox of its own, and the whole leaves
// nothing behind.
func Run(t *testing.T, f Factory) {
	t.Helper()
	e := open(t, f)
	if err := attack.WarmUp(t.Context(), e); err != nil {
		t.Fatalf("first sandbox: %v", err)
	}
	before, err := e.Leftovers()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range slices.Concat(commandRules(), fileRules(), cellRules(), toolRules(), lifeRules(), cutOffRules(), snapshotRules()) {
		t.Run(part.name, func(t *testing.T) { part.check(t, e) })
		if err := e.DestroyAll(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("destroy after %s: %v", part.name, err)
		}
	}
	if err := e.CheckLeaks(context.WithoutCancel(t.Context()), before); err != nil {
		t.Error(err)
	}
}

// rule is one promise and the check of it.
type rule struct {
	name  string
	check func(*testing.T, *Env)
}

// open makes an Env that ends with the test.
func open(t *testing.T, f Factory) *Env {
	t.Helper()
	e, err := attack.Open(t.Context(), f, t.TempDir())
	if err != nil {
		t.Fatalf("open driver %s: %v", f.Name, err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close driver %s: %v", f.Name, err)
		}
	})
	return e
}

// start makes a sandbox or ends the test.
func start(t *testing.T, e *Env, options ...Option) *Box {
	t.Helper()
	b, err := e.Start(t.Context(), options...)
	if err != nil {
		t.Fatalf("start a sandbox: %v", err)
	}
	return b
}

// sh runs a script that must be answered.
func sh(t *testing.T, b *Box, script string) Output {
	t.Helper()
	return run(t, b, sandbox.Command{Shell: script})
}

func run(t *testing.T, b *Box, c sandbox.Command) Output {
	t.Helper()
	out, err := b.Exec(t.Context(), c)
	if err != nil {
		t.Fatalf("exec %.80q %.80q: %v", c.Argv, c.Shell, err)
	}
	return out
}

func wantOutput(t *testing.T, got Output, stdout string) {
	t.Helper()
	if got.Stdout != stdout || got.Code != 0 {
		t.Errorf("got %v, want stdout %q and code 0", got, stdout)
	}
}

func commandRules() []rule {
	return []rule{
		{"CommandHasItsOwnStreamsAndCode", commandBasics},
		{"CommandSeesOnlyItsOwnEnvironment", commandEnvironment},
		{"MissingProgramIsAnErrorNotACode", commandMissing},
		{"OutcomesAreDifferent", outcomes},
		{"CanceledCommandIsGoneWhenExecReturns", canceled},
		{"ParallelCommandsDoNotMix", parallel},
		{"SlowReaderSlowsTheWriter", slowReader},
		{"OutputKeepsHeadAndTail", headAndTail},
	}
}

func commandBasics(t *testing.T, e *Env) {
	b := start(t, e)
	out := sh(t, b, "echo out; echo err >&2; exit 42")
	if out.Stdout != "out\n" || out.Stderr != "err\n" || out.Code != 42 || out.Signal != 0 || out.TimedOut || out.OOM {
		t.Errorf("got %v", out)
	}
	if out.Wall <= 0 || out.MaxRSS <= 0 {
		t.Errorf("wall %s, rss %d, want both measured", out.Wall, out.MaxRSS)
	}
	wantOutput(t, sh(t, b, "pwd; id -u; id -g; id -G | wc -w | tr -d ' '"), "/workspace\n1000\n1000\n2\n")
	wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"pwd"}, Cwd: "/tmp"}), "/tmp\n")
	wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"cat"}, Stdin: strings.NewReader("in")}), "in")
	wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"cat"}}), "")
	wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"printf", "%s", "\xff;$(id)`id`\n"}}), "\xff;$(id)`id`\n")
	wantOutput(t, sh(t, b, "cat <<'EOF'\n$HOME\nEOF\n"), "$HOME\n")
}

func commandEnvironment(t *testing.T, e *Env) {
	b := start(t, e, attack.Environ(map[string]string{"FROM_SPEC": "spec", "BOTH": "spec"}))
	out := run(t, b, sandbox.Command{Argv: []string{"env"}, Env: map[string]string{"FROM_COMMAND": "command", "BOTH": "command"}})
	have := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		have[name] = value
	}
	for name, want := range map[string]string{
		"HOME": guest.Home, "LANG": "C.UTF-8", "TERM": "dumb", "PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "DEBIAN_FRONTEND": "noninteractive",
		"MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1", "INPUT_DIR": guest.InputDir, "OPENBLAS_NUM_THREADS": "1",
		"FROM_SPEC": "spec", "FROM_COMMAND": "command", "BOTH": "command",
	} {
		if have[name] != want {
			t.Errorf("%s = %q, want %q", name, have[name], want)
		}
	}
	if !strings.Contains(have["PATH"], "/usr/bin") {
		t.Errorf("PATH = %q", have["PATH"])
	}
	if _, leaked := have[attack.SecretVariable]; leaked {
		t.Error("the host's environment is inside")
	}
	wantOutput(t, sh(t, b, "echo -$FROM_COMMAND-"), "--\n")
}

func commandMissing(t *testing.T, e *Env) {
	b := start(t, e)
	for name, tt := range map[string]struct {
		c    sandbox.Command
		want error
	}{
		"program":         {sandbox.Command{Argv: []string{"/no/such/program"}}, guest.ErrNotExist},
		"program in path": {sandbox.Command{Argv: []string{"no-such-program"}}, guest.ErrNotExist},
		"folder":          {sandbox.Command{Argv: []string{"true"}, Cwd: "/no/such"}, guest.ErrNotExist},
		"not executable":  {sandbox.Command{Argv: []string{"/etc/passwd"}}, guest.ErrPermission},
	} {
		if _, err := b.Exec(t.Context(), tt.c); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
	}
	if out := sh(t, b, "no-such-program"); out.Code != 127 {
		t.Errorf("a shell that finds nothing: %v, want code 127", out)
	}
}

func outcomes(t *testing.T, e *Env) {
	b := start(t, e, attack.Memory(96*attack.MiB))
	for name, tt := range map[string]struct {
		c    sandbox.Command
		want sandbox.Result
	}{
		"exit":   {sandbox.Command{Shell: "exit 3"}, sandbox.Result{Code: 3}},
		"signal": {sandbox.Command{Shell: "kill -SEGV $$"}, sandbox.Result{Code: 139, Signal: int(syscall.SIGSEGV)}},
		// The command kills itself the way the limits would: neither is reported.
		"own kill": {sandbox.Command{Shell: "kill -9 $$"}, sandbox.Result{Code: 137, Signal: int(syscall.SIGKILL)}},
		"137":      {sandbox.Command{Shell: "exit 137"}, sandbox.Result{Code: 137}},
		"124":      {sandbox.Command{Shell: "exit 124"}, sandbox.Result{Code: 124}},
	} {
		out := run(t, b, tt.c)
		got := sandbox.Result{Code: out.Code, Signal: out.Signal, TimedOut: out.TimedOut, OOM: out.OOM, Canceled: out.Canceled}
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	out := run(t, b, sandbox.Command{Shell: "printf partial; printf problem >&2; sleep 60", Timeout: 3 * time.Second})
	if !out.TimedOut || out.OOM || out.Canceled || out.Stdout != "partial" || out.Stderr != "problem" {
		t.Errorf("timeout: %v", out)
	}
	hog := sandbox.Command{Argv: []string{"python3", "-c", "x = bytearray(1 << 30)"}}
	if e.DiesWhole() {
		if _, err := b.Exec(t.Context(), hog); !errors.Is(err, sandbox.ErrOutOfMemory) || b.ExitReason() != sandbox.ExitOOM {
			t.Errorf("out of memory: %v, the sandbox ended by %q", err, b.ExitReason())
		}
		return
	}
	out = run(t, b, hog)
	if !out.OOM || out.TimedOut || out.Canceled {
		t.Errorf("out of memory: %v", out)
	}
}

func canceled(t *testing.T, e *Env) {
	b := start(t, e)
	cause := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	go func() {
		<-started
		cancel(cause)
	}()
	res, err := b.Sandbox.Exec(ctx, sandbox.Command{
		Shell: "echo begun; setsid sleep 1000 & (sleep 1000 &); trap '' TERM; sleep 1000 & wait", Stdout: &attack.FirstWrite{Seen: started},
	})
	if !errors.Is(err, cause) || !res.Canceled || res.TimedOut {
		t.Errorf("canceled: %+v, %v, want Canceled and the cause", res, err)
	}
	if err := b.Calm(t.Context()); err != nil {
		t.Error(err)
	}
}

func parallel(t *testing.T, e *Env) {
	b := start(t, e)
	type result struct {
		n   int
		out Output
		err error
	}
	const many = 12
	results := make(chan result, many)
	for n := range many {
		go func() {
			word := strings.Repeat(string(rune('a'+n)), 1000)
			out, err := b.Exec(t.Context(), sandbox.Command{Shell: "for i in $(seq 100); do echo $WORD; done", Env: map[string]string{"WORD": word}})
			results <- result{n, out, err}
		}()
	}
	for range many {
		r := <-results
		want := strings.Repeat(strings.Repeat(string(rune('a'+r.n)), 1000)+"\n", 100)
		if r.err != nil || r.out.Stdout != want {
			t.Errorf("command %d: %v, %d bytes of output", r.n, r.err, len(r.out.Stdout))
		}
	}
}

// slowReader fails when the guest, or the host, keeps output that nobody has
// read yet: the writer would be done long before its reader.
func slowReader(t *testing.T, e *Env) {
	b := start(t, e, func(s *sandbox.Spec) { s.Limits.OutputBytes = 64 * attack.MiB })
	gate := &gated{open: make(chan struct{})}
	openGate := sync.OnceFunc(func() { close(gate.open) })
	defer openGate()
	done := make(chan error, 1)
	go func() {
		_, err := b.Sandbox.Exec(t.Context(), sandbox.Command{
			Shell: "head -c 16M /dev/zero; touch finished", Stdout: gate,
		})
		done <- err
	}()
	// The other command runs on: only the writer waits.
	for range 5 {
		if out := sh(t, b, "test -e finished && echo yes; sleep 0.1"); out.Stdout != "" {
			t.Fatal("16 MiB were taken from the command before anybody read them")
		}
	}
	openGate()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// gated blocks until it is opened.
type gated struct{ open chan struct{} }

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	return len(p), nil
}

func headAndTail(t *testing.T, e *Env) {
	b := start(t, e)
	out := run(t, b, sandbox.Command{Shell: "echo first; seq 1000000; echo last", OutputBytes: 10_000})
	if !strings.HasPrefix(out.Stdout, "first\n") || !strings.HasSuffix(out.Stdout, "last\n") {
		t.Errorf("head %.20q and tail %.20q", out.Stdout, out.Stdout[max(0, len(out.Stdout)-20):])
	}
	total := int64(len("first\nlast\n") + 6_888_896)
	kept := total - out.StdoutDropped
	if kept < 9_000 || kept > 10_000 || out.StderrDropped != 0 {
		t.Errorf("kept %d bytes of 10,000, dropped %d and %d", kept, out.StdoutDropped, out.StderrDropped)
	}
	if n := bytes.Count([]byte(out.Stdout), []byte("dropped")); n != 1 {
		t.Errorf("%d lines say that something was dropped, want 1", n)
	}
}
