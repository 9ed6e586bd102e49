package container_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/usage"
)

// as gives the same service to another caller.
func as(e *containertest.Env, user string) *containertest.Env {
	other := *e
	other.Caller.UserID = user
	return &other
}

// onSQLite runs a test of what the database has no part in.
func onSQLite(t *testing.T, f func(t *testing.T, e *containertest.Env)) {
	t.Helper()
	f(t, containertest.New(t, dbtest.SQLite(t)))
}

func tried(t *testing.T, e *containertest.Env, id container.ID) error {
	t.Helper()
	_, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: "true"}, nil, nil)
	return err
}

// A tenant would else hold as many sandboxes as he likes, each for the time that an answer may take.
func TestParkedRunHasTheShareOfItsCaller(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, e *containertest.Env) {
		e.PerApp, e.PerUser = 2, 1
		u, v, w := as(e, "idp/u"), as(e, "idp/v"), as(e, "idp/w")
		box := create(t, u, container.CreateParams{})
		next := create(t, u, container.CreateParams{})
		p := wait(t, u, box.ID, askTwice)
		wantError(t, tried(t, u, next.ID), 429, container.CodeTooMany)
		// The container itself takes no second share, whatever is done in it, and whether or not that uses the sandbox.
		if err := tried(t, u, box.ID); err != nil {
			t.Fatal(err)
		}
		acquire(t, u, box.ID).Release(t.Context())
		wantError(t, tried(t, u, next.ID), 429, container.CodeTooMany)
		// Of the app it is one of two.
		q := wait(t, v, create(t, v, container.CreateParams{}).ID, "await ask({})")
		third := create(t, w, container.CreateParams{})
		wantError(t, tried(t, w, third.ID), 429, container.CodeTooMany)
		// It keeps the share when it goes on, parks again, and goes on by itself because its time is over.
		p.park(t, p.resume(t, u, "one "))
		wantError(t, tried(t, u, next.ID), 429, container.CodeTooMany)
		e.Clock.Add(time.Minute)
		e.SweepParked(t.Context())
		wantError(t, tried(t, w, third.ID), 429, container.CodeTooMany)
		for _, r := range []*waiter{p, q} {
			l := <-r.due
			if err := l.Resume(t.Context(), r.run); err != nil {
				t.Fatal(err)
			}
			r.answer <- "late"
			<-r.run.Done()
			close(r.goOn)
		}
		acquire(t, u, box.ID).Release(t.Context()) // the turns of both have ended
		acquire(t, v, q.id).Release(t.Context())
		for _, err := range []error{tried(t, u, next.ID), tried(t, v, q.id), tried(t, w, third.ID)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// However the code ends, its share is free.
func TestShareOfAParkedRunEndsWithIt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *containertest.Env, *waiter){
		"deleted": func(t *testing.T, e *containertest.Env, w *waiter) {
			if err := e.Delete(t.Context(), e.Caller, w.id); err != nil {
				t.Fatal(err)
			}
		},
		"replaced": func(t *testing.T, e *containertest.Env, w *waiter) {
			l := acquire(t, e, w.id)
			defer l.Release(t.Context())
			if err := l.EndParked(t.Context(), context.Canceled); err != nil {
				t.Fatal(err)
			}
		},
		"died": func(t *testing.T, e *containertest.Env, w *waiter) {
			l := acquire(t, e, w.id)
			sb, err := l.Sandbox(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l.Release(t.Context())
			if err := sb.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-w.run.Done()
			e.SweepParked(t.Context())
			if err := (<-w.due).Resume(t.Context(), w.run); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("resumed: %v", err)
			}
			close(w.goOn)
			acquire(t, e, w.id).Release(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSQLite(t, func(t *testing.T, e *containertest.Env) {
				e.PerApp = 1
				w := wait(t, e, create(t, e, container.CreateParams{}).ID, "await ask({})")
				other := create(t, e, container.CreateParams{})
				wantError(t, tried(t, e, other.ID), 429, container.CodeTooMany)
				end(t, e, w)
				if err := tried(t, e, other.ID); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// busy begins a turn that uses the sandbox of a new container, and leaves it open.
func busy(t *testing.T, e *containertest.Env) (*container.Lease, error) {
	t.Helper()
	l := acquire(t, e, create(t, e, container.CreateParams{}).ID)
	t.Cleanup(func() { l.Release(context.WithoutCancel(t.Context())) })
	_, err := l.Sandbox(t.Context())
	return l, err
}

// With memory for four sandboxes those that come need the memory of others: first of one that is idle, then of code that
// waits, of the app with most sandboxes and there of what waits longest, and never of code that works.
func TestParkedRunsMakeRoomAfterAllThatAreIdle(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, e *containertest.Env) {
		const share = 1 << 40 // more than anything uses, so that the count decides
		e.Admission = &admission.Queue{
			Memory: func() (int64, int64, error) { return 4*share + 1, 4*share + 1, nil }, Reserve: 1, Share: share, Wait: time.Minute,
		}
		two := *e
		two.Caller = e.Other
		begin := func(e *containertest.Env) *waiter {
			e.Clock.Add(time.Second)
			return wait(t, e, create(t, e, container.CreateParams{}).ID, "open('f', 'w').write('kept')\nx = 5\nawait ask({})")
		}
		oldest, first, second := begin(&two), begin(e), begin(e)
		e.Clock.Add(time.Second)
		if err := tried(t, e, create(t, e, container.CreateParams{}).ID); err != nil { // the idle one
			t.Fatal(err)
		}
		parked := []*waiter{first, second, oldest}
		for i := range 4 {
			if _, err := busy(t, e); err != nil {
				t.Fatal(err)
			}
			for j, w := range parked {
				if gone := over(w.run); gone != (j < i) {
					t.Fatalf("after %d starts run %d has ended: %v", i+1, j, gone)
				}
			}
		}
		if e.ParkedCount() != 0 {
			t.Errorf("%d parked", e.ParkedCount())
		}
		e.Admission.Wait = time.Millisecond
		_, err := busy(t, e)
		wantError(t, err, 529, "memory_full")
		// Whoever answers finds the sandbox gone, and the files there.
		l := acquire(t, &two, oldest.id)
		defer l.Release(t.Context())
		if err := l.Resume(t.Context(), oldest.run); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("resumed: %v", err)
		}
		if _, err := oldest.run.Result(); err == nil {
			t.Error("it ended well")
		}
		if all := accounts(t, &two, oldest.id); !slices.ContainsFunc(all, func(x usage.Execution) bool { return x.Kind == usage.KindCell }) {
			t.Errorf("accounts %+v", all)
		}
	})
}

func over(r *container.Parkable) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

// Code that works without a turn, and a result that nobody has taken yet, are not what waits.
func TestParkedRunThatWorksOrHasEndedMakesNoRoom(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, e *containertest.Env) {
		const share = 1 << 40
		e.Admission = &admission.Queue{
			Memory: func() (int64, int64, error) { return 2*share + 1, 2*share + 1, nil }, Reserve: 1, Share: share, Wait: time.Millisecond,
		}
		w := wait(t, e, create(t, e, container.CreateParams{}).ID, "await ask({})\nawait ask({})")
		l := w.resume(t, e, "")
		<-w.asked // it stands for code at work
		l.Park(w.run, container.Parking{Busy: true, Wait: time.Hour, Due: func(context.Context, *container.Lease) {}})
		l.Release(t.Context())
		l = acquire(t, e, create(t, e, container.CreateParams{}).ID)
		m, err := l.Metered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := m.Begin(t.Context(), sandbox.Cell{Code: "pass"}, func() {})
		<-done.Done()
		l.Park(done, container.Parking{Wait: time.Hour, Due: func(context.Context, *container.Lease) {}})
		l.Release(t.Context())
		_, err = busy(t, e)
		wantError(t, err, 529, "memory_full")
		if over(w.run) || e.ParkedCount() != 2 {
			t.Errorf("ended %v, %d parked", over(w.run), e.ParkedCount())
		}
	})
}
