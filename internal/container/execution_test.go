package container_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/usage/usagetest"
)

// burn is a program that uses 0.3 s of processor time and then does something.
const burn = `python3 -c 'import time,os,signal

while time.process_time() < 0.3: pass
open("done","w"); signal.pause()'`

const burnt = 300 * time.Millisecond

// accounts writes what is to be written and reads the accounts of a container.
func accounts(t *testing.T, e *containertest.Env, id container.ID) []usage.Execution {
	t.Helper()
	if err := e.Usage.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := usagetest.Executions(t.Context(), e.DB, e.Caller, string(id))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What a call used is counted in seconds of the sandbox, and not only in the tokens of a model.
func TestCase28EachCallHasOneAccountOfItsSeconds(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		f := e.Upload(t, e.Caller, "in.txt", strings.Repeat("i", 300))
		c := create(t, e, container.CreateParams{Files: []file.ID{f.ID}})
		stdin := strings.Repeat("s", 500)
		p := sandbox.Command{Argv: []string{"sh", "-c", "head -c 700; head -c 1000 /dev/zero; exit 7"}, Stdin: strings.NewReader(stdin)}
		if _, err := e.Exec(t.Context(), e.Caller, c.ID, p, nil, nil); err != nil {
			t.Fatal(err)
		}
		l := acquire(t, e, c.ID)
		if _, err := l.AddFile(t.Context(), e.Caller, e.Upload(t, e.Caller, "more.txt", strings.Repeat("m", 40))); err != nil {
			t.Fatal(err)
		}
		dir, err := l.OutputDir(t.Context(), "call1")
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Metered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Exec(t.Context(), guest.Command{Shell: "head -c 2000 /dev/zero > " + dir + "/out"}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.Export(t.Context(), "call1"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Cell(t.Context(), guest.Cell{Code: "print('x' * 9)"}); err != nil {
			t.Fatal(err)
		}
		l.Release(t.Context())
		all := accounts(t, e, c.ID)
		if len(all) != 3 {
			t.Fatalf("%d accounts for three calls: %+v", len(all), all)
		}
		byKind := map[usage.Kind]usage.Execution{}
		for _, a := range all {
			byKind[a.Kind] = a
			if a.Owner != e.Caller.Owner() || a.ContainerID != string(c.ID) || a.Outcome != usage.OutcomeExited || a.Wall <= 0 || a.CPU <= 0 || a.PeakBytes <= 0 {
				t.Errorf("account %+v", a)
			}
		}
		for kind, want := range map[usage.Kind][3]int64{
			usage.KindExec: {500 + int64(len(strings.Join(p.Argv, ""))), 1500, 7},
			usage.KindBash: {int64(len("head -c 2000 /dev/zero > "+dir+"/out")) + 40, 2000, 0},
			usage.KindCell: {int64(len("print('x' * 9)")), 10, 0},
		} {
			if a := byKind[kind]; a.BytesIn != want[0] || a.BytesOut != want[1] || int64(a.ExitCode) != want[2] {
				t.Errorf("%s: in %d, out %d, code %d; want %v", kind, a.BytesIn, a.BytesOut, a.ExitCode, want)
			}
		}
		if other, err := usagetest.Executions(t.Context(), e.DB, e.Other, string(c.ID)); err != nil || len(other) != 0 {
			t.Errorf("another app reads %d accounts, %v", len(other), err)
		}
	})
}

// Files that were put in for a command that could not start are those of the one that could.
func TestInputFilesCountForTheFirstCommandThatStarts(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		if _, err := l.AddFile(t.Context(), e.Caller, e.Upload(t, e.Caller, "in.txt", strings.Repeat("i", 4000))); err != nil {
			t.Fatal(err)
		}
		m, err := l.Metered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Exec(t.Context(), guest.Command{Argv: []string{"/no/such/program"}}); err == nil {
			t.Fatal("a program that does not exist was started")
		}
		for range 2 {
			if _, err := m.Exec(t.Context(), guest.Command{Argv: []string{"true"}}); err != nil {
				t.Fatal(err)
			}
		}
		l.Release(t.Context())
		all := accounts(t, e, l.Container().ID)
		if len(all) != 2 || all[0].BytesIn+all[1].BytesIn != 4000+2*int64(len("true")) {
			t.Errorf("accounts %+v", all)
		}
	})
}

// Nobody waits for a daemon, and one that is killed reports nothing: the kernel has counted both.
func TestProcessorTimeOfDaemonsAndKilledProcessesCounts(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		for name, command := range map[string]string{
			"daemon": `(setsid ` + burn + ` >/dev/null 2>&1 &) ; while ! [ -e done ]; do sleep 0.01; done; rm done`,
			"killed": `(setsid ` + burn + ` >/dev/null 2>&1 & echo $! > pid) ; while ! [ -e done ]; do sleep 0.01; done; kill -9 $(cat pid); rm done`,
		} {
			if out, res := e.Sh(t, c.ID, command); res.CPU < burnt || res.Code != 0 {
				t.Errorf("%s: %s counted, code %d: %s", name, res.CPU, res.Code, out)
			}
		}
		if _, res := e.Sh(t, c.ID, "true"); res.CPU >= burnt {
			t.Errorf("a call that does nothing pays %s", res.CPU)
		}
	})
}

func TestProcessorTimeBetweenCallsIsBookedWhenTheSandboxEnds(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, `(while ! [ -e go ]; do sleep 0.01; done; `+burn+`) >/dev/null 2>&1 &`)
		l := acquire(t, e, c.ID)
		sb, err := l.Sandbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Put(t.Context(), "/workspace/go", strings.NewReader(""), guest.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		// The bare sandbox keeps no accounts.
		if _, err := sb.Exec(t.Context(), guest.Command{Shell: "while ! [ -e done ]; do sleep 0.01; done"}); err != nil {
			t.Fatal(err)
		}
		l.Release(t.Context())
		e.Clock.Add(11 * time.Minute)
		e.SweepIdle(t.Context())
		all := accounts(t, e, c.ID)
		if len(all) != 2 || all[0].Kind == all[1].Kind {
			t.Fatalf("accounts %+v", all)
		}
		for _, a := range all {
			if (a.CPU >= burnt) != (a.Kind == usage.KindBackground) {
				t.Errorf("%s pays %s", a.Kind, a.CPU)
			}
		}
	})
}

// A sandbox that ends under a call leaves no processor time unpaid.
func TestAccountOfACallWhoseContainerIsDeleted(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		started, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{
				Shell: burn + ` & while ! [ -e done ]; do sleep 0.01; done; echo; sleep 100`,
			}, writerFunc(func([]byte) { close(started) }), io.Discard)
			ended <- err
		}()
		<-started
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		wantError(t, <-ended, 500, container.CodeStopped)
		var cpu time.Duration
		var outcome usage.Outcome
		for _, a := range accounts(t, e, c.ID) {
			cpu += a.CPU
			if a.Kind == usage.KindExec {
				outcome = a.Outcome
				if a.ExitCode != -1 || a.Wall <= 0 {
					t.Errorf("account %+v", a)
				}
			}
		}
		if cpu < burnt || cpu > 100*burnt || outcome != usage.OutcomeGone {
			t.Errorf("%s paid, outcome %q", cpu, outcome)
		}
	})
}

// Which of the two a call hears of first, the end of its turn or that of its sandbox, is chance, and makes no difference.
func TestOutcomeOfACallWhoseContainerEnds(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("exec: %w", sandbox.ErrGone)
	for name, tt := range map[string]struct {
		r      sandbox.Result
		err    error
		reason sandbox.ExitReason
		ended  bool
		want   usage.Outcome
	}{
		"the end of its turn first":       {r: sandbox.Result{Canceled: true}, err: context.Canceled, ended: true, want: usage.OutcomeGone},
		"the end of its sandbox first":    {err: gone, reason: sandbox.ExitDestroyed, ended: true, want: usage.OutcomeGone},
		"of its sandbox alone":            {err: gone, reason: sandbox.ExitDestroyed, want: usage.OutcomeGone},
		"it had ended before":             {ended: true, want: usage.OutcomeExited},
		"its time was over before":        {r: sandbox.Result{TimedOut: true}, ended: true, want: usage.OutcomeTimedOut},
		"nobody waits for it":             {r: sandbox.Result{Canceled: true}, err: context.Canceled, want: usage.OutcomeCanceled},
		"memory ended the sandbox before": {err: gone, reason: sandbox.ExitOOM, ended: true, want: usage.OutcomeMemory},
	} {
		if got := container.OutcomeOf(tt.r, tt.err, tt.reason, tt.ended); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestPeakOfMemoryIsThatOfTheCall(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		const size = 100 << 20
		_, res := e.Sh(t, c.ID, `python3 -c 'b = b"x" * (100 << 20)' & wait`)
		if res.MemoryPeak < size {
			t.Errorf("a command that takes %d has a peak of %d", size, res.MemoryPeak)
		}
		if _, res := e.Sh(t, c.ID, "true"); res.MemoryPeak >= size || res.MemoryPeak <= 0 {
			t.Errorf("the next one has a peak of %d", res.MemoryPeak)
		}
	})
}

func TestAccountsTellTheEndsApart(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		if _, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "sleep 100", Timeout: 200 * time.Millisecond}, nil, nil); err != nil {
			t.Fatal(err)
		}
		e.Clock.Add(time.Second)
		_, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: `python3 -c 'b = b"x" * (1 << 30)'`}, nil, nil)
		if e.Driver.Name() == "gvisor" { // the limit ends the whole sandbox
			wantError(t, err, 500, container.CodeOutOfMemory)
		} else if err != nil {
			t.Fatal(err)
		}
		e.Clock.Add(time.Second)
		_, err = e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "echo; sleep 100"}, failWriter{}, nil)
		if err == nil {
			t.Fatal("the client is gone and nobody noticed")
		}
		var got []usage.Outcome
		for _, a := range accounts(t, e, c.ID) {
			if a.Kind == usage.KindExec { // what a sandbox that ended leaves over has an account, too
				got = append(got, a.Outcome)
			}
		}
		if len(got) != 3 || got[0] != usage.OutcomeTimedOut || got[1] != usage.OutcomeMemory || got[2] != usage.OutcomeCanceled {
			t.Errorf("outcomes %v", got)
		}
	})
}

type failWriter struct{}

func (failWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
