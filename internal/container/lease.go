package container

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Lease is one turn: exclusive use of a container from Acquire to Release. Its methods may be called from several
// goroutines of that turn. A lease without an id (Acquire with "") has no container yet; the first method that needs
// one creates it.
type Lease struct {
	s      *Service
	caller tenant.Caller
	// ended is cancelled when the container is deleted or the server stops, whoever asked for it.
	ended context.Context
	end   context.CancelCauseFunc

	mu       sync.Mutex
	c        *Container // nil until it exists
	live     *live      // nil until it exists; its turn is held by this lease
	unwatch  func() bool
	inputs   []Input
	loaded   bool     // inputs were read
	last     *account // the account of the newest execution, open for its output files
	filesIn  int64    // bytes of input files that no execution accounts for yet
	share    *share   // what the turn takes of its caller's share; nil = it used no sandbox yet
	parks    bool     // code that waits was parked in the turn
	answers  bool     // something that the turn did has its result
	released bool
}

// Acquire begins a turn in the container with this id, or in one that Ensure creates when id is empty. It waits for a
// running turn up to Service.BusyWait. Errors: 400 for a malformed id, wire.NotFound for an unknown, foreign or deleted
// one, 404 with CodeExpired or CodeLost, 429 when it stays busy.
func (s *Service) Acquire(ctx context.Context, caller tenant.Caller, id ID) (*Lease, error) {
	return s.acquire(ctx, caller, id, max(cmp.Or(s.BusyWait, 30*time.Second), 0))
}

// AcquirePatiently is Acquire for a request that repeats another: it waits for the running turn as long as ctx lasts.
func (s *Service) AcquirePatiently(ctx context.Context, caller tenant.Caller, id ID) (*Lease, error) {
	return s.acquire(ctx, caller, id, endless)
}

func (s *Service) acquire(ctx context.Context, caller tenant.Caller, id ID, busyWait time.Duration) (*Lease, error) {
	l := &Lease{s: s, caller: caller}
	l.ended, l.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // a signal to watch; nothing works in it
	if id == "" {
		return l, nil
	}
	if err := id.Validate(); err != nil {
		return nil, err
	}
	c, err := load(ctx, s.DB, caller, id)
	if err != nil {
		return nil, err
	}
	if c.State == StateActive && s.Far(c) {
		return nil, farError()
	}
	if c, err = s.settled(ctx, c); err != nil {
		return nil, err
	}
	if err := c.usable(s.now()); err != nil && !s.busy(id) {
		return nil, err
	}
	v, err := s.takeTurn(ctx, id, busyWait)
	if err != nil {
		return nil, err
	}
	// The row may have ended while this request waited.
	c, err = s.beginTurn(ctx, caller, id)
	if err != nil {
		s.giveTurn(v)
		return nil, err
	}
	l.c = c
	l.hold(v)
	v.inherit(c)
	return l, nil
}

// hold makes the lease the owner of a turn and lets it end with the container.
func (l *Lease) hold(v *live) {
	l.live = v
	l.unwatch = context.AfterFunc(v.ended, func() { l.end(context.Cause(v.ended)) })
}

// Context is ctx for work of this turn that does not run in the sandbox, above all waiting for a model: it ends, with
// wire.NotFound as its cause, when somebody deletes the container, and with a wire.Overloaded when the server stops. It
// may be taken before the container exists. A turn that goes on regardless makes the deletion fail.
func (l *Lease) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ended, func() { cancel(context.Cause(l.ended)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// beginTurn reads the row again under the turn, claims it for this instance and moves its expiry.
func (s *Service) beginTurn(ctx context.Context, caller tenant.Caller, id ID) (*Container, error) {
	c, err := load(ctx, s.DB, caller, id)
	if err != nil {
		return nil, err
	}
	now := s.now()
	if err := c.usable(now); err != nil {
		return nil, err
	}
	// A packed workspace lies on nobody's disk: unpacking it makes this instance its home.
	if s.Far(c) {
		return nil, farError()
	}
	if c.touch(now) {
		if err := saveUse(ctx, s.DB, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func farError() error {
	return wire.Overloaded(5*time.Second,
		"The container lives on another server of this installation, which cannot be reached from here.")
}

// Container returns a copy of the row as of the last use, or nil when the lease has created none.
func (l *Lease) Container() *Container {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return nil
	}
	c := *l.c
	return &c
}

// Ensure makes sure that the container exists, as a row; its id may be shown from then on.
func (l *Lease) Ensure(ctx context.Context) (*Container, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ensure(ctx); err != nil {
		return nil, err
	}
	c := *l.c
	return &c, nil
}

func (l *Lease) ensure(ctx context.Context) error {
	if l.released {
		return errReleased
	}
	if l.c != nil {
		return nil
	}
	c, err := l.s.newContainer(ctx, l.caller, "", 0)
	if err != nil {
		return err
	}
	// The turn is taken before anybody can see the row: a deletion in between would find nothing to end, and this turn
	// would make a sandbox for a container that is gone.
	v, err := l.s.takeTurn(ctx, c.ID, endless)
	if err != nil {
		return err
	}
	if err := insert(ctx, l.s.DB, c); err != nil {
		l.s.forget(v)
		l.s.giveTurn(v)
		return err
	}
	l.c, l.loaded = c, true
	l.hold(v)
	return nil
}

// NoteREPL records whether the interpreter of the container holds state now. It is remembered with the row, so that a
// later turn can be told that variables are gone when the sandbox was replaced in between. Call it after each cell.
func (l *Lease) NoteREPL(ctx context.Context, holds bool) error {
	state := replNone
	if holds {
		state = replHeld
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return nil
	}
	return l.setREPL(ctx, state)
}

func (l *Lease) setREPL(ctx context.Context, state replState) error {
	l.live.held = state == replHeld
	if l.c.repl == state {
		return nil
	}
	if err := setREPL(ctx, l.s.DB, l.c.ID, state); err != nil {
		return err
	}
	l.c.repl = state
	return nil
}

// REPLLost reports that an interpreter with state was lost: the next cell begins empty and its author must be told. It
// stays true until NoteREPL. Ask after Sandbox, which is what finds it out.
func (l *Lease) REPLLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c != nil && l.c.repl == replLost
}

// Release ends the turn: the workspace is synced, the expiry moves, the next request may begin. It works on after ctx is
// cancelled, and doing it twice is harmless.
func (l *Lease) Release(ctx context.Context) { l.release(ctx, true) }

// release with durable false leaves the sync to the background loop, which makes a pass every second.
func (l *Lease) release(ctx context.Context, durable bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return
	}
	l.released = true
	if l.live == nil {
		return
	}
	l.unwatch()
	l.bookLast()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncLimit+10*time.Second)
	defer cancel()
	l.live.markDirty()
	cell := l.live.parked()
	// Of a turn that did nothing but park code nobody was told a result; the background loop syncs what the code wrote.
	if durable && (l.answers || !l.parks) {
		l.s.syncLive(ctx, l.live)
	}
	moved := l.c.touch(l.s.now())
	if cell != nil {
		moved = l.rest(cell) || moved
	}
	if moved {
		// A container deleted during the turn has no row to write to.
		if err := saveUse(ctx, l.s.DB, l.c); err != nil && !errors.Is(err, db.ErrStale) {
			l.s.log().ErrorContext(ctx, "save container use", "container_id", l.c.ID, "error", err)
		}
	}
	l.settleShare(cell)
	l.s.giveTurn(l.live)
}

// Use runs f with the sandbox of a container in a turn of its own, for whoever is no model: what f runs is written down as
// usage.KindExec. The context that f gets ends with the container, too. durable: what f writes is on disk when Use returns; without
// it that is left to the background loop, which makes a pass every second. Errors are those of f and of Acquire; an error of f
// that comes from the end of the sandbox says which of its ends it came to (GoneError).
func (s *Service) Use(ctx context.Context, caller tenant.Caller, id ID, durable bool, f func(context.Context, Metered) error) error {
	if id == "" {
		return id.Validate()
	}
	l, err := s.Acquire(ctx, caller, id)
	if err != nil {
		return err
	}
	defer l.release(ctx, durable)
	turn, cancel := l.Context(ctx)
	defer cancel()
	if err := l.unsavedError(turn); err != nil {
		return err
	}
	sb, err := l.Sandbox(turn)
	if err != nil && l.ended.Err() != nil {
		return context.Cause(l.ended)
	}
	if err != nil {
		return err
	}
	err = f(turn, Metered{sb, l, usage.KindExec})
	if err != nil && l.ended.Err() != nil {
		// Which of the two was noticed first, the end of the turn or that of its sandbox, is chance.
		return GoneError(sandbox.ExitDestroyed, errors.Join(sandbox.ErrGone, err))
	}
	return goneError(sb, err)
}
