package container_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// run gives every test a service on each database.
func run(t *testing.T, f func(t *testing.T, e *containertest.Env)) {
	t.Helper()
	dbtest.Run(t, func(t *testing.T, d *db.DB) { f(t, containertest.New(t, d)) })
}

// runAll is run, and once more on gVisor: for what another driver could do otherwise.
func runAll(t *testing.T, f func(t *testing.T, e *containertest.Env)) {
	t.Helper()
	run(t, f)
	t.Run("gvisor", func(t *testing.T) {
		t.Parallel()
		f(t, containertest.NewOn(t, dbtest.SQLite(t), "gvisor"))
	})
}

func create(t *testing.T, e *containertest.Env, p container.CreateParams) *container.Container {
	t.Helper()
	c, err := e.Create(t.Context(), e.Caller, p)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return c
}

func acquire(t *testing.T, e *containertest.Env, id container.ID) *container.Lease {
	t.Helper()
	l, err := e.Acquire(t.Context(), e.Caller, id)
	if err != nil {
		t.Fatalf("acquire %q: %v", id, err)
	}
	return l
}

func wantError(t *testing.T, err error, status int, code string) {
	t.Helper()
	_ = wireError(t, err, status, code)
}

// wireError is wantError for tests that look at more of the error.
func wireError(t *testing.T, err error, status int, code string) *wire.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %d %q", status, code)
	}
	e := wire.AsError(err)
	if e.HTTPStatus() != status || e.Code != code {
		t.Fatalf("got %d %q (%v), want %d %q", e.HTTPStatus(), e.Code, err, status, code)
	}
	return e
}

func TestContainerIsMadeAtFirstNeedAndReused(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		if l.Container() != nil {
			t.Fatal("a lease without need has a container")
		}
		sb, err := l.Sandbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sb.Exec(t.Context(), sandbox.Command{Shell: "echo kept > note"}); err != nil {
			t.Fatal(err)
		}
		id := l.Container().ID
		l.Release(t.Context())
		if out, _ := e.Sh(t, id, "cat note; pwd; id -u"); out != "kept\n/workspace\n1000\n" {
			t.Errorf("second turn says %q", out)
		}
		empty := acquire(t, e, "")
		empty.Release(t.Context())
		page, err := e.List(t.Context(), e.Caller, container.ListParams{})
		if err != nil || len(page.Data) != 1 {
			t.Errorf("%d containers, %v; a turn without need must make none", len(page.Data), err)
		}
	})
}

func TestForeignUnknownAndDeletedContainersAnswerTheSame(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		mine := create(t, e, container.CreateParams{})
		gone := create(t, e, container.CreateParams{})
		if err := e.Delete(t.Context(), e.Caller, gone.ID); err != nil {
			t.Fatal(err)
		}
		user := e.Caller
		user.UserID = "someone"
		for name, try := range map[string]struct {
			caller tenant.Caller
			id     container.ID
		}{
			"another app":  {e.Other, mine.ID},
			"another user": {user, mine.ID},
			"admin":        {tenant.Caller{Admin: true}, mine.ID},
			"unknown":      {e.Caller, container.ID(wire.NewID("container"))},
			"deleted":      {e.Caller, gone.ID},
		} {
			_, getErr := e.Get(t.Context(), try.caller, try.id)
			_, turnErr := e.Acquire(t.Context(), try.caller, try.id)
			delErr := e.Delete(t.Context(), try.caller, try.id)
			_, execErr := e.Exec(t.Context(), try.caller, try.id, sandbox.Command{Shell: "true"}, nil, nil)
			for op, err := range map[string]error{"get": getErr, "acquire": turnErr, "delete": delErr, "exec": execErr} {
				if d := cmp.Diff(wire.NotFound(), wire.AsError(err)); d != "" {
					t.Errorf("%s: %s (-constant +got):\n%s", name, op, d)
				}
			}
		}
		_, err := e.Get(t.Context(), e.Caller, "container x")
		wantError(t, err, 400, "")
	})
}

func TestAppScopeIsSharedInsideTheAppOnly(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		shared := e.Caller
		shared.Scope = tenant.ScopeApp
		c, err := e.Create(t.Context(), shared, container.CreateParams{})
		if err != nil {
			t.Fatal(err)
		}
		user := e.Caller
		user.UserID = "someone"
		if _, err := e.Get(t.Context(), user, c.ID); err != nil {
			t.Errorf("a user of the app: %v", err)
		}
		_, err = e.Get(t.Context(), e.Other, c.ID)
		wantError(t, err, 404, "")
	})
}

// A success answer means that the container is gone: no sandbox, no image, no row anybody can read.
func TestDeleteEndsEverythingEvenDuringATurn(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		started, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			out := writerFunc(func(b []byte) { close(started) })
			_, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "echo; sleep 100"}, out, io.Discard)
			ended <- err
		}()
		<-started
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		wantError(t, err, 500, container.CodeStopped)
		if e.Workspaces.Exists(string(c.ID)) || e.LiveCount() != 0 {
			t.Error("image or sandbox is still there")
		}
		_, err = e.Get(t.Context(), e.Caller, c.ID)
		wantError(t, err, 404, "")
	})
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func TestListPagesAreInOrderAndForTheirCallerOnly(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		var want []container.ID
		for range 5 {
			e.Clock.Add(time.Second)
			want = append([]container.ID{create(t, e, container.CreateParams{}).ID}, want...)
		}
		var got []container.ID
		p := container.ListParams{Limit: 2}
		for {
			page, err := e.List(t.Context(), e.Caller, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Data {
				got = append(got, c.ID)
			}
			if p.Cursor = page.Next; p.Cursor == "" {
				break
			}
			_, err = e.List(t.Context(), e.Other, p)
			wantError(t, err, 400, "")
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("pages (-want +got):\n%s", d)
		}
		page, err := e.List(t.Context(), e.Other, container.ListParams{})
		if err != nil || len(page.Data) != 0 {
			t.Errorf("another app sees %d, %v", len(page.Data), err)
		}
	})
}

func TestContainerThatWasCalledExpiredStaysSoWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*containertest.Env, container.ID) error{
		"turn": func(e *containertest.Env, id container.ID) error {
			_, err := e.Acquire(t.Context(), e.Caller, id)
			return err
		},
		"get": func(e *containertest.Env, id container.ID) error {
			c, err := e.Get(t.Context(), e.Caller, id)
			if err == nil && c.State != container.StateExpired {
				t.Errorf("get: %+v", c)
			}
			return err
		},
	} {
		run(t, func(t *testing.T, e *containertest.Env) {
			c := create(t, e, container.CreateParams{})
			e.Clock.Add(2 * time.Hour)
			_ = ask(e, c.ID) // looked at below
			e.Clock.Add(-2 * time.Hour)
			if seen, err := e.Get(t.Context(), e.Caller, c.ID); err != nil || seen.State != container.StateExpired {
				t.Errorf("%s: %+v, %v", name, seen, err)
			}
			_, err := e.Acquire(t.Context(), e.Caller, c.ID)
			wantError(t, err, 404, container.CodeExpired)
		})
	}
}

func TestCase30ExpiredContainerSaysSoAndFilesOutliveIt(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		f := e.Upload(t, e.Caller, "in.txt", "original")
		c := create(t, e, container.CreateParams{Files: []file.ID{f.ID}})
		e.Clock.Add(time.Hour)
		// By the clock alone, before any sweep.
		_, err := e.Acquire(t.Context(), e.Caller, c.ID)
		got := wireError(t, err, 404, container.CodeExpired)
		if !got.NoRetry || !strings.Contains(got.Message, "container") || !strings.Contains(got.Message, "expired") {
			t.Errorf("got %+v", got)
		}
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e.Workspaces.Exists(string(c.ID)) || e.LiveCount() != 0 {
			t.Error("an expired container keeps its image or sandbox")
		}
		_, err = e.Acquire(t.Context(), e.Caller, c.ID)
		wantError(t, err, 404, container.CodeExpired)
		_, err = e.Acquire(t.Context(), e.Other, c.ID)
		wantError(t, err, 404, "")
		if seen, err := e.Get(t.Context(), e.Caller, c.ID); err != nil || seen.State != container.StateExpired {
			t.Errorf("get: %+v, %v", seen, err)
		}
		// Case 37: the bytes live in the Files API.
		if _, body, err := e.Files.Open(t.Context(), e.Caller, f.ID); err != nil || body.Close() != nil {
			t.Errorf("the uploaded file: %v", err)
		}
	})
}

func TestCase37FileOutlivesTheContainerAndLoadsIntoTheNext(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		f := e.Upload(t, e.Caller, "deck.pptx", "original bytes")
		first := create(t, e, container.CreateParams{Files: []file.ID{f.ID}})
		e.Clock.Add(25 * time.Hour)
		_, err := e.Acquire(t.Context(), e.Caller, first.ID)
		wantError(t, err, 404, container.CodeExpired)
		next := create(t, e, container.CreateParams{Files: []file.ID{f.ID}})
		if out, _ := e.Sh(t, next.ID, "cat /files/input/deck.pptx"); out != "original bytes" {
			t.Errorf("the next container holds %q", out)
		}
	})
}

func TestUseMovesTheExpiryUpToTheMaximumAge(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		e.MaxAge = 100 * time.Minute
		c := create(t, e, container.CreateParams{ExpiresAfter: 30 * time.Minute})
		begin := c.CreatedAt
		for _, want := range []time.Duration{50 * time.Minute, 70 * time.Minute, 90 * time.Minute, 100 * time.Minute, 100 * time.Minute} {
			e.Clock.Add(20 * time.Minute)
			if want == 100*time.Minute {
				e.Clock.Add(-5 * time.Minute)
			}
			e.Sh(t, c.ID, "true")
			now, err := e.Get(t.Context(), e.Caller, c.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got := now.ExpiresAt.Sub(begin); got > want || now.ExpiresAt.After(now.MaxExpiresAt) {
				t.Errorf("expires %v after creation, want at most %v", got, want)
			}
			if now.IdleTTL != 30*time.Minute {
				t.Errorf("its idle time became %v", now.IdleTTL)
			}
		}
	})
}

func TestExpiresAfterIsBounded(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		for _, d := range []time.Duration{time.Second, 31 * 24 * time.Hour, -time.Hour} {
			_, err := e.Create(t.Context(), e.Caller, container.CreateParams{ExpiresAfter: d})
			wantError(t, err, 400, "")
		}
	})
}

func TestCase71TurnsOfOneContainerDoNotInterleave(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		var wg sync.WaitGroup
		outs := make([]bytes.Buffer, 4)
		for i := range outs {
			wg.Go(func() {
				p := sandbox.Command{Shell: "test ! -e busy && touch busy && sleep 0.1 && rm busy && for i in 1 2 3; do echo $i; done"}
				if _, err := e.Exec(t.Context(), e.Caller, c.ID, p, &outs[i], &outs[i]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range outs {
			if got := outs[i].String(); got != "1\n2\n3\n" {
				t.Errorf("turn %d says %q", i, got)
			}
		}
	})
}

func TestBusyContainerAnswers429WithRetryAfter(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		e.BusyWait = -1
		c := create(t, e, container.CreateParams{})
		l := acquire(t, e, c.ID)
		_, err := e.Acquire(t.Context(), e.Caller, c.ID)
		if got := wireError(t, err, 429, container.CodeBusy); got.RetryAfter != 5*time.Second || got.NoRetry {
			t.Errorf("got %+v", got)
		}
		// The turn runs longer than the container would live unused.
		e.Clock.Add(2 * time.Hour)
		if err := e.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = e.Acquire(t.Context(), e.Caller, c.ID)
		wantError(t, err, 429, container.CodeBusy)
		l.Release(t.Context())
		acquire(t, e, c.ID).Release(t.Context())
	})
}

func TestWaiterGetsTheTurnWhenItEnds(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		l := acquire(t, e, c.ID)
		got := make(chan error, 1)
		go func() {
			next, err := e.Acquire(context.WithoutCancel(t.Context()), e.Caller, c.ID)
			if err == nil {
				next.Release(context.WithoutCancel(t.Context()))
			}
			got <- err
		}()
		l.Release(t.Context())
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestRowOfAnotherInstanceIsNotTouched(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "echo mine > f")
		next := e.Neighbour(t)
		_, err := next.Acquire(t.Context(), e.Caller, c.ID)
		wantError(t, err, 529, "")
		if r, err := next.Recover(t.Context()); err != nil || r != (container.Recovered{}) {
			t.Errorf("recover of a neighbour: %+v, %v", r, err)
		}
		e.Clock.Add(2 * time.Hour)
		if err := next.SweepExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !e.Workspaces.Exists(string(c.ID)) {
			t.Error("a neighbour removed the image")
		}
	})
}

func TestIdleSandboxIsFrozenThenDestroyedAndComesBack(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "echo kept > f; (while :; do echo >> tick; sleep 0.01; done) >/dev/null 2>&1 &")
		e.Clock.Add(31 * time.Second)
		e.SweepIdle(t.Context())
		if e.LiveCount() != 1 {
			t.Fatal("a frozen sandbox is gone")
		}
		// Thawed by use, with its processes.
		if out, _ := e.Sh(t, c.ID, "cat f; a=$(wc -c < tick); sleep 0.3; test $a != $(wc -c < tick) && echo runs"); out != "kept\nruns\n" {
			t.Errorf("after the thaw: %q", out)
		}
		e.Clock.Add(10 * time.Minute)
		e.SweepIdle(t.Context())
		if e.LiveCount() != 0 {
			t.Fatal("an idle sandbox lives on")
		}
		if out, _ := e.Sh(t, c.ID, "cat f; a=$(wc -c < tick); sleep 0.1; test $a = $(wc -c < tick) && echo stopped"); out != "kept\nstopped\n" {
			t.Errorf("after it was made again: %q", out)
		}
	})
}

func TestCase75DeadSandboxIsReplacedAtTheNextUse(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "echo kept > f")
		l := acquire(t, e, c.ID)
		sb, err := l.Sandbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = sb.Exec(t.Context(), sandbox.Command{Shell: "true"})
		if !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("a call in a dead sandbox: %v", err)
		}
		again, err := l.Sandbox(t.Context())
		if err != nil || again == sb {
			t.Fatalf("next use: %v", err)
		}
		l.Release(t.Context())
		if out, _ := e.Sh(t, c.ID, "cat f"); out != "kept\n" {
			t.Errorf("workspace of the new sandbox: %q", out)
		}
	})
}

// A guest that is killed from outside while a command runs: the call says that it crashed, and the container goes on.
func TestCase75CrashDuringACommandIsToldAsACrash(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.Sh(t, c.ID, "echo kept > f")
		started, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := e.Exec(t.Context(), e.Caller, c.ID, sandbox.Command{Shell: "echo; sleep 100"},
				writerFunc(func([]byte) { close(started) }), io.Discard)
			ended <- err
		}()
		<-started
		killGuests(t, e.Instance)
		err := <-ended
		wantError(t, err, 500, container.CodeCrashed)
		if out, _ := e.Sh(t, c.ID, "cat f"); out != "kept\n" {
			t.Errorf("after the crash: %q", out)
		}
	})
}

// killGuests kills every process in the cgroups of an instance.
func killGuests(t *testing.T, instance string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err != nil || !strings.Contains(string(b), "airlock-"+instance+"-") {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(p, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		proc, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := proc.Kill(); err == nil {
			n++
		}
	}
	if n == 0 {
		t.Fatal("no process to kill")
	}
}

func TestLostInterpreterIsReportedUntilACellRan(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		use := func(note bool) bool {
			l := acquire(t, e, c.ID)
			defer l.Release(t.Context())
			if _, err := l.Sandbox(t.Context()); err != nil {
				t.Fatal(err)
			}
			lost := l.REPLLost()
			if note {
				if err := l.NoteREPL(t.Context(), true); err != nil {
					t.Fatal(err)
				}
			}
			return lost
		}
		if use(true) {
			t.Error("lost before there was one")
		}
		e.Clock.Add(10 * time.Minute)
		e.SweepIdle(t.Context())
		if !use(false) || !use(true) {
			t.Error("the loss was not reported until the next cell")
		}
		if use(false) {
			t.Error("the loss was reported again")
		}
	})
}

func TestCase70InterpretersOfContainersAreApart(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		for i := range 11 {
			c := create(t, e, container.CreateParams{})
			l := acquire(t, e, c.ID)
			sb, err := l.Sandbox(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			code := "try:\n    print('leak', x)\nexcept NameError:\n    print('clean')\nx = 1\n"
			if _, err := sb.Cell(t.Context(), sandbox.Cell{Code: code, Stdout: &out, Stderr: &out}); err != nil {
				t.Fatal(err)
			}
			if out.String() != "clean\n" {
				t.Errorf("container %d: %q", i, out.String())
			}
			l.Release(t.Context())
		}
	})
}

func TestCase82TenantsHaveDifferentHostUsersAndLeaveNothing(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		a := create(t, e, container.CreateParams{})
		b := create(t, e, container.CreateParams{})
		first, _ := e.Sh(t, a.ID, "cat /proc/self/uid_map; echo secret > /tmp/f; echo secret > /dev/shm/f")
		second, _ := e.Sh(t, b.ID, "cat /proc/self/uid_map; ls /tmp /dev/shm /workspace")
		uid := func(s string) string { return strings.Join(strings.Fields(s)[1:2], "") }
		if uid(first) == uid(second) || uid(first) == "0" {
			t.Errorf("host users %s and %s", uid(first), uid(second))
		}
		if strings.Contains(second, "f\n") {
			t.Errorf("one tenant sees another's files: %q", second)
		}
	})
}

func TestCase83CodeSeesNothingOfTheServersEnvironment(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		out, _ := e.Sh(t, c.ID, "env; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; ls /proc | grep -c '^[0-9]'")
		for _, bad := range []string{"from-the-server", "AIRLOCK_", "PGPASS", "AWS_", os.Getenv("HOME") + "/"} {
			if strings.Contains(out, bad) {
				t.Errorf("code sees %q in\n%s", bad, out)
			}
		}
	})
}

// A deletion that finds the row and no turn would find nothing to end, and the turn would go on without a container.
func TestTurnIsTakenBeforeItsNewContainerCanBeSeen(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		var seen int64
		now := e.Now
		e.Now = func() time.Time { // the turn is the last to ask for the time
			n, err := e.DB.Read().NewSelect().Table("containers").Count(t.Context())
			if err != nil {
				t.Error(err)
			}
			seen += n
			return now()
		}
		_, err := l.Ensure(t.Context())
		e.Now = now
		if err != nil {
			t.Fatal(err)
		}
		if seen != 0 {
			t.Errorf("the row was there %d times before the turn was taken", seen)
		}
	})
}
