package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Queue lets sandboxes start as far as memory carries them. Who cannot start at once waits, in turns between the
// apps, until a sandbox ends, an idle one could be put away, or the time is over. Fields are set before the first use.
type Queue struct {
	// Memory reads what sandboxes can have in all, and what of it is free or can be freed, in bytes.
	Memory func() (total, available int64, err error)
	// Pressure reads the share of time that work waits for memory, in percent. nil = not watched.
	Pressure func() (percent float64, err error)
	// MaxPressure is the pressure at which no sandbox starts; 0 = 25.
	MaxPressure float64
	// Reserve is the memory that sandboxes leave to the server and to others; 0 = ReserveFor.
	Reserve int64
	// Share is what a sandbox counts at least; 0 = DefaultShare.
	Share int64
	// Wait is how long a start may wait; 0 = 30 s.
	Wait time.Duration
	// Spares is what each of the sandboxes uses that are kept ready without a container, in bytes. Drain gives one of them up
	// and reports whether there was one. nil = there are none.
	Spares func(ctx context.Context) []int64
	Drain  func(ctx context.Context) bool

	refused [2]atomic.Int64 // by lack

	mu      sync.Mutex
	queues  map[string][]*ticket // of the apps that wait; never an empty one
	ring    []string             // the same apps, the next first
	starts  int                  // admitted, and not counted by Sandboxes yet
	spare   int64                // what the largest spare one used so far
	pumping bool
	wake    chan struct{} // one token: something has changed; made with the first ticket
	closed  bool
	evicted eviction

	work sync.WaitGroup // the pump, and the ends of sandboxes that it began
}

// eviction is what has been done so that somebody can start.
type eviction struct {
	round     int       // counts the sandboxes that were to be ended
	busyUntil time.Time // while one is being ended, or until that takes too long
	calmUntil time.Time // after one was ended: what is measured of the pressure is older
}

// Sandboxes are those that memory carries already.
type Sandboxes interface {
	Count() int
	// Uses is what each of them uses, in bytes; it may be a second old.
	Uses(ctx context.Context) []int64
	// Evict ends the one that can be missed most and reports whether there was one. Nobody's work is cut off. It may take as
	// long as a disk that hangs; then it is called once more beside.
	Evict(ctx context.Context) bool
}

// DefaultShare is Queue.Share when that is 0.
const DefaultShare = 24 << 20

const (
	defaultMaxPressure = 25
	defaultWait        = 30 * time.Second
	// pollEvery is how often memory is looked at while somebody waits: it also changes without our doing.
	pollEvery  = 250 * time.Millisecond
	retryAfter = 5 * time.Second
	// evictLimit is how long the end of one sandbox keeps others from being ended. It leaves time to keep variables.
	evictLimit = 10 * time.Second
	// calmPause is how long the pressure is left to fall after a sandbox was ended: it is a mean over ten seconds, and would
	// otherwise cost everybody's sandbox for what one of them did.
	calmPause = 2 * time.Second
)

var errClosed = wire.Overloaded(retryAfter, "The server is shutting down; send the request again.")

// lack is what a sandbox cannot start for.
type lack int

const (
	lackMemory lack = iota
	lackCalm
)

func (l lack) String() string {
	if l == lackCalm {
		return "pressure"
	}
	return "memory"
}

// ticket is one start that waits.
type ticket struct {
	app     string
	spare   func() bool   // a spare sandbox could be taken, and then no new one is needed; nil = it could not
	claims  bool          // it may start for that reason alone
	done    chan struct{} // closed when it may start, or err is set
	judged  chan struct{} // closed when it was found that it cannot start now
	refused bool          // judged is closed
	why     lack          // set before judged is closed, guarded by the mutex later
	err     error
}

// ReserveFor is what sandboxes leave of a machine's memory: 2 GiB or a tenth, but never more than a quarter of a small one.
func ReserveFor(total int64) int64 { return min(max(2<<30, total/10), total/4) }

// carries reports whether memory carries so many bytes more beside the sandboxes that use so much. Each of these counts what
// it uses, at least its share; limits are not summed, since most of them are never reached. Memory that others on the machine
// use is not there for sandboxes.
func carries(total, available, reserve, share int64, uses []int64, more int64) bool {
	var used, sum int64
	for _, u := range uses {
		used += u
		sum += max(u, share)
	}
	return sum+more <= min(total, available+used)-reserve
}

// plenty is a cheap way to the same answer, without a look at every sandbox: none of them counts more than its use and a
// share.
func plenty(total, available, reserve, share int64, sandboxes int, more int64) bool {
	return int64(sandboxes)*share+more <= min(total, available)-reserve
}

// Grant is the leave to start one sandbox. The zero Grant is that of nobody who was asked.
type Grant struct {
	q *Queue
	// Claims: only by taking a spare one. If that is not there any more, ask again.
	Claims bool
}

// Leave is called once, when Sandboxes counts the sandbox, or when nothing came of it.
func (g Grant) Leave() {
	if g.q == nil {
		return
	}
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	g.q.starts--
}

// Enter waits until one more sandbox of an app may start. spare says whether the app could have a spare one instead, whose
// memory is in use already; nil = it could not. Errors: wire.Overloaded when the wait is over, the cause of ctx, or what kept
// memory from being read.
func (q *Queue) Enter(ctx context.Context, app string, spare func() bool, others Sandboxes) (Grant, error) {
	t := &ticket{app: app, spare: spare, done: make(chan struct{}), judged: make(chan struct{})}
	q.queue(ctx, t, others)
	timer := time.NewTimer(cmp.Or(q.Wait, defaultWait))
	defer timer.Stop()
	select {
	case <-t.done:
		return t.grant(q)
	case <-ctx.Done():
	case <-timer.C:
		select { // a short wait ends only after somebody looked
		case <-t.done:
			return t.grant(q)
		case <-t.judged:
		case <-ctx.Done():
		}
	}
	if !q.giveUp(t) {
		return t.grant(q) // it came just now
	}
	if ctx.Err() != nil {
		return Grant{}, context.Cause(ctx)
	}
	return Grant{}, q.refusal(t.why)
}

func (t *ticket) grant(q *Queue) (Grant, error) {
	if t.err != nil {
		return Grant{}, t.err
	}
	return Grant{q, t.claims}, nil
}

func (q *Queue) refusal(why lack) error {
	q.refused[why].Add(1)
	if why == lackCalm {
		return wire.Overloaded(retryAfter, "The server's memory is under pressure; it starts no sandbox at the moment.").WithCode("memory_pressure")
	}
	return wire.Overloaded(retryAfter, "The server has no memory for another sandbox at the moment.").WithCode("memory_full")
}

// Waiting is how many starts wait now.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, q := range q.queues {
		n += len(q)
	}
	return n
}

// Refused counts the starts that were refused, by what was lacking.
func (q *Queue) Refused() map[string]int64 {
	return map[string]int64{lackMemory.String(): q.refused[lackMemory].Load(), lackCalm.String(): q.refused[lackCalm].Load()}
}

// Verdict is what memory allows of sandboxes that nobody asked for.
type Verdict int

// The verdicts.
const (
	SpareNone Verdict = iota // not even those there are
	SpareKept                // those and no more, or somebody waits
	SpareMore
)

// SpareRoom says whether one more spare sandbox may be made: if memory carries one as large as they get, and then the start of
// somebody, and nobody waits. Whoever waits takes spare ones by himself, so that these go only when there is too little memory
// without anybody's doing.
func (q *Queue) SpareRoom(ctx context.Context, others Sandboxes) Verdict {
	q.mu.Lock()
	starting, waiting := int64(q.starts), len(q.ring) > 0
	q.mu.Unlock()
	if waiting {
		return SpareKept
	}
	calm, err := q.calm()
	if err != nil {
		return SpareKept
	}
	if !calm {
		return SpareNone
	}
	share := cmp.Or(q.Share, DefaultShare)
	_, size := q.spares(ctx)
	more, err := q.carries(ctx, others, (starting+1)*share+max(size, share))
	if more {
		return SpareMore
	}
	if err != nil {
		return SpareKept
	}
	if kept, err := q.carries(ctx, others, starting*share); kept || err != nil {
		return SpareKept
	}
	return SpareNone
}

// spares is what each spare sandbox uses, and the largest used so far.
func (q *Queue) spares(ctx context.Context) (uses []int64, largest int64) {
	if q.Spares != nil {
		uses = q.Spares(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range uses {
		q.spare = max(q.spare, u)
	}
	return uses, q.spare
}

// Close refuses those who wait and all who come, and returns when nothing of it is at work any more, or ctx ends.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	for len(q.ring) > 0 {
		q.answerNext(errClosed)
	}
	q.poke()
	q.mu.Unlock()
	return wait(ctx, &q.work)
}

// Changed lets those who wait look again; it is called when a sandbox has ended.
func (q *Queue) Changed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.poke()
}

func (q *Queue) poke() {
	if q.wake == nil {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) queue(ctx context.Context, t *ticket, others Sandboxes) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		t.err = errClosed
		close(t.done)
		return
	}
	if q.wake == nil {
		q.wake, q.queues = make(chan struct{}, 1), make(map[string][]*ticket)
	}
	if len(q.queues[t.app]) == 0 {
		q.ring = append(q.ring, t.app)
	}
	q.queues[t.app] = append(q.queues[t.app], t)
	if !q.pumping {
		q.pumping = true
		q.work.Go(func() { q.pump(context.WithoutCancel(ctx), others) }) // ends with the last ticket
	}
}

// giveUp takes a ticket back; false if it was answered meanwhile.
func (q *Queue) giveUp(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queues[t.app], t)
	if i < 0 {
		return false
	}
	q.take(t.app, i)
	q.poke() // the pump ends with the last ticket
	return true
}

// take removes a ticket; the mutex is held.
func (q *Queue) take(app string, i int) {
	q.queues[app] = slices.Delete(q.queues[app], i, i+1)
	if len(q.queues[app]) == 0 {
		delete(q.queues, app)
		q.ring = slices.Delete(q.ring, slices.Index(q.ring, app), slices.Index(q.ring, app)+1)
	}
}

// pump answers the tickets, until there is none. It waits for nothing but memory: sandboxes are ended beside it.
func (q *Queue) pump(ctx context.Context, others Sandboxes) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		next, starting := q.peek()
		if next == nil {
			return
		}
		why, ok, err := q.judge(ctx, others, next, starting)
		if ok || err != nil {
			q.answer(next, err)
			continue
		}
		q.refuse(why)
		q.evictOne(ctx, others, why)
		select {
		case <-q.wake:
		case <-poll.C:
		}
	}
}

// peek gives the ticket whose turn it is, and how many sandboxes are starting. If there is none the pump has ended.
func (q *Queue) peek() (next *ticket, starting int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pumping = len(q.ring) > 0
	if !q.pumping {
		return nil, 0
	}
	return q.queues[q.ring[0]][0], int64(q.starts)
}

// judge reports whether a ticket can start now, and if not for lack of what.
func (q *Queue) judge(ctx context.Context, others Sandboxes, t *ticket, starting int64) (why lack, ok bool, err error) {
	calm, err := q.calm()
	if err != nil || !calm {
		return lackCalm, false, err
	}
	ok, err = q.carries(ctx, others, (starting+1)*cmp.Or(q.Share, DefaultShare))
	if t.claims = !ok && err == nil && t.spare != nil && t.spare(); t.claims {
		ok = true
	}
	return lackMemory, ok, err
}

// calm reports whether the pressure lets sandboxes start.
func (q *Queue) calm() (bool, error) {
	if q.Pressure == nil {
		return true, nil
	}
	p, err := q.Pressure()
	if err != nil {
		return false, fmt.Errorf("read memory pressure: %w", err)
	}
	return p < cmp.Or(q.MaxPressure, defaultMaxPressure), nil
}

// carries reports whether memory carries so many bytes more beside all sandboxes there are.
func (q *Queue) carries(ctx context.Context, others Sandboxes, more int64) (bool, error) {
	total, available, err := q.Memory()
	if err != nil {
		return false, fmt.Errorf("read memory: %w", err)
	}
	spares, _ := q.spares(ctx)
	reserve, share := cmp.Or(q.Reserve, ReserveFor(total)), cmp.Or(q.Share, DefaultShare)
	return plenty(total, available, reserve, share, others.Count()+len(spares), more) ||
		carries(total, available, reserve, share, append(spares, others.Uses(ctx)...), more), nil
}

// evictOne begins to end one sandbox that can be missed, first of those that belong to nobody, unless one is being ended
// already or the pressure has not had the time to show that one was.
func (q *Queue) evictOne(ctx context.Context, others Sandboxes, why lack) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.closed || now.Before(q.evicted.busyUntil) || why == lackCalm && now.Before(q.evicted.calmUntil) {
		return
	}
	q.evicted.round++
	round := q.evicted.round
	q.evicted.busyUntil = now.Add(evictLimit)
	q.work.Go(func() {
		gone := q.Drain != nil && q.Drain(ctx) || others.Evict(ctx)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.evicted.round == round {
			q.evicted.busyUntil = time.Time{}
		}
		if gone {
			q.evicted.calmUntil = time.Now().Add(calmPause)
			q.poke()
		}
	})
}

// answer lets a ticket start, or fail, whose turn it is; its app goes to the end of the line.
func (q *Queue) answer(t *ticket, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ring) > 0 && q.queues[q.ring[0]][0] == t { // else given up meanwhile
		q.answerNext(err)
	}
}

// answerNext answers whose turn it is; the mutex is held, and the line is not empty.
func (q *Queue) answerNext(err error) {
	app := q.ring[0]
	t := q.queues[app][0]
	q.take(app, 0)
	if len(q.queues[app]) > 0 {
		q.ring = append(q.ring[1:], app)
	}
	if t.err = err; err == nil {
		q.starts++
	}
	close(t.done)
}

// refuse tells all who wait that they cannot start now.
func (q *Queue) refuse(why lack) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, q := range q.queues {
		for _, t := range q {
			if t.why = why; !t.refused {
				t.refused = true
				close(t.judged)
			}
		}
	}
}

// wait returns when a group has nothing to do any more, or with the cause of ctx.
func wait(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
