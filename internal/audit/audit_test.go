package audit_test

import (
	"context"
	"errors"
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
	dbtest.Run(t, func(t *testing.T, d *db.DB) { fn(t, newFixture(t, d)) })
}

// runOnce is run for what has nothing to do with the database.
func runOnce(t *testing.T, fn func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	fn(t, newFixture(t, dbtest.SQLite(t)))
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	x := &fixture{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	x.Log = &audit.Log{DB: d, CursorKey: wire.NewCursorKey(), Now: x.clock}
	return x
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
		for request, want := range map[string]int{"req_1": 5, "req_2": 1, "req_3": 0} {
			if got := x.list(audit.Query{RequestID: request}); len(got) != want {
				t.Errorf("%s: %d entries, want %d", request, len(got), want)
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

func TestEqualEventsOfAnHourAreOneEntry(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		began := x.clock()
		for range 1000 {
			x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "expired"})
		}
		x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "other"})
		all := x.list(audit.Query{})
		if len(all) != 2 || all[0].Count+all[1].Count != 1001 {
			t.Errorf("%+v", all)
		}
		// A flood of them over days is a few rows, also over many flushes.
		for range 59 {
			x.advance(time.Minute)
			x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "expired"})
			if err := x.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		expired := func(want int, q audit.Query) audit.Entry {
			t.Helper()
			var found []audit.Entry
			for _, e := range x.list(q) {
				if e.Detail == "expired" {
					found = append(found, e)
				}
			}
			if len(found) != want {
				t.Fatalf("%+v, want %d", found, want)
			}
			return found[0]
		}
		if e := expired(1, audit.Query{}); e.Count != 1059 || !e.At.Equal(began) || !e.LastAt.Equal(x.clock()) {
			t.Errorf("%+v", e)
		}
		// What began before and went on after a moment is among what happened since.
		if e := expired(1, audit.Query{Since: x.clock()}); e.Count != 1059 {
			t.Errorf("%+v", e)
		}
		x.advance(time.Minute)
		x.Write(t.Context(), audit.Event{Event: "token.refused", Detail: "expired"})
		if e := expired(2, audit.Query{}); e.Count != 1 || !e.At.Equal(x.clock()) {
			t.Errorf("an hour later %+v", e)
		}
	})
}

// noise has one source cause many different events.
func (x *fixture) noise(source audit.Event, n int) {
	for i := range n {
		source.Detail = fmt.Sprint("noise ", i)
		x.Write(x.t.Context(), source)
	}
}

func TestWhatDoesNotFitIsCounted(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		const n = 1500
		x.noise(audit.Event{Event: "e", AppID: "app_1"}, n)
		var kept, dropped int64
		for _, e := range x.list(audit.Query{Limit: 10_000}) {
			if e.Event.Event == "audit.dropped" {
				dropped += e.Count
				if e.AppID != "app_1" || !strings.HasPrefix(e.Detail, "e: ") || e.Level != audit.Warn {
					t.Errorf("%+v", e)
				}
			} else {
				kept++
			}
		}
		if kept != 512 || kept+dropped != n {
			t.Errorf("%d kept, %d dropped", kept, dropped)
		}
		// Once they are written there is room again, and what was dropped is one row of the hour.
		x.noise(audit.Event{Event: "e", AppID: "app_1", User: "more"}, n)
		if all := x.list(audit.Query{Event: "audit.dropped"}); len(all) != 1 || all[0].Count != 2*dropped {
			t.Errorf("%+v", all)
		}
		if all := x.list(audit.Query{Event: "e", Limit: 10_000}); len(all) != 1024 {
			t.Errorf("%d kept", len(all))
		}
	})
}

func TestNobodyFloodsTheAuditOfOthers(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		quiet := []audit.Event{
			{Event: "access.refused", AppID: "app_quiet", Detail: "once"},
			{Event: "access.refused", User: "idp/u", Detail: "once"},
			{Event: "token.refused", Detail: "once"},
			{Event: "app.disabled", AppID: "app_loud", User: "key key_1"},
			{Event: "signing.rotated", User: "key key_1"},
		}
		loud := func() {
			for _, source := range []audit.Event{
				{Event: "access.refused", AppID: "app_loud"}, {Event: "token.minted", AppID: "app_loud"}, {Event: "access.refused", User: "other/u"},
			} {
				x.noise(source, 1200)
			}
		}
		count := func(what string) {
			t.Helper()
			for _, want := range quiet {
				found := 0
				for _, e := range x.list(audit.Query{Event: want.Event, AppID: want.AppID, User: want.User, Limit: 10_000}) {
					if e.Detail == want.Detail {
						found++
					}
				}
				if found != 1 {
					t.Errorf("%s: %+v is there %d times", what, want, found)
				}
			}
		}
		// In the buffer, whoever comes first.
		loud()
		for _, e := range quiet {
			x.Write(t.Context(), e)
		}
		loud()
		count("in the buffer")
		if known, waiting := x.Remembered(); known > 16_384 || waiting != 0 {
			t.Errorf("%d remembered, %d wait", known, waiting)
		}
		// And of what is kept, where the quiet ones are the oldest.
		for range 3 {
			x.advance(time.Hour)
			loud()
			if err := x.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		x.Max = 1000
		if err := x.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		count("of what is kept")
		all := x.list(audit.Query{Limit: 10_000})
		by := map[string]int{}
		for _, e := range all {
			by[e.AppID+e.User+e.Event.Event]++
		}
		if len(all) < 900 || len(all) > 1000 || by["app_loudaccess.refused"] != by["app_loudtoken.minted"] || by["app_loudaccess.refused"] < 200 {
			t.Errorf("%d are kept: %v", len(all), by)
		}
	})
}

func TestRoomForAllIsBounded(t *testing.T) {
	runOnce(t, func(t *testing.T, x *fixture) {
		for i := range 40 {
			x.noise(audit.Event{Event: "e", AppID: fmt.Sprint("app_", i)}, 513)
		}
		if known, waiting := x.Remembered(); known > 16_384 || waiting > 16_384+40 {
			t.Errorf("%d remembered, %d wait", known, waiting)
		}
		if err := x.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 40 { // what is written makes room
			x.Write(t.Context(), audit.Event{Event: "late", AppID: fmt.Sprint("app_", i)})
		}
		if all := x.list(audit.Query{Event: "late"}); len(all) != 40 {
			t.Errorf("%d came late", len(all))
		}
	})
}

// A commit whose outcome is unknown is the worst of a batch: it may be there, and must be written again.
func TestABatchOfUnknownOutcomeIsWrittenOnce(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.Write(t.Context(), audit.Event{Event: "one"})
		x.Write(t.Context(), audit.Event{Event: "one"})
		x.OnCommit(func() error { return errors.New("connection lost") })
		if err := x.Flush(t.Context()); err == nil {
			t.Fatal("the failure is not told")
		}
		x.Write(t.Context(), audit.Event{Event: "one"})
		x.Write(t.Context(), audit.Event{Event: "two"})
		if err := x.Flush(t.Context()); err == nil {
			t.Fatal("the failure is not told")
		}
		if _, waiting := x.Remembered(); waiting != 2 {
			t.Errorf("%d wait, want both", waiting)
		}
		x.OnCommit(nil)
		if err := x.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts := map[string]int64{}
		all := x.list(audit.Query{})
		for _, e := range all {
			counts[e.Event.Event] += e.Count
		}
		if len(all) != 2 || counts["one"] != 3 || counts["two"] != 1 {
			t.Errorf("%+v", all)
		}
		// And one that never arrived is not lost.
		x.Write(t.Context(), audit.Event{Event: "three"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := x.Flush(ctx); err == nil {
			t.Fatal("a flush without a database succeeds")
		}
		if all := x.list(audit.Query{Event: "three"}); len(all) != 1 || all[0].Count != 1 {
			t.Errorf("%+v", all)
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
