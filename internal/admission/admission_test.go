package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

const gib = 1 << 30

func TestMemoryCarriesWhatIsUsedAtLeastAShareEachLessTheReserve(t *testing.T) {
	t.Parallel()
	const share = 24 << 20
	many := make([]int64, 40) // that use nothing yet
	for _, tt := range []struct {
		name             string
		total, available int64
		uses             []int64
		starting         int
		want             bool
	}{
		{"an empty server", 8 * gib, 8 * gib, nil, 0, true},
		{"exactly the reserve is left", 2*gib + share, 2*gib + share, nil, 0, true},
		{"a byte less than the reserve is left", 2*gib + share - 1, 2*gib + share - 1, nil, 0, false},
		{"forty that use nothing count a share each", 2*gib + 40*share, 2*gib + 40*share, many, 0, false},
		{"and fit where there is a share for each", 2*gib + 41*share, 2*gib + 41*share, many, 0, true},
		{"those that are starting count", 2*gib + 2*share, 2*gib + 2*share, nil, 2, false},
		{"one that uses much counts what it uses", 8 * gib, 2 * gib, []int64{6 * gib}, 0, false},
		{"what others on the machine use is not there", 8 * gib, 2 * gib, nil, 0, false},
		{"a limit is no use", 8 * gib, 7 * gib, []int64{1 * gib}, 0, true},
		{"cache that is counted twice makes no memory", 4 * gib, 4 * gib, []int64{3 * gib}, 0, false},
	} {
		if got := carries(tt.total, tt.available, 2*gib, share, tt.uses, int64(tt.starting+1)*share); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if plenty(tt.total, tt.available, 2*gib, share, len(tt.uses), int64(tt.starting+1)*share) && !tt.want && len(tt.uses) == 0 {
			t.Errorf("%s: the quick look says yes", tt.name)
		}
	}
}

func TestReserveIsTwoGiBOrATenthAndAtMostAQuarter(t *testing.T) {
	t.Parallel()
	for total, want := range map[int64]int64{4 * gib: gib, 8 * gib: 2 * gib, 16 * gib: 2 * gib, 40 * gib: 4 * gib} {
		if got := ReserveFor(total); got != want {
			t.Errorf("of %d: %d, want %d", total, got, want)
		}
	}
}

// host is a machine with room for a number of sandboxes of one share each.
type host struct {
	mu       sync.Mutex
	room     int // shares beside the reserve
	live     int
	idle     int // of live, those that Evict may end
	evicted  int
	pressure float64
	err      error
	hang     chan struct{} // Evict waits for it
	q        *Queue
}

func (h *host) Count() int { h.mu.Lock(); defer h.mu.Unlock(); return h.live }

func (h *host) ended() int { h.mu.Lock(); defer h.mu.Unlock(); return h.evicted }

func (h *host) Uses(context.Context) []int64 { return make([]int64, h.Count()) }

func (h *host) Evict(context.Context) bool {
	h.mu.Lock()
	had := h.idle > 0
	if had {
		h.idle--
		h.evicted++
	}
	hang := h.hang
	h.mu.Unlock()
	if !had {
		return false
	}
	if hang != nil {
		<-hang
	}
	h.set(func(h *host) { h.live-- })
	h.q.Changed() // as the end of every sandbox does
	return true
}

func (h *host) set(f func(h *host)) { h.mu.Lock(); defer h.mu.Unlock(); f(h) }

func (h *host) queue() *Queue {
	h.q = &Queue{
		Reserve: 1, Share: 100,
		Memory: func() (int64, int64, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			n := int64(h.room)*100 + 1
			return n, n, h.err
		},
		Pressure: func() (float64, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.pressure, nil },
	}
	return h.q
}

// start enters and becomes live.
func (h *host) start(ctx context.Context, q *Queue, app string) error {
	g, err := q.Enter(ctx, app, nil, h)
	if err != nil {
		return err
	}
	h.set(func(h *host) { h.live++ })
	g.Leave()
	return nil
}

func TestStartsBeyondMemoryWaitAndAreRefusedAtTheirDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 2}
		q := h.queue()
		for range 2 {
			if err := h.start(t.Context(), q, "a"); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		err := h.start(t.Context(), q, "a")
		e := wire.AsError(err)
		if e.HTTPStatus() != 529 || e.Code != "memory_full" || e.RetryAfter == 0 || time.Since(began) != 30*time.Second {
			t.Errorf("after %s: %+v", time.Since(began), e)
		}
		if got := q.Refused(); got["memory"] != 1 || got["pressure"] != 0 || q.Waiting() != 0 {
			t.Errorf("refused %v, waiting %d", got, q.Waiting())
		}
	})
}

func TestStartThatWaitsBeginsWhenASandboxEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 1, live: 1}
		q := h.queue()
		got := make(chan error, 1)
		go func() { got <- h.start(t.Context(), q, "a") }()
		synctest.Wait()
		began := time.Now()
		h.set(func(h *host) { h.live = 0 })
		q.Changed()
		if err := <-got; err != nil || time.Since(began) != 0 {
			t.Errorf("%v, after %s", err, time.Since(began))
		}
	})
}

// A tenant with a thousand starts waiting does not delay the first of another by more than one.
func TestQueueIsFairBetweenApps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 1, live: 1}
		q := h.queue()
		q.Wait = time.Hour
		var order []string
		var group sync.WaitGroup
		enter := func(app string) {
			group.Go(func() {
				if err := h.start(t.Context(), q, app); err != nil {
					t.Error(err)
					return
				}
				h.set(func(*host) { order = append(order, app) })
			})
			synctest.Wait()
		}
		for range 1000 {
			enter("greedy")
		}
		enter("modest")
		enter("third")
		if n := q.Waiting(); n != 1002 {
			t.Fatalf("%d wait", n)
		}
		for range 1002 {
			h.set(func(h *host) { h.live-- })
			q.Changed()
			synctest.Wait()
		}
		group.Wait()
		if len(order) != 1002 || order[0] != "greedy" || order[1] != "modest" || order[2] != "third" {
			t.Errorf("%d started, first %v", len(order), order[:min(3, len(order))])
		}
	})
}

func TestIdleSandboxesMakeRoomOneByOneAndSparesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 4, live: 3, idle: 2}
		q := h.queue()
		var spares atomic.Int64
		spares.Store(1)
		q.Spares = func(context.Context) []int64 { return make([]int64, spares.Load()) }
		q.Drain = func(context.Context) bool { return spares.Swap(0) > 0 }
		var got []string
		for range 3 {
			if err := h.start(t.Context(), q, "a"); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(spares.Load(), h.ended()))
		}
		if want := "[0 0 0 1 0 2]"; fmt.Sprint(got) != want {
			t.Errorf("spares and evicted after each start: %v, want %s", got, want)
		}
		if err := h.start(t.Context(), q, "a"); err == nil || wire.AsError(err).HTTPStatus() != 529 {
			t.Errorf("nobody is left to be put away: %v", err)
		}
	})
}

func TestPressureStopsStartsAndPutsIdleOnesAwaySlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 100, live: 60, idle: 60, pressure: 25}
		q := h.queue()
		q.Wait = 9 * time.Second // less than what the pressure is a mean over
		err := h.start(t.Context(), q, "a")
		if e := wire.AsError(err); e.HTTPStatus() != 529 || e.Code != "memory_pressure" {
			t.Fatalf("got %v", err)
		}
		if n := h.ended(); n == 0 || n > 5 {
			t.Errorf("%d sandboxes put away in nine seconds", n)
		}
		q.Wait = time.Minute
		got := make(chan error, 1)
		go func() { got <- h.start(t.Context(), q, "a") }()
		synctest.Wait()
		h.set(func(h *host) { h.pressure = 24.9 })
		if err := <-got; err != nil {
			t.Errorf("when it is calm: %v", err)
		}
	})
}

// A sandbox that does not end, as on a dead disk, holds up nobody who has room, and nobody waits longer for it than he would
// without it.
func TestSandboxThatDoesNotEndHoldsUpNoStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 3, live: 3, idle: 3, hang: make(chan struct{})}
		q := h.queue()
		defer close(h.hang)
		q.Wait = 15 * time.Second
		began := time.Now()
		if e := wire.AsError(h.start(t.Context(), q, "a")); e.HTTPStatus() != 529 || time.Since(began) != q.Wait {
			t.Errorf("after %s: %v", time.Since(began), e)
		}
		if n := h.ended(); n != 2 {
			t.Errorf("%d were tried in %s", n, q.Wait)
		}
		got := make(chan error, 1)
		go func() { got <- h.start(t.Context(), q, "b") }()
		synctest.Wait()
		began = time.Now()
		h.set(func(h *host) { h.room++ })
		if err := <-got; err != nil || time.Since(began) > pollEvery {
			t.Errorf("room that others made is given after %s: %v", time.Since(began), err)
		}
	})
}

func TestClosedAdmissionRefusesAndLeavesNothingAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 1, live: 1, idle: 1, hang: make(chan struct{})}
		q := h.queue()
		got := make(chan error, 1)
		go func() { got <- h.start(t.Context(), q, "a") }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed while a sandbox is being ended: %v", err)
		}
		for _, err := range []error{<-got, h.start(t.Context(), q, "b")} {
			if wire.AsError(err).HTTPStatus() != 529 {
				t.Errorf("got %v", err)
			}
		}
		close(h.hang)
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if h.Count() != 0 {
			t.Error("not everything has ended")
		}
	})
}

func TestStartThatIsCanceledLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 1, live: 1}
		q := h.queue()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() { got <- h.start(ctx, q, "a") }()
		synctest.Wait()
		cancel(gone)
		if err := <-got; !errors.Is(err, gone) || q.Waiting() != 0 {
			t.Errorf("%v, %d wait", err, q.Waiting())
		}
	})
}

func TestMemoryThatCannotBeReadStartsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 10, err: errors.New("no meminfo")}
		q := h.queue()
		if err := h.start(t.Context(), q, "a"); !errors.Is(err, h.err) {
			t.Errorf("got %v", err)
		}
		if q.SpareRoom(t.Context(), h) != SpareKept {
			t.Error("a spare one is made, or those there are are ended")
		}
	})
}

// What is kept ready must not take the place of what somebody asks for, and is ended only for memory that is missing.
func TestSpareSandboxNeedsRoomForTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		q := h.queue()
		for _, tt := range []struct {
			room, live int
			pressure   float64
			want       Verdict
		}{{2, 0, 0, SpareMore}, {2, 1, 0, SpareKept}, {2, 2, 0, SpareKept}, {2, 3, 0, SpareNone}, {9, 0, 25, SpareNone}} {
			h.set(func(h *host) { h.room, h.live, h.pressure = tt.room, tt.live, tt.pressure })
			if got := q.SpareRoom(t.Context(), h); got != tt.want {
				t.Errorf("%d of %d live, pressure %g: %d, want %d", tt.live, tt.room, tt.pressure, got, tt.want)
			}
		}
		h.set(func(h *host) { h.room, h.live, h.pressure = 9, 9, 0 })
		go func() { _ = h.start(t.Context(), q, "a") }() // ends with the test
		synctest.Wait()
		h.set(func(h *host) { h.live = 0 })
		if got := q.SpareRoom(t.Context(), h); got != SpareKept {
			t.Errorf("while somebody waits: %d", got)
		}
	})
}

// A pool asks again and again. With room for less than it wants, and sandboxes that use more than a share, it comes to rest.
func TestSpareSandboxesAreNotMadeAndEndedInTurns(t *testing.T) {
	t.Parallel()
	for room := int64(0); room < 1500; room += 50 {
		const share, size = 100, 350
		var pool []int64
		q := &Queue{Reserve: 1, Share: share, Spares: func(context.Context) []int64 { return pool }}
		q.Memory = func() (int64, int64, error) { return 1 << 40, room + 1 - size*int64(len(pool)), nil }
		made := 0
		for range 100 {
			switch q.SpareRoom(t.Context(), &host{}) {
			case SpareMore:
				if len(pool) < 2 {
					pool = append(pool, size)
					made++
				}
			case SpareNone:
				pool = nil
			case SpareKept:
			}
		}
		if made > 3 { // the two, and the one that showed how large they are
			t.Errorf("with room for %d bytes %d were made", room, made)
		}
		if room >= share+2*size && len(pool) != 2 {
			t.Errorf("with room for %d bytes %d are there", room, len(pool))
		}
	}
}

// The memory of a spare sandbox is in use already: whoever can have it waits for none, and it is not ended for him.
func TestStartThatCanHaveASpareSandboxNeedsNoMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{room: 1}
		q := h.queue()
		q.Wait = time.Second
		q.Spares = func(context.Context) []int64 { return []int64{0} }
		q.Drain = func(context.Context) bool { t.Error("the spare one is ended"); return false }
		g, err := q.Enter(t.Context(), "a", func() bool { return true }, h)
		if err != nil || !g.Claims {
			t.Fatalf("%+v, %v", g, err)
		}
		g.Leave()
		h.set(func(h *host) { h.pressure = 25 })
		q.Drain = nil
		if _, err := q.Enter(t.Context(), "a", func() bool { return true }, h); wire.AsError(err).Code != "memory_pressure" {
			t.Errorf("under pressure: %v", err)
		}
		h.set(func(h *host) { h.pressure, h.room = 0, 2 })
		if g, err := q.Enter(t.Context(), "a", func() bool { return true }, h); err != nil || g.Claims {
			t.Errorf("with room for a new one: %+v, %v", g, err)
		}
	})
}
