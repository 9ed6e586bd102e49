package container

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

// Admission lets sandboxes start as far as memory carries them. Who cannot start at once waits, in turns between the
// apps, until a sandbox ends, an idle one could be put away, or the time is over. Fields are set before the first use.
type Admission struct {
	// Memory reads what sandboxes can have in all, and what of it is free or can be freed, in bytes.
	Memory func() (total, available int64, err error)
	// Pressure reads the share of time that work waits for memory, in percent. nil = not watched.
	Pressure func() (percent float64, err error)
	// MaxPressure is the pressure at which no sandbox starts; 0 = 25.
	MaxPressure float64
	// Reserve is the memory that sandboxes leave to the server and to others; 0 = ReserveFor.
	Reserve int64
	// Share is what a sandbox counts at least; 0 = 24 MiB.
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
	starts  int                  // admitted, and not yet among the crowd's sandboxes
	spare   int64                // what the largest spare one used so far
	pumping bool
	wake    chan struct{} // one token: something has changed; made with the first ticket
	closed  bool
	room    room

	work sync.WaitGroup // the pump, and what makes room
}

// room is what has been done to make room.
type room struct {
	round     int       // counts the sandboxes that were to be ended
	busyUntil time.Time // while one is being ended, or until that takes too long
	calmUntil time.Time // after one was ended: what is measured of the pressure is older
}

// crowd are the sandboxes that memory carries already.
type crowd interface {
	count() int
	// uses is what each of them uses; it may be a second old.
	uses(ctx context.Context) []int64
	// evict ends the one that can be missed most and reports whether there was one. Nobody's work is cut off. It may take as
	// long as a disk that hangs; then it is called once more beside.
	evict(ctx context.Context) bool
}

const (
	defaultShare = 24 << 20

	defaultMaxPressure   = 25
	defaultAdmissionWait = 30 * time.Second
	// admissionPoll is how often memory is looked at while somebody waits: it also changes without our doing.
	admissionPoll  = 250 * time.Millisecond
	admissionRetry = 5 * time.Second
	// evictLimit is how long the end of one sandbox keeps others from being ended for room. It leaves time to keep variables
	// (keepRoomLimit).
	evictLimit = 10 * time.Second
	// calmPause is how long the pressure is left to fall after a sandbox was ended: it is a mean over ten seconds, and would
	// otherwise cost everybody's sandbox for what one of them did.
	calmPause = 2 * time.Second
)

var errAdmissionClosed = wire.Overloaded(admissionRetry, "The server is shutting down; send the request again.")

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

// grant is the leave to start one sandbox.
type grant struct {
	a *Admission
	// claims: only by taking a spare one. If that is not there any more, ask again.
	claims bool
}

// leave is called when the crowd counts the sandbox, or when nothing came of it.
func (g grant) leave() {
	if g.a == nil {
		return
	}
	g.a.mu.Lock()
	defer g.a.mu.Unlock()
	g.a.starts--
}

// enter waits until one more sandbox of an app may start. spare says whether the app could have a spare one instead, whose
// memory is in use already; nil = it could not. Errors: wire.Overloaded when the wait is over, the cause of ctx, or what kept
// memory from being read.
func (a *Admission) enter(ctx context.Context, app string, spare func() bool, others crowd) (grant, error) {
	t := &ticket{app: app, spare: spare, done: make(chan struct{}), judged: make(chan struct{})}
	a.queue(ctx, t, others)
	timer := time.NewTimer(cmp.Or(a.Wait, defaultAdmissionWait))
	defer timer.Stop()
	select {
	case <-t.done:
		return t.grant(a)
	case <-ctx.Done():
	case <-timer.C:
		select { // a short wait ends only after somebody looked
		case <-t.done:
			return t.grant(a)
		case <-t.judged:
		case <-ctx.Done():
		}
	}
	if !a.giveUp(t) {
		return t.grant(a) // it came just now
	}
	if ctx.Err() != nil {
		return grant{}, context.Cause(ctx)
	}
	return grant{}, a.refusal(t.why)
}

func (t *ticket) grant(a *Admission) (grant, error) {
	if t.err != nil {
		return grant{}, t.err
	}
	return grant{a, t.claims}, nil
}

func (a *Admission) refusal(why lack) error {
	a.refused[why].Add(1)
	if why == lackCalm {
		return wire.Overloaded(admissionRetry, "The server's memory is under pressure; it starts no sandbox at the moment.").WithCode("memory_pressure")
	}
	return wire.Overloaded(admissionRetry, "The server has no memory for another sandbox at the moment.").WithCode("memory_full")
}

// Waiting is how many starts wait now.
func (a *Admission) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, q := range a.queues {
		n += len(q)
	}
	return n
}

// Refused counts the starts that were refused, by what was lacking.
func (a *Admission) Refused() map[string]int64 {
	return map[string]int64{lackMemory.String(): a.refused[lackMemory].Load(), lackCalm.String(): a.refused[lackCalm].Load()}
}

// spareVerdict is what memory allows of sandboxes that nobody asked for.
type spareVerdict int

const (
	spareNone spareVerdict = iota // not even for those there are
	spareKept                     // for those and no more, or somebody waits
	spareMore
)

// spareRoom says whether one more spare sandbox may be made: if memory carries one as large as they get, and then the start of
// somebody, and nobody waits. Whoever waits takes spare ones by himself, so that these go only when there is too little memory
// without anybody's doing.
func (a *Admission) spareRoom(ctx context.Context, others crowd) spareVerdict {
	a.mu.Lock()
	starting, waiting := int64(a.starts), len(a.ring) > 0
	a.mu.Unlock()
	if waiting {
		return spareKept
	}
	calm, err := a.calm()
	if err != nil {
		return spareKept
	}
	if !calm {
		return spareNone
	}
	share := cmp.Or(a.Share, defaultShare)
	_, size := a.spares(ctx)
	if ok, err := a.carries(ctx, others, (starting+1)*share+max(size, share)); ok || err != nil {
		return whether(ok, spareMore, spareKept)
	}
	ok, err := a.carries(ctx, others, starting*share)
	return whether(ok || err != nil, spareKept, spareNone)
}

func whether[T any](ok bool, yes, no T) T {
	if ok {
		return yes
	}
	return no
}

// spares is what each spare sandbox uses, and the largest used so far.
func (a *Admission) spares(ctx context.Context) (uses []int64, largest int64) {
	if a.Spares != nil {
		uses = a.Spares(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range uses {
		a.spare = max(a.spare, u)
	}
	return uses, a.spare
}

// Close refuses those who wait and all who come, and returns when nothing of it is at work any more, or ctx ends.
func (a *Admission) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	for len(a.ring) > 0 {
		a.answerNext(errAdmissionClosed)
	}
	a.poke()
	a.mu.Unlock()
	return wait(ctx, &a.work)
}

// changed lets those who wait look again.
func (a *Admission) changed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.poke()
}

func (a *Admission) poke() {
	if a.wake == nil {
		return
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Admission) queue(ctx context.Context, t *ticket, others crowd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		t.err = errAdmissionClosed
		close(t.done)
		return
	}
	if a.wake == nil {
		a.wake, a.queues = make(chan struct{}, 1), make(map[string][]*ticket)
	}
	if len(a.queues[t.app]) == 0 {
		a.ring = append(a.ring, t.app)
	}
	a.queues[t.app] = append(a.queues[t.app], t)
	if !a.pumping {
		a.pumping = true
		a.work.Go(func() { a.pump(context.WithoutCancel(ctx), others) }) // ends with the last ticket
	}
}

// giveUp takes a ticket back; false if it was answered meanwhile.
func (a *Admission) giveUp(t *ticket) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.queues[t.app], t)
	if i < 0 {
		return false
	}
	a.take(t.app, i)
	a.poke() // the pump ends with the last ticket
	return true
}

// take removes a ticket; the mutex is held.
func (a *Admission) take(app string, i int) {
	a.queues[app] = slices.Delete(a.queues[app], i, i+1)
	if len(a.queues[app]) == 0 {
		delete(a.queues, app)
		a.ring = slices.Delete(a.ring, slices.Index(a.ring, app), slices.Index(a.ring, app)+1)
	}
}

// pump answers the tickets, until there is none. It waits for nothing but memory: whatever makes room is at work beside it.
func (a *Admission) pump(ctx context.Context, others crowd) {
	poll := time.NewTicker(admissionPoll)
	defer poll.Stop()
	for {
		next, starting := a.peek()
		if next == nil {
			return
		}
		why, ok, err := a.judge(ctx, others, next, starting)
		if ok || err != nil {
			a.answer(next, err)
			continue
		}
		a.refuse(why)
		a.makeRoom(ctx, others, why)
		select {
		case <-a.wake:
		case <-poll.C:
		}
	}
}

// peek gives the ticket whose turn it is, and how many sandboxes are starting. If there is none the pump has ended.
func (a *Admission) peek() (next *ticket, starting int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pumping = len(a.ring) > 0
	if !a.pumping {
		return nil, 0
	}
	return a.queues[a.ring[0]][0], int64(a.starts)
}

// judge reports whether a ticket can start now, and if not for lack of what.
func (a *Admission) judge(ctx context.Context, others crowd, t *ticket, starting int64) (why lack, ok bool, err error) {
	calm, err := a.calm()
	if err != nil || !calm {
		return lackCalm, false, err
	}
	ok, err = a.carries(ctx, others, (starting+1)*cmp.Or(a.Share, defaultShare))
	if t.claims = !ok && err == nil && t.spare != nil && t.spare(); t.claims {
		ok = true
	}
	return lackMemory, ok, err
}

// calm reports whether the pressure lets sandboxes start.
func (a *Admission) calm() (bool, error) {
	if a.Pressure == nil {
		return true, nil
	}
	p, err := a.Pressure()
	if err != nil {
		return false, fmt.Errorf("read memory pressure: %w", err)
	}
	return p < cmp.Or(a.MaxPressure, defaultMaxPressure), nil
}

// carries reports whether memory carries so many bytes more beside all sandboxes there are.
func (a *Admission) carries(ctx context.Context, others crowd, more int64) (bool, error) {
	total, available, err := a.Memory()
	if err != nil {
		return false, fmt.Errorf("read memory: %w", err)
	}
	spares, _ := a.spares(ctx)
	reserve, share := cmp.Or(a.Reserve, ReserveFor(total)), cmp.Or(a.Share, defaultShare)
	return plenty(total, available, reserve, share, others.count()+len(spares), more) ||
		carries(total, available, reserve, share, append(spares, others.uses(ctx)...), more), nil
}

// makeRoom begins to end one sandbox that can be missed, first of those that belong to nobody, unless one is being ended
// already or the pressure has not had the time to show that one was.
func (a *Admission) makeRoom(ctx context.Context, others crowd, why lack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.closed || now.Before(a.room.busyUntil) || why == lackCalm && now.Before(a.room.calmUntil) {
		return
	}
	a.room.round++
	round := a.room.round
	a.room.busyUntil = now.Add(evictLimit)
	a.work.Go(func() {
		gone := a.Drain != nil && a.Drain(ctx) || others.evict(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.room.round == round {
			a.room.busyUntil = time.Time{}
		}
		if gone {
			a.room.calmUntil = time.Now().Add(calmPause)
			a.poke()
		}
	})
}

// answer lets a ticket start, or fail, whose turn it is; its app goes to the end of the line.
func (a *Admission) answer(t *ticket, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ring) > 0 && a.queues[a.ring[0]][0] == t { // else given up meanwhile
		a.answerNext(err)
	}
}

// answerNext answers whose turn it is; the mutex is held, and the line is not empty.
func (a *Admission) answerNext(err error) {
	app := a.ring[0]
	t := a.queues[app][0]
	a.take(app, 0)
	if len(a.queues[app]) > 0 {
		a.ring = append(a.ring[1:], app)
	}
	if t.err = err; err == nil {
		a.starts++
	}
	close(t.done)
}

// refuse tells all who wait that they cannot start now.
func (a *Admission) refuse(why lack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.queues {
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
