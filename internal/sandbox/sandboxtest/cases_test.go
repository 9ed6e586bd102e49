package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// The cases are inputs that broke other systems of this kind, by their number.
// Each says which change of the product makes it fail.

// Fails if Put refuses a size of 0, or if a command's empty stdin stays open.
func TestCase40EmptyFilesAndEmptyInput(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		put(t, b, guest.Home+"/empty", "", guest.PutOptions{AsCode: true})
		wantOutput(t, sh(t, b, "stat -c %s empty; cat empty"), "0\n")
		wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"wc", "-c"}, Stdin: strings.NewReader("")}), "0\n")
		got, info, err := attack.ReadFile(t.Context(), b, guest.Home+"/empty", guest.GetOptions{AsCode: true})
		if err != nil || len(got) != 0 || info.Size != 0 {
			t.Errorf("export of an empty file: %q, %+v, %v", got, info, err)
		}
	})
}

// Fails if Put answers before the rename.
func TestCase47FileIsThereForTheNextCommand(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		for n := range 50 {
			content := fmt.Sprint("content ", n)
			put(t, b, guest.InputDir+"/f", content, guest.PutOptions{MkdirAll: true})
			wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"cat", guest.InputDir + "/f"}}), content)
		}
	})
}

// Fails if the guest waits for the end of the pipes, or does not kill what a
// command left.
func TestCase51BackgroundChildHoldsStdout(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		for _, script := range []string{"echo hi; sleep 300 &", "echo hi; setsid sleep 300 &", "echo hi; (sleep 300 &) ; true"} {
			wantOutput(t, sh(t, b, script), "hi\n")
		}
		out := run(t, b, sandbox.Command{Shell: "setsid sleep 300 & sleep 300", Timeout: time.Second})
		if !out.TimedOut {
			t.Errorf("timed out: %v", out)
		}
		if err := b.Calm(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Fails if the end of the stream is reported as an exit.
func TestCase52LostStreamIsAnErrorNotSuccess(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		started, done := make(chan struct{}), make(chan error, 1)
		var res sandbox.Result
		go func() {
			var err error
			res, err = b.Sandbox.Exec(t.Context(), sandbox.Command{Shell: "echo go; sleep 300", Stdout: &attack.FirstWrite{Seen: started}})
			done <- err
		}()
		<-started
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, sandbox.ErrGone) || res.Code != 0 || res.Signal != 0 || res.Wall <= 0 {
			t.Errorf("a lost command: %+v, %v, want ErrGone, no result and the time until then", res, err)
		}
	})
}

// Fails if commands are typed into a shell that lives on.
func TestCase54HereDocumentsLeaveTheShellUsable(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		wantOutput(t, sh(t, b, "cat > f <<'EOF'\nline $x `y`\nEOF\ncat f"), "line $x `y`\n")
		for _, script := range []string{"cat <<EOF\nnever closed", "echo 'open quote", "cat > g", "if true; then", "exec < /dev/null > /dev/null", "exit 3", "set -e; false"} {
			sh(t, b, script)
			wantOutput(t, sh(t, b, "pwd"), "/workspace\n")
		}
	})
}

// Fails if a timed-out command keeps its process or blocks the next.
func TestCase55StuckCommandDoesNotBlockTheNext(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := run(t, b, sandbox.Command{Shell: "sleep infinity", Timeout: time.Second})
		if !out.TimedOut {
			t.Errorf("stuck command: %v", out)
		}
		wantOutput(t, sh(t, b, "echo next"), "next\n")
	})
}

// Fails if the guest only looks at the clock when the command has ended.
func TestCase56TimeoutIsAnsweredAtItsTime(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := run(t, b, sandbox.Command{Shell: "sleep 50", Timeout: time.Second})
		if !out.TimedOut || out.Wall < time.Second || out.Wall > 20*time.Second {
			t.Errorf("a timeout of 1 s of a command of 50 s: %v after %s", out, out.Wall)
		}
	})
}

// Fails if the output of a killed command is dropped, or the streams are one.
func TestCase57TimeoutKeepsPartialOutput(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := run(t, b, sandbox.Command{Shell: "printf partial; printf problem >&2; sleep 50", Timeout: time.Second})
		if out.Stdout != "partial" || out.Stderr != "problem" || !out.TimedOut {
			t.Errorf("got %v", out)
		}
	})
}

// Fails if stdin is a pipe that nobody closes.
func TestCase59StdinIsEOF(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		wantOutput(t, sh(t, b, "cat > f.py; read x; echo [$x]; python3 -c 'import sys; print(repr(sys.stdin.read()))'"), "[]\n''\n")
		_, out := cell(t, b, "try:\n  input()\nexcept EOFError: print('EOF')")
		wantOutput(t, out, "EOF\n")
	})
}

// Fails if a command keeps a controlling terminal or lacks the variables.
func TestCase60PromptsDoNotHang(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := sh(t, b, "exec 3<>/dev/tty && echo open; tty; echo $GIT_TERMINAL_PROMPT $DEBIAN_FRONTEND $PAGER $TERM; timeout 10 su root -c true; echo $(( $? != 124 ))")
		if out.Stdout != "not a tty\n0 noninteractive cat dumb\n1\n" {
			t.Errorf("got %v", out)
		}
	})
}

// Fails if output passes through a string decoder, or stops at a NUL.
func TestCase61NULInOutputArrives(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		wantOutput(t, sh(t, b, `printf 'a\0b'`), "a\x00b")
		_, out := cell(t, b, `print('a\0b\ud800'.encode('utf-8', 'surrogatepass'))`)
		wantOutput(t, out, "b'a\\x00b\\xed\\xa0\\x80'\n")
	})
}

// Fails if a multibyte character is cut at the edge of a buffer.
func TestCase62BytesThatAreNotText(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := sh(t, b, "head -c 200000 /dev/urandom | tee f; sha256sum f > sum")
		if len(out.Stdout) != 200_000 {
			t.Errorf("%d of 200,000 random bytes arrived", len(out.Stdout))
		}
		sum := run(t, b, sandbox.Command{Shell: "sha256sum | cut -c1-64 > got; cut -c1-64 sum | cmp - got && echo same", Stdin: strings.NewReader(out.Stdout)})
		wantOutput(t, sum, "same\n")
		wide := strings.Repeat("€", 100_000)
		wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"cat"}, Stdin: strings.NewReader(wide)}), wide)
		_, cellOut := cell(t, b, "print('\\u20ac' * 100000)")
		wantOutput(t, cellOut, wide+"\n")
		_, cellOut = cell(t, b, "print('\\ud800')\nprint('on')")
		if cellOut.Code > 1 {
			t.Errorf("a lone surrogate: %v", cellOut)
		}
	})
}

// Fails if the bound on kept output, or its count, goes away.
func TestCase63EndlessOutputIsBounded(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := run(t, b, sandbox.Command{Shell: "yes", Timeout: time.Second, OutputBytes: 1000})
		if !out.TimedOut || len(out.Stdout) > 1200 || out.StdoutDropped < 1<<20 || !strings.Contains(out.Stdout, fmt.Sprint(out.StdoutDropped)) {
			t.Errorf("yes: %d bytes kept, %v", len(out.Stdout), out)
		}
	})
}

// Fails if a cancel reaches the direct child only.
func TestCase66CancelKillsBackgroundChildren(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan struct{})
		go func() { <-started; cancel() }()
		res, err := b.Sandbox.Exec(ctx, sandbox.Command{Shell: "sleep 999 & setsid sleep 999 & echo go; wait", Stdout: &attack.FirstWrite{Seen: started}})
		if !res.Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("cancel: %+v, %v", res, err)
		}
		if err := b.Calm(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Fails if process 1 does not reap what it did not start.
func TestCase67OrphansAreReaped(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		sh(t, b, "for i in $(seq 500); do (sleep 0 &) ; done; sleep 0.5")
		err := attack.Eventually(t.Context(), 10*time.Second, func() (bool, error) {
			out := sh(t, b, "cat /proc/[0-9]*/stat | grep -c ' Z '")
			return out.Stdout == "0\n", nil
		})
		if err != nil {
			t.Errorf("zombies: %v", err)
		}
	})
}

// Fails if the kill at a deadline is not remembered by the killer.
func TestCase68FourEndsAreFourOutcomes(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e, attack.Memory(96*attack.MiB))
		for name, tt := range map[string]struct {
			c             sandbox.Command
			timedOut, oom bool
			signal, code  int
		}{
			"deadline":      {sandbox.Command{Shell: "trap '' TERM; while :; do sleep 1; done", Timeout: time.Second}, true, false, int(syscall.SIGKILL), 137},
			"out of memory": {sandbox.Command{Argv: []string{"python3", "-c", "x = bytearray(1 << 30)"}}, false, true, int(syscall.SIGKILL), 137},
			"signal":        {sandbox.Command{Shell: "kill -9 $$", Timeout: attack.CommandTime}, false, false, int(syscall.SIGKILL), 137},
			"exit":          {sandbox.Command{Shell: "exit 137", Timeout: attack.CommandTime}, false, false, 0, 137},
		} {
			if tt.oom && e.DiesWhole() {
				hog := start(t, e, attack.Memory(96*attack.MiB))
				if _, err := hog.Exec(t.Context(), tt.c); !errors.Is(err, sandbox.ErrOutOfMemory) || hog.ExitReason() != sandbox.ExitOOM {
					t.Errorf("%s: %v, the sandbox ended by %q", name, err, hog.ExitReason())
				}
				continue
			}
			out := run(t, b, tt.c)
			if out.TimedOut != tt.timedOut || out.OOM != tt.oom || out.Signal != tt.signal || out.Code != tt.code || out.Canceled {
				t.Errorf("%s: %v", name, out)
			}
		}
	})
}

// Fails if the score of a child is set after its start.
func TestCase69ChildrenDieBeforeTheGuest(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		if e.DiesWhole() {
			return // the host sees one kernel and not its children; row 2 of the threat model
		}
		b := start(t, e, attack.Memory(128*attack.MiB), attack.CPUs(2))
		for range 5 {
			// Each forks at once and eats from its first instruction on.
			out := sh(t, b, `for i in 1 2 3 4; do python3 -c 'import os; os.fork(); x = bytearray(1 << 30)' & done; wait; sed -n 1p /proc/self/oom_score_adj`)
			if out.Stdout != "500\n" {
				t.Errorf("the shell that waited: %v", out)
			}
		}
		if err := b.Alive(t.Context()); err != nil {
			t.Errorf("the guest did not survive its children: %v", err)
		}
		usage, err := b.Usage(t.Context())
		if err != nil || usage.OOMKills == 0 {
			t.Errorf("nobody was killed for memory: %+v, %v", usage, err)
		}
	})
}

// Fails if an interpreter is given to a second sandbox or cell.
func TestCase70InterpretersAreNotShared(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		first := start(t, e)
		cell(t, first, "secret = 1")
		for range 11 {
			_, out, err := first.Cell(t.Context(), sandbox.Cell{Code: "print('secret' in globals()); secret = 2", Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			wantOutput(t, out, "False\n")
		}
		_, out := cell(t, first, "secret")
		wantOutput(t, out, "1\n")
		_, out = cell(t, start(t, e), "'secret' in globals()")
		wantOutput(t, out, "False\n")
	})
}

// Fails if two commands share a shell or a stream.
func TestCase71ParallelCommandsDoNotMix(t *testing.T) {
	eachDriver(t, parallel)
}

// Fails if every end of a sandbox is told as the same error.
func TestCase75ReasonsOfAnEndAreDistinct(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		destroyed, crashed := start(t, e), start(t, e)
		if err := destroyed.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		pid, err := attack.FirstProcess(e, crashed.ID())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-crashed.Done()
		if destroyed.ExitReason() != sandbox.ExitDestroyed || crashed.ExitReason() != sandbox.ExitCrash {
			t.Errorf("reasons %q and %q, want destroyed and crash", destroyed.ExitReason(), crashed.ExitReason())
		}
		for _, b := range []*Box{destroyed, crashed} {
			if _, err := b.Sh(t.Context(), "true"); !errors.Is(err, sandbox.ErrGone) || errors.Is(err, sandbox.ErrTimeout) {
				t.Errorf("a command after the end: %v, want ErrGone and no talk of time", err)
			}
		}
	})
}

// Fails if the disk or process limit goes away.
func TestCase81EndlessFileAndForkBombStayInside(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b, other := start(t, e, attack.Disk(16*attack.MiB), attack.Processes(48)), start(t, e)
		out := sh(t, b, "yes > f")
		if !strings.Contains(out.Stderr, "No space left on device") {
			t.Errorf("yes > f: %v", out)
		}
		out = run(t, b, sandbox.Command{Shell: ":(){ : | :& };:; sleep 60", Timeout: time.Second})
		if !out.TimedOut {
			t.Errorf("fork bomb: %v", out)
		}
		for _, box := range []*Box{b, other} {
			if err := box.Alive(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Fails if two sandboxes get one id range, or a destroyed one leaves its disk.
func TestCase82TenantsShareNoUIDAndLeaveNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		for _, threat := range attack.Threats() {
			if threat.Row == 46 {
				if err := attack.Attack(t.Context(), e, threat); err != nil {
					t.Error(err)
				}
			}
		}
		entries, err := os.ReadDir(e.Workspaces.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(entries, func(d os.DirEntry) bool { return !strings.Contains(d.Name(), "template") }) {
			t.Errorf("user files stayed on the disk: %v", entries)
		}
	})
}

// Fails if a command inherits the server's environment.
func TestCase83EnvironmentIsClean(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		out := sh(t, b, "printenv; cat /proc/[0-9]*/environ 2>/dev/null")
		if strings.Contains(out.Stdout, e.Secret) || strings.Contains(out.Stdout, attack.SecretVariable) {
			t.Errorf("the server's environment is inside: %v", out)
		}
	})
}

// Fails if a name reaches a shell, or a path is joined outside the sandbox.
func TestCase84NamesAreDataNotCode(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		for _, name := range []string{"a;touch owned", "$(touch owned)", "`touch owned`", "-rf", "a\nb", "'; touch owned; '"} {
			put(t, b, guest.Home+"/"+name, name, guest.PutOptions{AsCode: true})
			wantOutput(t, run(t, b, sandbox.Command{Argv: []string{"cat", "--", name}}), name)
		}
		wantOutput(t, sh(t, b, "test -e owned || echo no"), "no\n")
		for _, path := range []string{"../../etc/passwd", "/workspace/../../etc/airlock-owned"} {
			if err := b.Put(t.Context(), path, strings.NewReader("x"), guest.PutOptions{AsCode: true}); err == nil {
				t.Errorf("put %s was accepted", path)
			}
		}
	})
}
