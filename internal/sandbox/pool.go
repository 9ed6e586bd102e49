package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// Class is what two sandboxes must have in common for one to stand in for the other.
type Class struct {
	// RootFS is as in Spec.
	RootFS  string
	Limits  Limits
	Preload []string
	// Hold keeps the root file system from being removed while a member uses it; nil = nothing has to be held.
	Hold func() (release func(), err error)
}

func (c Class) key() string {
	return fmt.Sprintf("%q %+v %q", c.RootFS, c.Limits.WithDefaults(), c.Preload)
}

// Pool keeps sandboxes ready that nobody has used: with a blank, attached workspace, a guest that has run a command, and
// the Python fork server up. Whoever claims one owns it, workspace and all; none ever comes back.
//
//	            make, one at a time                Claim, after a look at its clock
//	(missing) ──────────────────────► ready ──────────────────────────────────► the caller's
//	    ▲                               │ died, too old, of another image, limits or settings; memory is scarce; Stop
//	    └───────────────────────────────┴──► destroyed, its workspace removed
//
// The names of members begin with PoolPrefix. What a killed server leaves of them its next start sweeps away: cgroups
// carry the instance, and an image that no container owns is removed.
//
// All fields are set before Start and not changed afterwards. One goroutine, from Start to Stop, makes and destroys.
type Pool struct {
	Driver     Driver
	Workspaces *Workspaces
	// Size is how many are kept ready of each class; 0 = none at all.
	Size int
	// Default is the class that is always kept; an error means none at the moment, nil none ever. Other classes are kept for a while
	// after somebody asked for them.
	Default func() (Class, error)
	// Admit is asked before a member is made. An error means none for a while; ErrScarce ends those that are ready, too, which
	// gives their memory back. A full pool does not ask. nil = always.
	Admit func(ctx context.Context) error
	// MaxAge of a member; 0 = 30 min.
	MaxAge time.Duration
	// Pause after a claim before the next member is made: whoever claimed has the processors for its first command; 0 = 0.5 s.
	Pause time.Duration
	// Calm is the pause after a member could not be made or was not admitted, or some were ended for their memory; 0 = 10 s.
	Calm time.Duration
	// Every is how often members are looked at; 0 = 1 s.
	Every time.Duration
	// Now is the clock that a member's must agree with; nil = time.Now.
	Now func() time.Time
	Log *slog.Logger // nil = discard

	// Bases keeps one more member of the default class on disk, where the driver can continue it; nil = none. See
	// pool_base_linux.go.
	Bases *Snapshots
	// AdmitBase says whether there is disk for it; an error removes it. nil = always.
	AdmitBase func(ctx context.Context) error

	mu     sync.Mutex // guards the fields below
	ready  []*Member
	spent  []*Member // to be destroyed
	asked  map[string]*want
	calm   time.Time // no member is made before
	closed bool
	heard  map[string]int // members by class that a claim is asking: neither ready nor missing

	baseCalm time.Time // no base is made before; the goroutine's own

	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

// PoolPrefix begins the ids of members and of their workspaces.
const PoolPrefix = "pool-"

// Member is a sandbox nobody has used, with its attached workspace. The owner destroys the one, detaches and removes the
// other, and calls Release when the root file system is not used any more; or calls Discard for all of it, which leaves only
// a workspace that has another name by then.
type Member struct {
	Sandbox   *Sandbox
	Workspace *Workspace
	Release   func()

	pool      *Pool
	key       string
	born      time.Time
	continued bool // it was made of a base
	late      int  // claims in a row that it did not answer in time
}

type want struct {
	class Class
	at    time.Time
}

const (
	// keepAsked is how long a class that is not the default is kept ready after it was last asked for.
	keepAsked = 10 * time.Minute
	// maxAsked bounds such classes.
	maxAsked = 3
	// memberLimit bounds the making of a member, imports included.
	memberLimit = 2 * time.Minute
)

// Start begins to fill the pool. Starting twice is harmless.
func (p *Pool) Start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Size <= 0 || p.cancel != nil {
		return
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.wake, p.done = make(chan struct{}, 1), make(chan struct{})
	go p.run(ctx)
}

// Stop ends all members and waits for the goroutine. Claims find nothing from then on. Stopping twice is harmless.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.spend(func(*Member) bool { return true })
	cancel, done := p.cancel, p.done
	p.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("stop pool: %w", context.Cause(ctx))
	}
	return p.bury(ctx)
}

// Drain ends all members, to give their memory back, and makes no new ones for a moment. It does not wait.
func (p *Pool) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calm = time.Now().Add(cmp.Or(p.Calm, 10*time.Second))
	p.spend(func(*Member) bool { return true })
}

// Yield ends one member and returns when its memory is free again; false if there is none.
func (p *Pool) Yield(ctx context.Context) bool {
	p.mu.Lock()
	n := len(p.ready) - 1
	if n < 0 {
		p.mu.Unlock()
		return false
	}
	m := p.ready[n]
	p.ready, p.calm = p.ready[:n], time.Now().Add(cmp.Or(p.Calm, 10*time.Second))
	p.mu.Unlock()
	if err := m.end(ctx); err != nil {
		p.log().ErrorContext(ctx, "destroy pool member", "error", err)
		m.Discard()
		return false
	}
	return true
}

// Ready is the number of members that can be claimed.
func (p *Pool) Ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// Has reports whether a member of the class is ready.
func (p *Pool) Has(c Class) bool {
	if p == nil {
		return false
	}
	key := c.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.ready, func(m *Member) bool { return m.key == key && m.alive() })
}

// Uses is the memory that the ready members have, each in bytes, without what the kernel takes back first.
func (p *Pool) Uses(ctx context.Context) []int64 {
	p.mu.Lock()
	ready := slices.Clone(p.ready)
	p.mu.Unlock()
	uses := make([]int64, len(ready))
	for i, m := range ready {
		u, err := m.Sandbox.Usage(ctx)
		if err == nil { // else it is ending
			uses[i] = u.Memory - u.Reclaimable
		}
	}
	return uses
}

// Discard ends a member and removes its workspace, in the background.
func (m *Member) Discard() {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = append(p.spent, m)
	p.poke()
}

func (m *Member) alive() bool {
	select {
	case <-m.Sandbox.Done():
		return false
	default:
		return true
	}
}

// end may be repeated until it succeeds. A workspace that was renamed is somebody's, and stays.
func (m *Member) end(ctx context.Context) error {
	err := m.Sandbox.Destroy(ctx)
	if err == nil {
		err = m.Workspace.Detach(ctx)
	}
	if err == nil && strings.HasPrefix(m.Workspace.ID, PoolPrefix) {
		err = m.pool.Workspaces.Remove(m.Workspace.ID)
	}
	if err == nil {
		m.Release()
	}
	return err
}

func (p *Pool) run(ctx context.Context) {
	defer close(p.done)
	tick := time.NewTicker(cmp.Or(p.Every, time.Second))
	defer tick.Stop()
	for {
		p.pass(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wake:
		}
	}
}

// pass destroys what is spent and makes what is missing.
func (p *Pool) pass(ctx context.Context) {
	for ctx.Err() == nil {
		wanted := p.wanted()
		p.mu.Lock()
		p.spend(func(m *Member) bool {
			_, current := wanted[m.key]
			return !current || !m.alive() || time.Since(m.born) > cmp.Or(p.MaxAge, 30*time.Minute)
		})
		p.mu.Unlock()
		if err := p.bury(ctx); err != nil && ctx.Err() == nil {
			p.log().ErrorContext(ctx, "destroy pool member", "error", err)
		}
		class, missing := p.missing(wanted)
		if !missing {
			p.tendBase(ctx)
		}
		if !missing || !p.fill(ctx, class) {
			return
		}
	}
}

// fill makes one member; false = not now.
func (p *Pool) fill(ctx context.Context, class Class) bool {
	if p.Admit != nil {
		if err := p.Admit(ctx); err != nil {
			p.refused(ctx, err)
			return false
		}
	}
	began := time.Now()
	m, err := p.makeMember(ctx, class)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.calm = time.Now().Add(cmp.Or(p.Calm, 10*time.Second))
		if ctx.Err() == nil {
			p.log().WarnContext(ctx, "make pool member", "error", err)
		}
		return false
	case p.closed:
		p.spent = append(p.spent, m)
		return false
	}
	p.ready = append(p.ready, m)
	p.log().DebugContext(ctx, "pool member ready", "sandbox_id", m.Sandbox.ID(), "continued", m.continued, "took", time.Since(began))
	return true
}

// refused makes no more for a moment, and takes back what there is only if there is no memory for that either: what is ended
// because one more did not fit would be made again and again.
func (p *Pool) refused(ctx context.Context, why error) {
	if errors.Is(why, ErrScarce) {
		if p.Ready() > 0 {
			p.log().InfoContext(ctx, "pool drained", "why", why)
		}
		p.Drain()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calm = time.Now().Add(cmp.Or(p.Calm, 10*time.Second))
}

// wanted are the classes to keep, by key.
func (p *Pool) wanted() map[string]Class {
	all := map[string]Class{}
	var standard Class
	known := false
	if p.Default != nil {
		var err error
		standard, err = p.Default()
		known = err == nil
	}
	if known {
		all[standard.key()] = standard
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, w := range p.asked {
		if known && key == standard.key() {
			// Kept anyway; and when it is no longer the default, because the image was built anew, it is not kept for having
			// been asked for as the default.
			delete(p.asked, key)
		} else if time.Since(w.at) > keepAsked {
			delete(p.asked, key)
		} else {
			all[key] = w.class
		}
	}
	return all
}

// missing names a class of which there are too few.
func (p *Pool) missing(wanted map[string]Class) (Class, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || time.Now().Before(p.calm) {
		return Class{}, false
	}
	have := map[string]int{}
	maps.Copy(have, p.heard)
	for _, m := range p.ready {
		have[m.key]++
	}
	for key, class := range wanted {
		if have[key] < p.Size {
			return class, true
		}
	}
	return Class{}, false
}

// makeMember leaves nothing behind if it fails.
func (p *Pool) makeMember(ctx context.Context, class Class) (_ *Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, memberLimit)
	defer cancel()
	m := &Member{pool: p, key: class.key(), Release: func() {}}
	if class.Hold != nil {
		if m.Release, err = class.Hold(); err != nil {
			return nil, err
		}
	}
	id := PoolPrefix + strings.ToLower(rand.Text())
	if m.Workspace, err = p.Workspaces.Create(ctx, id, class.Limits); err != nil {
		m.Release()
		return nil, err
	}
	err = m.Workspace.Attach(ctx)
	if err == nil {
		spec := Spec{ID: id, RootFS: class.RootFS, Workspace: m.Workspace, Limits: class.Limits, Preload: class.Preload}
		if m.Sandbox = p.continueBase(ctx, class, spec); m.Sandbox != nil {
			m.continued = true
		} else {
			m.Sandbox, err = p.Driver.Create(ctx, spec)
		}
	}
	if err != nil {
		p.giveUp(ctx, m)
		return nil, err
	}
	if err := m.warm(ctx); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.spent = append(p.spent, m)
		return nil, err
	}
	m.born = time.Now()
	return m, nil
}

// giveUp takes back a workspace that has no sandbox.
func (p *Pool) giveUp(ctx context.Context, m *Member) {
	ctx = context.WithoutCancel(ctx)
	if err := errors.Join(m.Workspace.Detach(ctx), p.Workspaces.Remove(m.Workspace.ID)); err != nil {
		p.log().ErrorContext(ctx, "remove workspace of pool member", "error", err)
	}
	m.Release()
}

// warm does what is slow the first time, with little claim on the processors. That there is no Python, or nothing for the
// fork server to import, is no fault of the member.
func (m *Member) warm(ctx context.Context) error {
	if err := m.Sandbox.background(ctx, true); err != nil {
		return err
	}
	var refused *guest.Error
	if err := m.Sandbox.Warm(ctx); err != nil && !errors.As(err, &refused) {
		return err
	}
	_, err := m.Sandbox.Exec(ctx, Command{Argv: []string{"/bin/true"}})
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	return m.Sandbox.background(ctx, false)
}

// spend moves members under mu from ready to spent.
func (p *Pool) spend(which func(*Member) bool) {
	p.ready = slices.DeleteFunc(p.ready, func(m *Member) bool {
		if !which(m) {
			return false
		}
		p.spent = append(p.spent, m)
		return true
	})
	if len(p.spent) > 0 {
		p.poke()
	}
}

// bury destroys what is spent; what fails is tried again.
func (p *Pool) bury(ctx context.Context) error {
	p.mu.Lock()
	spent := p.spent
	p.spent = nil
	p.mu.Unlock()
	var errs []error
	for _, m := range spent {
		if err := m.end(ctx); err != nil {
			errs = append(errs, err)
			p.mu.Lock()
			p.spent = append(p.spent, m)
			p.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// poke has the goroutine look at once.
func (p *Pool) poke() {
	if p.wake == nil {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pool) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

func (p *Pool) log() *slog.Logger {
	if p.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Log
}
