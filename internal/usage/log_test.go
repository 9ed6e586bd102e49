package usage_test

import (
	"context"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/usage/usagetest"
)

// The answer to a commit can be lost: what was written is written again, once.
func TestAccountsAreWrittenOnceHoweverOftenTheyAreTried(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		e := containertest.New(t, d)
		c, err := e.Create(t.Context(), e.Caller, container.CreateParams{})
		if err != nil {
			t.Fatal(err)
		}
		l := e.Usage
		account := func(id string, kind usage.Kind) usage.Execution {
			return usage.Execution{
				ID: id, ContainerID: string(c.ID), Owner: e.Caller.Owner(), Kind: kind, Outcome: usage.OutcomeExited,
				StartedAt: e.Clock.Now(),
			}
		}
		written := func() []usage.Execution {
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			all, err := usagetest.Executions(t.Context(), d, e.Caller, string(c.ID))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		l.Add(account("exec_1", usage.KindExec))
		written()
		for _, id := range []string{"exec_1", "exec_2"} {
			l.Add(account(id, usage.KindExec))
		}
		if all := written(); len(all) != 2 || l.Dropped() != 0 {
			t.Errorf("%d dropped, written %+v", l.Dropped(), all)
		}
		// A database that takes nothing at the moment loses nothing.
		for _, id := range []string{"exec_3", "exec_4", "exec_5", "exec_6", "exec_7"} {
			l.Add(account(id, usage.KindExec))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Flush(gone); err == nil {
			t.Error("written after the end")
		}
		if all := written(); len(all) != 7 || l.Dropped() != 0 {
			t.Errorf("%d dropped, written %+v", l.Dropped(), all)
		}
		// One that it never takes holds up no other.
		l.Add(account("exec_8", "nonsense"))
		l.Add(account("exec_9", usage.KindExec))
		if all := written(); len(all) != 8 || l.Dropped() != 1 {
			t.Errorf("%d dropped, written %+v", l.Dropped(), all)
		}
	})
}

func TestAccountsThatCannotWaitAnyMoreAreCounted(t *testing.T) {
	t.Parallel()
	l := &usage.Log{}
	for range 100_002 {
		l.Add(usage.Execution{})
	}
	if n := l.Dropped(); n != 2 {
		t.Errorf("%d dropped", n)
	}
}
