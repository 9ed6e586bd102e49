package sandboxtest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func lifeRules() []rule {
	return []rule{
		{"FrozenSandboxDoesNothing", freezeAndThaw},
		{"FrozenSandboxCanBeDestroyed", destroyFrozen},
		{"OftenFrozenSandboxRunsOn", freezeOften},
		{"WorkspaceOutlivesItsSandbox", persistence},
		{"PutCutOffLeavesNothing", cutOffPut},
		{"BlankWorkspaceNeedsNoDisk", blank},
		{"LimitsAreInForce", limitsHold},
		{"CPULimitHoldsBack", cpuLimit},
		{"UsageIsCounted", usageCounts},
		{"DestroyIsFinalAndRepeatable", destroyTwice},
		{"CloseDestroysTheLiving", closeDestroys},
		{"SweepLeavesNeighboursAlone", sweepNeighbours},
		{"SpecWithoutLimitsIsRefused", badSpecs},
		{"ManyAtOnce", manyAtOnce},
	}
}

func cpuOf(t *testing.T, b *Box) int64 {
	t.Helper()
	usage, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return usage.CPU
}

func freezeAndThaw(t *testing.T, e *Env) {
	b := start(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		// It is canceled below; how it ends is another rule.
		_, _ = b.Sandbox.Exec(ctx, sandbox.Command{Shell: "echo go; while :; do :; done", Stdout: &attack.FirstWrite{Seen: started}})
	}()
	<-started
	if err := errors.Join(b.Freeze(ctx), b.Freeze(ctx)); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	before := cpuOf(t, b)
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if err := b.Ping(short); err == nil {
		t.Error("a frozen guest answered")
	}
	if after := cpuOf(t, b); after-before > 50_000 {
		t.Errorf("a frozen sandbox used %d µs", after-before)
	}
	if err := errors.Join(b.Thaw(ctx), b.Thaw(ctx)); err != nil {
		t.Fatalf("thaw: %v", err)
	}
	if err := b.Alive(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
}

// freezeOften: what a command leaves ready for the next one may be frozen any number of times in between.
func freezeOften(t *testing.T, e *Env) {
	b := start(t, e)
	const many = "cat f | cat | cat | cat; sha256sum < f | wc -c; cat f"
	sh(t, b, "echo one > f; "+many)
	for range 3 {
		if err := errors.Join(b.Freeze(t.Context()), b.Thaw(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	out := sh(t, b, many)
	wantOutput(t, out, "one\n68\none\n")
	if out.Stderr != "" {
		t.Errorf("stderr %q", out.Stderr)
	}
}

func destroyFrozen(t *testing.T, e *Env) {
	b := start(t, e)
	run(t, b, sandbox.Command{Shell: "setsid sleep 1000 &", Keep: true})
	if err := b.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := b.Destroy(t.Context()); err != nil {
		t.Errorf("destroy a frozen sandbox: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func persistence(t *testing.T, e *Env) {
	b := start(t, e)
	sh(t, b, "echo kept > f; mkdir -p d && ln -s ../f d/l; chmod 640 f; echo t > /tmp/t; touch -d @1000000000 old")
	put(t, b, guest.InputDir+"/in", "input", guest.PutOptions{MkdirAll: true})
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := "cat f d/l; stat -c %a f; stat -c %Y old; cat $INPUT_DIR/in"
	const want = "kept\nkept\n640\n1000000000\ninput"
	again, err := e.Restart(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, sh(t, again, script), want)
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	ws := b.Spec.Workspace
	if err := errors.Join(ws.Sync(t.Context()), ws.Detach(t.Context())); err != nil {
		t.Fatalf("detach: %v", err)
	}
	ws, err = e.Workspaces.Open(ws.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.Spec.Workspace = ws
	third, err := e.Restart(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, sh(t, third, script), want)
	if err := third.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Errorf("detach again: %v", err)
	}
}

// cutOffPut: files that were on their way when the guest was killed are not there afterwards, and not in parts.
func cutOffPut(t *testing.T, e *Env) {
	b := start(t, e)
	sh(t, b, "mkdir d && echo old > d/f && ln -s d l && ln -s d/f g")
	var puts sync.WaitGroup
	stop := make(chan struct{})
	for file, o := range map[string]guest.PutOptions{
		"/workspace/d/f":        {AsCode: true},
		"/workspace/g":          {AsCode: true},
		"/workspace/l/new":      {AsCode: true},
		"/tmp/deep/er/new":      {AsCode: true, MkdirAll: true},
		guest.InputDir + "/new": {},
	} {
		r := &stalling{bytes: 4 * attack.MiB, stalled: make(chan struct{}), stop: stop}
		puts.Go(func() {
			if err := b.Put(t.Context(), file, r, o); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("put of %s: %v, want ErrGone", file, err)
			}
		})
		<-r.stalled
	}
	const find = "find /workspace /tmp /files -name '.airlock*'"
	wantOutput(t, sh(t, b, find+" | wc -l"), "10\n") // each with a note of it
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(stop)
	puts.Wait()
	again, err := e.Restart(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, sh(t, again, find+"; cat d/f; ls d $INPUT_DIR"), "old\n/files/input:\n\nd:\nf\n")
	put(t, again, guest.InputDir+"/new", "whole", guest.PutOptions{})
	wantOutput(t, sh(t, again, find+"; cat $INPUT_DIR/new"), "whole")
}

// stalling gives zeros, more than a guest accepts before it has begun the file, and then nothing until it is stopped.
type stalling struct {
	bytes   int
	stalled chan struct{}
	stop    chan struct{}
}

func (s *stalling) Read(p []byte) (int, error) {
	if s.bytes <= 0 {
		close(s.stalled)
		<-s.stop
		return 0, io.EOF
	}
	n := min(len(p), s.bytes)
	clear(p[:n])
	s.bytes -= n
	return n, nil
}

func blank(t *testing.T, e *Env) {
	b, err := e.StartBlank(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, guest.InputDir+"/in", "input", guest.PutOptions{MkdirAll: true})
	wantOutput(t, sh(t, b, "echo x > f; echo y > /tmp/f; cat f /tmp/f $INPUT_DIR/in"), "x\ny\ninput")
}

func limitsHold(t *testing.T, e *Env) {
	b := start(t, e, attack.Processes(40), attack.OpenFiles(300), attack.FileBytes(5*attack.MiB), attack.Wall(20*time.Second))
	wantOutput(t, sh(t, b, "ulimit -Hn; ulimit -Hf"), "300\n5120\n")
	// A sentry counts a new process late and may let two more through.
	out := run(t, b, sandbox.Command{Argv: []string{"python3", "-c", `import os, time
n = 0
try:
  while n < 200:
    if os.fork() == 0:
      time.sleep(100)
      os._exit(0)
    n += 1
except OSError as e:
  print(e.strerror, n < 42)`}})
	wantOutput(t, out, "Resource temporarily unavailable True\n")
	short := start(t, e, attack.Wall(time.Second))
	began := time.Now()
	// The sandbox's own limit outranks what the caller asks.
	out = run(t, short, sandbox.Command{Shell: "sleep 1000", Timeout: time.Hour})
	if took := time.Since(began); !out.TimedOut || took > attack.CommandTime {
		t.Errorf("the wall limit: %v after %s", out, took)
	}
}

func cpuLimit(t *testing.T, e *Env) {
	// A tenth is reached on a busy machine too.
	b := start(t, e, attack.CPUs(0.1))
	before, began := cpuOf(t, b), time.Now()
	out := run(t, b, sandbox.Command{Shell: "while :; do :; done & while :; do :; done", Timeout: 2 * time.Second})
	took := time.Since(began)
	if !out.TimedOut {
		t.Errorf("two loops: %v", out)
	}
	usage, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if used := usage.CPU - before; used > took.Microseconds()/5+200_000 {
		t.Errorf("a tenth of a CPU used %d µs in %s", used, took)
	}
	if usage.Throttled == 0 {
		t.Error("the CPU limit never held it back")
	}
}

func usageCounts(t *testing.T, e *Env) {
	b := start(t, e)
	before := cpuOf(t, b)
	sh(t, b, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	usage, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if usage.CPU-before < 50_000 || usage.Memory <= 0 || usage.MemoryPeak < usage.Memory/2 || usage.Processes < 1 || usage.OOMKills != 0 {
		t.Errorf("usage after some work: %+v, before %d µs", usage, before)
	}
}

func destroyTwice(t *testing.T, e *Env) {
	b := start(t, e)
	if b.ExitReason() != sandbox.ExitNone {
		t.Errorf("a living sandbox ended by %q", b.ExitReason())
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := b.Destroy(t.Context()); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	group.Wait()
	if err := b.Destroy(t.Context()); err != nil {
		t.Errorf("destroy again: %v", err)
	}
	select {
	case <-b.Done():
	case <-time.After(attack.AliveWithin):
		t.Error("Done is not closed")
	}
	if b.ExitReason() != sandbox.ExitDestroyed {
		t.Errorf("it ended by %q, want destroyed", b.ExitReason())
	}
	if _, err := b.Sh(t.Context(), "true"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a command afterwards: %v, want ErrGone", err)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a ping afterwards: %v, want ErrGone", err)
	}
}

func closeDestroys(t *testing.T, e *Env) {
	other, err := attack.Open(t.Context(), e.Factory, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := other.StartBlank(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Driver.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case <-b.Done():
	case <-time.After(attack.AliveWithin):
		t.Error("close left a sandbox alive")
	}
	if _, err := other.StartBlank(t.Context()); err == nil {
		t.Error("a closed driver made a sandbox")
	}
	if err := other.Close(t.Context()); err != nil {
		t.Errorf("close again: %v", err)
	}
}

func sweepNeighbours(t *testing.T, e *Env) {
	b := start(t, e)
	other, err := attack.Open(t.Context(), e.Factory, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Driver.Sweep(t.Context()), other.Close(t.Context())); err != nil {
		t.Errorf("sweep of another instance: %v", err)
	}
	if err := b.Alive(t.Context()); err != nil {
		t.Errorf("the sandbox of this instance: %v", err)
	}
}

func badSpecs(t *testing.T, e *Env) {
	for name, change := range map[string]Option{
		"no memory limit": attack.Memory(-1), "no process limit": attack.Processes(-1), "no disk limit": attack.Disk(-1), "no inode limit": attack.Inodes(-1),
		"no root": func(s *sandbox.Spec) { s.RootFS = "" }, "relative root": func(s *sandbox.Spec) { s.RootFS = "usr" },
		"id with a slash": func(s *sandbox.Spec) { s.ID = "../x" }, "no id": func(s *sandbox.Spec) { s.ID = "" },
		"variable": attack.Environ(map[string]string{"A=B": "c"}),
	} {
		spec := e.NewSpec([]Option{change})
		sb, err := e.Driver.Create(t.Context(), spec)
		if err == nil {
			t.Errorf("%s: a sandbox was made", name)
			if err := sb.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func manyAtOnce(t *testing.T, e *Env) {
	const many = 12
	var group sync.WaitGroup
	for range many {
		group.Go(func() {
			b, err := e.StartBlank(t.Context())
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			if err := errors.Join(b.Alive(t.Context()), b.Destroy(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
