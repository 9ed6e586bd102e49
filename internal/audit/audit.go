package audit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Level says who has to look at an event.
type Level string

// The levels.
const (
	Info Level = "info" // what was done
	Warn Level = "warn" // what was refused
)

// Event is something that happened.
type Event struct {
	Level Level // "" is Info
	// AppID and User are "" where they are not proven. User is <issuer id>/<subject>, or "key <id>".
	AppID, User string
	// RequestID is that of the context if it is "".
	RequestID string
	// Event is what, as token.refused; Detail why, in words that name no secret.
	Event, Detail string
}

// Entry is an event as it is kept.
type Entry struct {
	ID string
	At time.Time
	Event
	// Count is how many equal events from At to LastAt, at most an hour later, the entry stands for; the request is that of
	// the first.
	Count  int64
	LastAt time.Time
}

// What is kept, if nothing else is set.
const (
	DefaultKeep = 90 * 24 * time.Hour
	DefaultMax  = 1_000_000
)

const (
	maxDetail  = 1 << 10
	maxName    = 512
	flushEvery = time.Second
)

// Log is the audit of a server. Its exported fields are set before the first use. It is safe for concurrent use.
type Log struct {
	DB *db.DB
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// CursorKey signs list pages.
	CursorKey wire.CursorKey
	// Log receives failures to write; nil is nothing.
	Log *slog.Logger
	// Keep is how long entries are kept, 0 = DefaultKeep; Max how many, 0 = DefaultMax.
	Keep time.Duration
	Max  int

	mu      sync.Mutex
	recent  recent
	flushMu sync.Mutex // one flush at a time
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}
	// committed is called after a batch was written, for tests; its error is that of the write.
	committed func() error
}

func (l *Log) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// Write takes an event. It does not wait for the database. A nil Log takes nothing.
func (l *Log) Write(ctx context.Context, e Event) {
	if l == nil {
		return
	}
	request := e.RequestID
	if request == "" {
		request = wire.RequestID(ctx)
	}
	if e.Level == "" {
		e.Level = Info
	}
	e.RequestID = ""
	e.AppID, e.User, e.Event, e.Detail = clean(e.AppID, maxName), clean(e.User, maxName), clean(e.Event, maxName), clean(e.Detail, maxDetail)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent.count(e, clean(request, maxName), l.now().UTC())
	if l.wake != nil {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// clean makes a text storable: valid, without NUL, and not long.
func clean(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= most {
		return s
	}
	return wire.Cut(s, most) + "…"
}

// Start writes what comes to the database until Close. Calling it again does nothing.
func (l *Log) Start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake != nil {
		return
	}
	l.wake, l.stop, l.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go l.run(context.WithoutCancel(ctx), l.stop, l.done)
}

func (l *Log) run(ctx context.Context, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case <-stop:
			return
		case <-l.wake:
		}
		wait := time.NewTimer(flushEvery)
		select {
		case <-stop:
			wait.Stop()
			return
		case <-wait.C:
		}
		if err := l.Flush(ctx); err != nil && l.Log != nil {
			l.Log.ErrorContext(ctx, "audit", "error", err)
		}
	}
}

// Close ends the goroutine and writes what is left. It may be repeated.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	stop, done := l.stop, l.done
	l.stop = nil
	l.mu.Unlock()
	if stop != nil {
		close(stop)
		<-done
	}
	return l.Flush(ctx)
}

// Flush writes what waits. On an error it waits on, as far as it fits: a batch whose outcome is unknown is written again, and
// what it had written is written over.
func (l *Log) Flush(ctx context.Context) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	// Counts of the batch must not change while it is written.
	taken, batch := l.recent.take()
	l.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := l.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error { return putEntries(ctx, tx, batch) })
	if err == nil && l.committed != nil {
		err = l.committed()
	}
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent.putBack(taken)
	return fmt.Errorf("write audit: %w", err)
}

// Query narrows a list; "" and the zero time are everything.
type Query struct {
	AppID, User, Event string
	// RequestID finds an event by its request; of those that were counted together, by the first.
	RequestID string
	Since     time.Time
	// Limit is how many entries at most.
	Limit int
	// Page is the cursor of a list before.
	Page string
}

// filter is what a page of a list is good for.
func (q Query) filter() string {
	return fmt.Sprintf("audit %q %q %q %q %d", q.AppID, q.User, q.Event, q.RequestID, q.Since.UnixMicro())
}

// List gives entries, newest first, and the cursor of the next page or "". What was written within the last second is
// among them.
func (l *Log) List(ctx context.Context, q Query) ([]Entry, string, error) {
	for _, v := range []string{q.AppID, q.User, q.Event, q.RequestID} {
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return nil, "", nil // nothing is stored under such a text
		}
	}
	// The request may go away; its entries and those of others must not hang on it.
	if err := l.Flush(context.WithoutCancel(ctx)); err != nil && l.Log != nil {
		l.Log.WarnContext(ctx, "audit", "error", err)
	}
	var after *position
	if q.Page != "" {
		after = new(position)
		if err := wire.DecodeCursor(l.CursorKey, q.filter(), q.Page, &after.at, &after.id); err != nil {
			return nil, "", err
		}
	}
	all, err := selectEntries(ctx, l.DB.Read(), q, after, q.Limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list audit: %w", err)
	}
	if len(all) <= q.Limit {
		return all, "", nil
	}
	all = all[:q.Limit]
	last := all[q.Limit-1]
	next, err := wire.EncodeCursor(l.CursorKey, q.filter(), last.At.UnixMicro(), last.ID)
	return all, next, err
}

// Sweep removes what is older than Keep, and what is beyond Max: of the sources and kinds of event that have most, so that who
// causes many entries loses his own.
func (l *Log) Sweep(ctx context.Context) error {
	keep, most := l.Keep, l.Max
	if keep == 0 {
		keep = DefaultKeep
	}
	if most == 0 {
		most = DefaultMax
	}
	before := l.now().Add(-keep).UnixMicro()
	err := l.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error { return deleteOld(ctx, tx, before) })
	if err == nil {
		err = l.thin(ctx, most)
	}
	if err != nil {
		return fmt.Errorf("sweep audit: %w", err)
	}
	return nil
}

func (l *Log) thin(ctx context.Context, most int) error {
	n, err := countEntries(ctx, l.DB.Read())
	if err != nil || n <= most {
		return err
	}
	all, err := countBySource(ctx, l.DB.Read())
	if err != nil {
		return err
	}
	level := fairShare(all, most)
	return l.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		for _, g := range all {
			if g.Entries <= level {
				continue
			}
			if err := deleteBeyond(ctx, tx, &g, level); err != nil {
				return err
			}
		}
		return deleteBeyond(ctx, tx, nil, most) // where there are more sources than there is room
	})
}

// fairShare is how many entries each source and kind may keep so that all of them are at most so many: who has fewer keeps
// all, and the others have the same. It is at least 1.
func fairShare(all []ofSource, most int) int {
	counts := make([]int, len(all))
	for i, g := range all {
		counts[i] = g.Entries
	}
	slices.Sort(counts)
	for i, n := range counts {
		share := most / (len(counts) - i)
		if n > share {
			return max(share, 1)
		}
		most -= n
	}
	return max(most, 1)
}
