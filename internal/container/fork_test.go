package container_test

import (
	"context"
	"io"
	"path"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func fork(t *testing.T, e *containertest.Env, id container.ID) *container.Container {
	t.Helper()
	c, err := e.Fork(t.Context(), e.Caller, id)
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	return c
}

func TestForkHasTheFilesAndALifeOfItsOwn(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		f := e.Upload(t, e.Caller, "in.txt", "input")
		src := create(t, e, container.CreateParams{Files: []file.ID{f.ID}, ExpiresAfter: 2 * time.Hour})
		python(t, e, src.ID, someTree, "0")
		tree := python(t, e, src.ID, treeHash)
		e.Clock.Add(10 * time.Minute)
		c := fork(t, e, src.ID)
		if c.Owner != src.Owner || c.RootFS != src.RootFS || c.IdleTTL != src.IdleTTL || c.ID == src.ID {
			t.Errorf("the fork is %+v of %+v", c, src)
		}
		if want := e.Clock.Now().Add(2 * time.Hour); !c.ExpiresAt.Equal(want) || !c.CreatedAt.Equal(e.Clock.Now()) ||
			!c.MaxExpiresAt.After(src.MaxExpiresAt) {
			t.Errorf("the fork expires %s, at the latest %s", c.ExpiresAt, c.MaxExpiresAt)
		}
		if got := python(t, e, c.ID, treeHash); got != tree {
			t.Error("the files differ")
		}
		// The fork knows what it was given: the file is not put in again.
		l := acquire(t, e, c.ID)
		if p, err := l.AddFile(t.Context(), e.Caller, f); err != nil || path.Base(p) != "in.txt" {
			t.Errorf("input of the fork: %q, %v", p, err)
		}
		l.Release(t.Context())
		e.Sh(t, c.ID, "echo fork > side; rm -r d0/deep/data")
		if out, _ := e.Sh(t, src.ID, "cat side; ls d0/deep"); out != "cat: side: No such file or directory\ndata\ner\n" {
			t.Errorf("the source sees %q", out)
		}
		e.Sh(t, src.ID, "echo source > side")
		if out, _ := e.Sh(t, c.ID, "cat side"); out != "fork\n" {
			t.Errorf("the fork sees %q", out)
		}
		if err := e.Delete(t.Context(), e.Caller, src.ID); err != nil {
			t.Fatal(err)
		}
		if out, _ := e.Sh(t, c.ID, "cat side"); out != "fork\n" {
			t.Errorf("after the source is gone: %q", out)
		}
	})
}

// A process that the source left running is stopped for the copy, and goes on after it. The two files it keeps equal, one
// after the other, are at most one step apart in the fork.
func TestForkOfARunningContainerIsOneMoment(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		src := create(t, e, container.CreateParams{})
		e.Sh(t, src.ID, `(i=0; while :; do i=$((i+1)); echo $i > a.new; mv a.new a; echo $i > b.new; mv b.new b; done) >/dev/null 2>&1 &
			while ! [ -s b ]; do :; done`)
		for range 5 {
			c := fork(t, e, src.ID)
			out, res := e.Sh(t, c.ID, `read a < a; read b < b; echo $a $b; [ $((a - b)) -le 1 ] && [ $((a - b)) -ge 0 ]`)
			if res.Code != 0 {
				t.Errorf("the fork has %s", out)
			}
			if out, res := e.Sh(t, src.ID, `read a < a; while read b < a; [ "$a" = "$b" ]; do :; done`); res.Code != 0 {
				t.Errorf("the process of the source stands: %s", out)
			}
		}
	})
}

func TestForkOfAFrozenContainerAndOfAPackedOneThatStaysPacked(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		id := lasting(t, e)
		e.Sh(t, id, "echo one > f")
		e.Clock.Add(31 * time.Second)
		e.SweepIdle(t.Context())
		c := fork(t, e, id)
		if out, _ := e.Sh(t, c.ID, "cat f"); out != "one\n" {
			t.Errorf("fork of the frozen one: %q", out)
		}
		if out, _ := e.Sh(t, id, "cat f"); out != "one\n" {
			t.Errorf("the frozen one: %q", out)
		}
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Fatal(err)
		}
		rest(t, e, id)
		c = fork(t, e, id)
		if len(packs(t, e)) != 1 || e.Workspaces.Exists(string(id)) {
			t.Error("the source was unpacked")
		}
		if out, _ := e.Sh(t, c.ID, "cat f"); out != "one\n" {
			t.Errorf("fork of the packed one: %q", out)
		}
		if out, _ := e.Sh(t, id, "cat f"); out != "one\n" {
			t.Errorf("the packed one: %q", out)
		}
	})
}

func TestForkOfAnUnusedContainerIsBlank(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := fork(t, e, create(t, e, container.CreateParams{}).ID)
		if out, _ := e.Sh(t, c.ID, "ls -A"); out != "" {
			t.Errorf("it has %q", out)
		}
	})
}

func TestForkWaitsItsTurn(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		e.BusyWait = -1
		l := acquire(t, e, c.ID)
		_, err := e.Fork(t.Context(), e.Caller, c.ID)
		wantError(t, err, 429, container.CodeBusy)
		l.Release(t.Context())
		fork(t, e, c.ID)
	})
}

func TestForkOfWhatOneMayNotUseAnswersLikeEverythingElse(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		mine := create(t, e, container.CreateParams{})
		user := e.Caller
		user.UserID = "someone"
		for name, try := range map[string]struct {
			caller tenant.Caller
			id     container.ID
		}{
			"another app":  {e.Other, mine.ID},
			"another user": {user, mine.ID},
			"unknown":      {e.Caller, container.ID(wire.NewID("container"))},
		} {
			_, err := e.Fork(t.Context(), try.caller, try.id)
			if d := cmp.Diff(wire.NotFound(), wire.AsError(err)); d != "" {
				t.Errorf("%s (-constant +got):\n%s", name, d)
			}
		}
		_, err := e.Fork(t.Context(), e.Caller, "")
		wantError(t, err, 400, "")
		e.Clock.Add(2 * time.Hour)
		_, err = e.Fork(t.Context(), e.Caller, mine.ID)
		wantError(t, err, 404, container.CodeExpired)
	})
}

// A fork has the scope of its source, and belongs to whoever made it.
func TestForkStaysInItsScope(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		shared := e.Caller
		shared.Scope = tenant.ScopeApp
		src, err := e.Create(t.Context(), shared, container.CreateParams{})
		if err != nil {
			t.Fatal(err)
		}
		user := e.Caller
		user.UserID = "someone"
		c, err := e.Fork(t.Context(), user, src.ID)
		if want := (tenant.Owner{AppID: user.AppID, UserID: "someone", Scope: tenant.ScopeApp}); err != nil || c.Owner != want {
			t.Errorf("owner %+v, %v", c.Owner, err)
		}
	})
}

func TestDeletingTheSourceEndsAFork(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		src := create(t, e, container.CreateParams{})
		started := make(chan struct{})
		go func() {
			_, _ = e.Exec(context.WithoutCancel(t.Context()), e.Caller, src.ID, sandbox.Command{Shell: "echo; sleep 100"},
				writerFunc(func([]byte) { close(started) }), io.Discard)
		}()
		<-started
		got := make(chan error, 1)
		go func() {
			_, err := e.Fork(t.Context(), e.Caller, src.ID)
			got <- err
		}()
		if err := e.Delete(t.Context(), e.Caller, src.ID); err != nil {
			t.Fatal(err)
		}
		wantError(t, <-got, 404, "")
	})
}
