package serve_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// within fails the test if f takes longer than it may: tests of deadlines need
// an upper bound, generous enough for a loaded machine.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if d := time.Since(began); d > limit {
		t.Errorf("took %v, at most %v are right", d, limit)
	}
}

func TestCase51BackgroundChildrenDoNotHoldTheCall(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	for _, script := range []string{
		"echo hi; sleep 300 &", "setsid sleep 300 & echo hi", "(sleep 300 &); echo hi",
		"echo hi; (setsid sh -c 'trap \"\" TERM HUP; sleep 300 & sleep 300' &)",
		"echo hi; (setsid setsid sleep 300 >/dev/null 2>&1 < /dev/null &)",
		"echo hi; nohup sleep 300 > /dev/null 2>&1 & disown; exit 0",
	} {
		within(t, 10*time.Second, func() {
			o := g.run(t, guest.Command{Shell: script, Timeout: 60 * time.Second})
			if !strings.Contains(script, "disown") && o.out != "hi\n" {
				t.Errorf("%s: got %+v", script, o)
			}
			if o.Code != 0 || o.TimedOut || o.LeftRunning != 0 {
				t.Errorf("%s: got %+v", script, o)
			}
		})
		if n := g.processes(t); n != 0 {
			t.Errorf("%s: %d processes left", script, n)
		}
	}
}

func TestOutputOfTheDrainBelongsToTheCall(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "(sleep 0.02; echo late) & echo early")
	if o.out != "early\nlate\n" {
		t.Errorf("got %+v", o)
	}
}

func TestKeepLeavesBackgroundProcessesAndCountsThem(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "for i in 1 2 3; do (while :; do echo noise; echo noise >&2; sleep 0.01; done) & done; echo $! > /tmp/pid; echo hi", Keep: true})
	if !strings.Contains(o.out, "hi\n") || o.LeftRunning < 3 {
		t.Errorf("got %+v", o.Result)
	}
	// They outlive other calls, with and without Keep.
	for range 3 {
		if o := g.shell(t, "kill -0 $(cat /tmp/pid); sleep 0.05 & echo mine"); o.Code != 0 || o.out != "mine\n" || o.err != "" {
			t.Errorf("got %+v", o)
		}
	}
	g.shell(t, "kill -9 -1")
	within(t, 30*time.Second, func() {
		began := time.Now()
		for g.processes(t) > 0 && time.Since(began) < time.Minute { // a busy machine takes its time to end what was killed
		}
	})
}

func TestKeptProcessesSurviveTheTimeoutOfAnotherCall(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "sleep 300 & echo $! > /tmp/pid", Keep: true})
	if o.LeftRunning != 1 {
		t.Fatalf("got %+v", o)
	}
	o = g.run(t, guest.Command{Shell: "sleep 299", Timeout: 50 * time.Millisecond})
	if !o.TimedOut {
		t.Errorf("got %+v", o)
	}
	if o := g.shell(t, "kill -0 $(cat /tmp/pid) && kill -9 $(cat /tmp/pid)"); o.Code != 0 {
		t.Errorf("the kept process is gone: %+v", o)
	}
}

func TestCase55TimeoutKillsOnlyThatCommand(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	other := make(chan outcome, 1)
	go func() {
		o, err := g.try(t.Context(), guest.Command{Shell: "echo begin; sleep 1; echo end"})
		if err != nil {
			t.Error(err)
		}
		other <- o
	}()
	o := g.run(t, guest.Command{Shell: "sleep infinity", Timeout: 100 * time.Millisecond})
	if !o.TimedOut || o.Canceled || o.OOM || o.Signal == 0 {
		t.Errorf("got %+v", o)
	}
	if o := <-other; o.out != "begin\nend\n" || o.Code != 0 || o.TimedOut {
		t.Errorf("the other command: %+v", o)
	}
	if o := g.shell(t, "echo next"); o.out != "next\n" {
		t.Errorf("got %+v", o)
	}
}

func TestCase56TimeoutAnswersInTime(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	within(t, 5*time.Second, func() {
		o := g.run(t, guest.Command{Shell: "sleep 50", Timeout: 300 * time.Millisecond})
		if !o.TimedOut || o.Wall < 300*time.Millisecond {
			t.Errorf("got %+v", o)
		}
	})
}

func TestCase57TimeoutReturnsPartialOutput(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "printf partial; printf trouble >&2; sleep 50", Timeout: settled})
	if !o.TimedOut || o.out != "partial" || o.err != "trouble" {
		t.Errorf("got %+v", o)
	}
}

// settled is a time limit by which a shell has set its traps and said its word, on a busy machine too.
const settled = 3 * time.Second

func TestTimeoutGivesTermFirstAndKillsWhoIgnoresIt(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "trap 'echo cleaned; exit 9' TERM; echo up; sleep 100 & wait", Timeout: settled})
	if !o.TimedOut || o.out != "up\ncleaned\n" || o.Code != 9 || o.Signal != 0 {
		t.Errorf("one that cleans up: %+v", o)
	}
	o = g.run(t, guest.Command{Shell: "trap '' TERM; (trap '' TERM; setsid sleep 300) & sleep 300", Timeout: settled})
	if !o.TimedOut || o.Signal != 9 || o.Code != 137 || o.OOM {
		t.Errorf("one that ignores it: %+v", o)
	}
	o = g.run(t, guest.Command{Shell: "kill -STOP $$", Timeout: settled})
	if !o.TimedOut || o.Signal != 9 {
		t.Errorf("one that stops itself: %+v", o)
	}
	if n := g.processes(t); n != 0 {
		t.Errorf("%d processes left", n)
	}
}

func TestCase66CancelKillsAllProcessesBeforeItReturns(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	for _, beside := range []bool{false, true} {
		if beside { // another process makes the atomic kill of everything impossible
			if r, err := g.Cell(t.Context(), guest.Cell{Code: "x = 1"}); err != nil || r.Code != 0 {
				t.Fatal(r, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		o, err := g.try(ctx, guest.Command{
			Shell:  "trap '' TERM; sleep 999 & setsid sleep 999 & (setsid sh -c 'sleep 999 & sleep 999' &) ; echo up; wait",
			Stdout: onWrite(func() { cancel(errTest) }),
		})
		if !errors.Is(err, errTest) || !o.Canceled || o.TimedOut || o.Signal != 9 {
			t.Errorf("got %+v, %v", o, err)
		}
		want := 0
		if beside {
			want = 1
		}
		if n := g.processes(t); n != want {
			t.Errorf("%d processes left, want %d", n, want)
		}
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestForkBombIsHuntedDown(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	if r, err := g.Cell(t.Context(), guest.Cell{Code: "x = 1"}); err != nil || r.Code != 0 {
		t.Fatal(r, err) // so that it has to be hunted, not killed at one stroke
	}
	within(t, 30*time.Second, func() {
		o := g.run(t, guest.Command{Shell: "ulimit -u 150; f() { trap '' TERM; setsid true; f & f & wait; }; f 2>/dev/null", Timeout: 500 * time.Millisecond})
		if !o.TimedOut {
			t.Errorf("got %+v", o)
		}
	})
	if n := g.processes(t); n != 1 {
		t.Errorf("%d processes left beside the interpreter", n-1)
	}
}

func TestCase67ZombiesAreReaped(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Shell: "for i in $(seq 500); do (sleep 0 &) ; done", Timeout: 100 * time.Second})
	if o.Code != 0 {
		t.Errorf("got %+v", o)
	}
	if n := g.processes(t); n != 0 {
		t.Errorf("%d processes or zombies left", n)
	}
}

func TestCodeCannotHarmTheGuest(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "for s in TERM INT QUIT KILL STOP HUP USR1; do kill -$s 1 2>/dev/null && echo sent $s; done; cat /proc/1/environ /proc/1/maps 2>&1 | grep -c -i denied; ls /proc/1/fd 2>&1 | grep -c -i denied")
	if strings.Contains(o.out, "sent") || o.out != "2\n1\n" && o.out != "1\n1\n" {
		t.Errorf("got %+v", o)
	}
	o = g.shell(t, "kill -9 -1; echo not reached")
	if o.Signal != 0 && o.Signal != 9 {
		t.Errorf("got %+v", o)
	}
	if err := g.Ping(t.Context()); err != nil {
		t.Errorf("guest does not answer: %v", err)
	}
}

func TestKillAllByOneCallIsASignalForTheOther(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	up, done := make(chan struct{}), make(chan outcome, 1)
	var once sync.Once
	go func() {
		o, err := g.try(t.Context(), guest.Command{Shell: "echo up; exec sleep 100", Stdout: onWrite(func() { once.Do(func() { close(up) }) })})
		if err != nil {
			t.Error(err)
		}
		done <- o
	}()
	<-up
	g.shell(t, "kill -9 -1")
	if o := <-done; o.Signal != 9 || o.Code != 137 || o.Canceled || o.TimedOut || o.OOM {
		t.Errorf("got %+v", o)
	}
}

func TestCase68OutcomesAreDistinct(t *testing.T) {
	t.Parallel()
	var kills atomic.Int64
	var counted atomic.Bool
	g := start(t, guest.Options{OOMCount: func() int64 {
		if counted.Load() {
			return kills.Add(1)
		}
		return kills.Load()
	}})
	tests := []struct {
		name string
		oom  bool
		cmd  guest.Command
		want guest.Result
	}{
		{"exit", false, guest.Command{Shell: "exit 137"}, guest.Result{Code: 137}},
		{"signal", false, guest.Command{Shell: "kill -9 $$"}, guest.Result{Code: 137, Signal: 9}},
		{"other signal", true, guest.Command{Shell: "kill -SEGV $$"}, guest.Result{Code: 139, Signal: 11}},
		{"memory", true, guest.Command{Shell: "kill -9 $$"}, guest.Result{Code: 137, Signal: 9, OOM: true}},
		{"memory of a child", true, guest.Command{Shell: "sh -c 'kill -9 $$'"}, guest.Result{Code: 137, OOM: true}},
		{"exit beside a memory kill", true, guest.Command{Shell: "exit 1"}, guest.Result{Code: 1}},
		{"timeout", true, guest.Command{Shell: "trap '' TERM; while :; do :; done", Timeout: settled}, guest.Result{Code: 137, Signal: 9, TimedOut: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			counted.Store(tt.oom)
			got := g.run(t, tt.cmd).Result
			got.CPU, got.Wall, got.MaxRSS = 0, 0, 0
			if got != tt.want && (tt.name != "memory of a child" || got.Signal != 9 || !got.OOM) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestCase52LostGuestIsAnErrorAndNotAResult(t *testing.T) {
	t.Parallel()
	cmd, conn, _ := launch(t)
	g := guest.NewConn(conn, guest.Options{})
	defer g.Close()
	var out bytes.Buffer
	var once sync.Once
	res, err := g.Exec(t.Context(), guest.Command{Shell: "echo up; sleep 100", Stdout: onWrite(func() {
		once.Do(func() {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		})
	}), Stderr: &out})
	if !errors.Is(err, guest.ErrGone) || res != (guest.Result{}) {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := g.Exec(t.Context(), guest.Command{Shell: "true"}); !errors.Is(err, guest.ErrGone) {
		t.Errorf("later call: %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the guest was not killed")
	}
}

func TestClosingTheStreamEndsTheGuestAndItsProcesses(t *testing.T) {
	t.Parallel()
	cmd, conn, _ := launch(t)
	g := guest.NewConn(conn, guest.Options{})
	if err := g.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	up := make(chan struct{})
	go func() {
		_, err := g.Exec(context.WithoutCancel(t.Context()), guest.Command{Shell: "echo up; sleep 100", Stdout: onWrite(func() { close(up) })})
		done <- err
	}()
	<-up
	g.Close()
	if err := <-done; !errors.Is(err, guest.ErrGone) {
		t.Errorf("got %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("guest ended with %v", err)
	}
}

func TestMarkersOfEndedKeptProcessesAreFreed(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	if r, err := g.Cell(t.Context(), guest.Cell{Code: "x = 1"}); err != nil || r.Code != 0 {
		t.Fatal(r, err) // so that there is always a process
	}
	for i := range 80 {
		o := g.run(t, guest.Command{Shell: "sleep 0.5 & exec 1>&- 2>&-", Keep: true})
		if o.Code != 0 || o.LeftRunning != 1 {
			t.Fatalf("call %d: %+v", i, o)
		}
	}
}
