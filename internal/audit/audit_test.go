package audit_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type fixture struct {
	*audit.Log
	t   *testing.T
	mu  sync.Mutex
	now time.Time
}

func run(t *testing.T, fn func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		x := &fixture{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
		x.Log = &audit.Log{DB: d, CursorKey: wire.NewCursorKey(), Now: x.clock}
		fn(t, x)
	})
}

func (x *fixture) clock() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

func (x *fixture) advance(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = x.now.Add(d)
}

func (x *fixture) list(q audit.Query) []audit.Entry {
	x.t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	all, _, err := x.List(x.t.Context(), q)
	if err != nil {
		x.t.Fatal(err)
	}
	return all
}

func TestEntriesAreKeptAndFound(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ctx := wire.WithRequestID(t.Context(), "req_1")
		for i := range 5 {
			x.Write(ctx, audit.Event{Level: audit.Warn, AppID: fmt.Sprintf("app_%d", i%2), User: "idp/u", Event: "token.refused", Detail: fmt.Sprint(i)})
			x.advance(time.Minute)
		}
		x.Write(t.Context(), audit.Event{Event: "app.created", RequestID: "req_2"})
		all := x.list(audit.Query{})
		if len(all) != 6 || all[0].Event.Event != "app.created" || all[0].Level != audit.Info || all[0].RequestID != "req_2" || all[1].RequestID != "req_1" || all[1].Detail != "4" {
			t.Errorf("%+v", all)
		}
		for want, q := range map[int]audit.Query{
			3: {AppID: "app_0"}, 5: {User: "idp/u"}, 1: {Event: "app.created"}, 2: {Since: x.clock().Add(-time.Minute)}, 0: {AppID: "app_9"},
		} {
			if got := x.list(q); len(got) != want {
				t.Errorf("%+v: %d entries, want %d", q, len(got), want)
			}
		}
		var seen []string
		for page := ""; ; {
			part, next, err := x.List(t.Context(), audit.Query{Limit: 2, Page: page})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range part {
				seen = append(seen, e.ID)
			}
			if page = next; page == "" {
				break
			}
			if _, _, err := x.List(t.Context(), audit.Query{Limit: 2, Page: page, AppID: "app_0"}); err == nil {
				t.Error("a page of one list serves another")
			}
		}
		if len(seen) != 6 {
			t.Errorf("%d entries over pages", len(seen))
		}
		for _, bad := range []string{"a\x00", "\xff"} {
			if got := x.list(audit.Query{User: bad}); len(got) != 0 {
				t.Error(got)
			}
		}
	})
}

func TestEqualEventsOfAFlushAreOneEntry(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for range 1000 {
			x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "expired"})
		}
		x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "other"})
		all := x.list(audit.Query{})
		if len(all) != 2 || all[0].Count+all[1].Count != 1001 {
			t.Errorf("%+v", all)
		}
		x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "expired"})
		if all := x.list(audit.Query{}); len(all) != 3 {
			t.Errorf("%d entries after the next flush", len(all))
		}
	})
}

func TestWhatDoesNotFitIsCounted(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		const n = 5000
		for i := range n {
			x.Write(t.Context(), audit.Event{Event: "e", Detail: fmt.Sprint(i)})
		}
		var kept, dropped int64
		for _, e := range x.list(audit.Query{Limit: 10_000}) {
			if e.Event.Event == "audit.dropped" {
				dropped = e.Count
			} else {
				kept++
			}
		}
		if kept != 4096 || kept+dropped != n {
			t.Errorf("%d kept, %d dropped", kept, dropped)
		}
	})
}

func TestTextsAreMadeStorable(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.Write(t.Context(), audit.Event{Event: "e", User: "a\x00\xffb", Detail: strings.Repeat("ü", 2000)})
		all := x.list(audit.Query{})
		if len(all) != 1 || all[0].User != "a\uFFFD\uFFFDb" || len(all[0].Detail) > 1100 || !strings.HasSuffix(all[0].Detail, "ü…") {
			t.Errorf("%+v", all)
		}
	})
}

func TestAFailedFlushKeepsItsEntries(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.Write(t.Context(), audit.Event{Event: "one"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := x.Flush(ctx); err == nil {
			t.Fatal("a flush without a database succeeds")
		}
		x.Write(t.Context(), audit.Event{Event: "two"})
		if all := x.list(audit.Query{}); len(all) != 2 {
			t.Errorf("%+v", all)
		}
	})
}

func TestCloseWritesWhatIsLeft(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.Start(t.Context())
		x.Start(t.Context())
		x.Write(t.Context(), audit.Event{Event: "one"})
		for range 2 {
			if err := x.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		again := &audit.Log{DB: x.DB, CursorKey: x.CursorKey, Now: x.clock}
		all, _, err := again.List(t.Context(), audit.Query{Limit: 10})
		if err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
		var none *audit.Log
		none.Write(t.Context(), audit.Event{Event: "nobody listens"})
	})
}

func TestSweepBoundsAgeAndNumber(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.Keep, x.Max = time.Hour, 3
		for i := range 6 {
			x.Write(t.Context(), audit.Event{Event: fmt.Sprint("e", i)})
			x.advance(time.Minute)
		}
		left := func() string {
			t.Helper()
			x.list(audit.Query{}) // writes what waits
			if err := x.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range x.list(audit.Query{}) {
				names = append(names, e.Event.Event)
			}
			return strings.Join(names, " ")
		}
		if got := left(); got != "e5 e4 e3" {
			t.Errorf("left %q", got)
		}
		x.advance(56 * time.Minute) // e3 is 59 minutes old
		if got := left(); got != "e5 e4 e3" {
			t.Errorf("left %q", got)
		}
		x.advance(2 * time.Minute)
		if got := left(); got != "e5 e4" {
			t.Errorf("left %q", got)
		}
	})
}
