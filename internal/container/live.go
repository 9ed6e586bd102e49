package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

var errReleased = errors.New("container lease used after release")

// live is what this process knows about a container in use: its turn and the sandbox behind it. It is made at the first
// use and forgotten when the sandbox has been destroyed for idleness.
type live struct {
	id ID
	// turn holds one token while somebody (a lease, the background loop) works on the container. Whoever holds it owns
	// the fields below; closed and sb are also read by dropLive, under mu.
	turn chan struct{}
	// ended is cancelled when dropLive begins: whoever works in the turn or waits for it gives up.
	ended context.Context
	end   context.CancelCauseFunc
	// waiting counts requests that want the turn, so that the entry is not forgotten under them; wanted tells background
	// work that holds the turn about them. Both are guarded by Service.mu.
	waiting int
	wanted  func()

	mu     sync.Mutex
	sb     *sandbox.Sandbox
	ws     *sandbox.Workspace // attached; outlives sandboxes that died
	hold   func()             // gives back the hold on the root file system
	closed bool               // the container is being deleted: no sandbox is started any more
	use    memoryUse
	size   int64 // of the image at the last look at it on a full disk, in bytes
	owner  tenant.Owner
	// What executions account for of the sandbox's processor time since it was started, and whether the rest is booked.
	startedAt time.Time
	counted   time.Duration
	booked    bool
	dirty     bool      // used since the last sync began
	saving    *saving   // a sync that runs, perhaps longer than the turn that began it
	waits     *Parkable // waits beyond the turn for an answer
	unsaved   unsaved   // what the next use is to be told

	frozen    bool
	noFreeze  bool      // freezing failed since the last use
	noEvict   time.Time // until then it is not ended for somebody else's memory: that has just failed
	held      bool      // an interpreter in the sandbox holds state
	idleSince time.Time
	share     *share // of whoever began or answered the code that waits; nil in a turn that has it
}

func newLive(id ID, now time.Time) *live {
	v := &live{id: id, turn: make(chan struct{}, 1), idleSince: now}
	v.ended, v.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // a signal to watch; nothing works in it
	return v
}

// endless is a wait for a turn that only its context ends.
const endless = time.Duration(math.MaxInt64)

// takeTurn waits for the exclusive use of a container.
func (s *Service) takeTurn(ctx context.Context, id ID, busyWait time.Duration) (*live, error) {
	s.mu.Lock()
	v := s.entry(id)
	v.waiting++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		v.waiting--
		s.mu.Unlock()
	}()

	if v.try() {
		return v, nil
	}
	s.want(v)
	timer := time.NewTimer(busyWait)
	defer timer.Stop()
	select {
	case v.turn <- struct{}{}:
		return v, nil
	case <-timer.C:
		return nil, busyError()
	case <-v.ended.Done():
		return nil, context.Cause(v.ended)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// want lets background work give up a turn that somebody waits for.
func (s *Service) want(v *live) {
	s.mu.Lock()
	wanted := v.wanted
	s.mu.Unlock()
	if wanted != nil {
		wanted()
	}
}

// giveTurn ends a turn that used the container: its rest begins anew.
func (s *Service) giveTurn(v *live) {
	v.idleSince, v.noFreeze = s.now(), false
	v.put()
}

// try takes the turn if it is free.
func (v *live) try() bool {
	select {
	case v.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// put gives the turn back without counting as a use, as whoever works on a container that rests does.
func (v *live) put() { <-v.turn }

// entry looks an entry up, or makes it; Service.mu is held.
func (s *Service) entry(id ID) *live {
	v := s.lives[id]
	if v != nil {
		return v
	}
	if s.lives == nil {
		s.lives = make(map[ID]*live)
	}
	v = newLive(id, s.now())
	s.lives[id] = v
	return v
}

// known looks an entry up; nil if there is none.
func (s *Service) known(id ID) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[id]
}

// busy reports whether a turn runs in the container at this moment.
func (s *Service) busy(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.lives[id]
	return v != nil && len(v.turn) > 0
}

// LiveCount is the number of sandboxes that run or are frozen.
func (s *Service) LiveCount() int {
	n := 0
	for _, v := range s.snapshot() {
		if v.sandbox() != nil {
			n++
		}
	}
	return n
}

func (s *Service) snapshot() []*live {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*live, 0, len(s.lives))
	for _, v := range s.lives {
		all = append(all, v)
	}
	return all
}

func (v *live) sandbox() *sandbox.Sandbox {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sb
}

// Sandbox returns the running sandbox of the container, made or thawed or replaced as needed. When a sandbox died since
// the last call this one gets a new one with the same workspace. Do not keep the result beyond the turn.
func (l *Lease) Sandbox(ctx context.Context) (*sandbox.Sandbox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ensure(ctx); err != nil {
		return nil, err
	}
	return l.sandbox(ctx)
}

func (l *Lease) sandbox(ctx context.Context) (*sandbox.Sandbox, error) {
	s, v := l.s, l.live
	if l.share == nil {
		taken, err := s.inUse.take(l.caller, s.PerApp, s.PerUser, v.share)
		if err != nil {
			return nil, err
		}
		l.share, v.share = taken, nil
	}
	if sb := v.sandbox(); sb != nil {
		if !sb.Ended() {
			if !v.frozen {
				return sb, nil
			}
			err := sb.Thaw(ctx)
			if err == nil {
				v.frozen = false
				return sb, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			// It will not run again, whether the host or what is inside keeps it from that: another takes its place.
			s.log().WarnContext(ctx, "sandbox cannot be thawed", "container_id", v.id, "error", err)
		}
		if err := s.endSandbox(ctx, v, whyDied); err != nil {
			return nil, err
		}
	}
	sb, continued, err := l.start(ctx)
	if err != nil {
		return nil, err
	}
	if v.held = continued; l.c.repl == replHeld && !continued {
		if err := l.setREPL(ctx, replLost); err != nil {
			return nil, err
		}
	}
	return sb, nil
}

// start gives the container a sandbox: one of the pool, or one on its workspace, with what ran in the last one if that was
// kept (continued).
func (l *Lease) start(ctx context.Context) (sb *sandbox.Sandbox, continued bool, err error) {
	s, c := l.s, l.c
	if s.Admit != nil {
		if err := s.Admit(ctx); err != nil {
			return nil, false, err
		}
	}
	img, err := s.FindRootFS(c.RootFS)
	if err != nil {
		// The container asked for it when it was made, so its absence is the server's fault.
		return nil, false, wire.Internal(fmt.Errorf("root file system %s of container %s: %w", c.RootFS, c.ID, err))
	}
	began := time.Now()
	var class *sandbox.Class
	if l.fresh() {
		class = new(s.class(img))
	}
	for ; sb == nil; class = nil { // twice, if the sandbox of the pool that it was to take is gone
		g, err := s.enter(ctx, c.Owner.AppID, class)
		if err == nil {
			sb, continued, err = l.admitted(ctx, img, g.Claims)
			g.Leave()
		}
		if err != nil {
			return nil, false, err
		}
	}
	s.log().InfoContext(ctx, "sandbox started", "container_id", c.ID, "sandbox_id", sb.ID(), "rootfs", c.RootFS,
		"pooled", sb.ID() != string(c.ID), "continued", continued, "took", time.Since(began))
	return sb, continued, nil
}

// admitted is start when memory allows it; claims says that it may only take a sandbox of the pool. nil if there is none.
func (l *Lease) admitted(ctx context.Context, img *rootfs.Image, claims bool) (sb *sandbox.Sandbox, continued bool, err error) {
	sb, release, err := l.claim(ctx, img)
	if sb == nil && err == nil && !claims {
		sb, release, continued, err = l.create(ctx, img)
	}
	if err != nil || sb == nil {
		return nil, false, err
	}
	if err := l.take(ctx, sb, release); err != nil {
		return nil, false, err
	}
	return sb, continued, nil
}

func (s *Service) limits() sandbox.Limits {
	if s.Limits == (sandbox.Limits{}) {
		return sandbox.DefaultLimits()
	}
	return s.Limits
}

// attach makes the workspace usable; it stays attached until the sandbox is put away for idleness.
func (l *Lease) attach(ctx context.Context) (*sandbox.Workspace, error) {
	if ws := l.live.ws; ws != nil && ws.Attached() {
		return ws, nil
	} else if ws != nil { // it is being detached, which took longer than somebody waited
		if err := l.s.detach(ctx, l.live, ws.Detach); err != nil {
			return nil, err
		}
	}
	ws, err := l.workspace(ctx)
	if err != nil {
		return nil, err
	}
	if err := ws.Attach(ctx); errors.Is(err, sandbox.ErrDamaged) {
		return nil, errors.Join(l.lost(ctx), err)
	} else if err != nil {
		return nil, capacity(fmt.Errorf("attach workspace of container %s: %w", l.c.ID, err))
	}
	l.live.mu.Lock()
	l.live.ws = ws
	l.live.mu.Unlock()
	return ws, nil
}

// workspace opens the image, or creates it if the container never had one. An image that was there and is not any more
// ends the container: an empty workspace under the old id would be a lie.
func (l *Lease) workspace(ctx context.Context) (*sandbox.Workspace, error) {
	s, c := l.s, l.c
	if c.packed() {
		if err := l.unpack(ctx); err != nil {
			return nil, err
		}
	}
	if c.hasWorkspace {
		ws, err := s.Workspaces.Open(string(c.ID))
		if !errors.Is(err, os.ErrNotExist) {
			return ws, err
		}
		return nil, l.lost(ctx)
	}
	// A crash between Create and the row leaves an image without data: begin anew.
	if err := s.clear(c.ID); err != nil {
		return nil, err
	}
	ws, err := s.Workspaces.Create(ctx, string(c.ID), s.limits())
	if err != nil {
		return nil, capacity(fmt.Errorf("create workspace of container %s: %w", c.ID, err))
	}
	if err := setWorkspace(ctx, s.DB, c.ID, true); err != nil {
		return nil, err
	}
	c.hasWorkspace = true
	return ws, nil
}

// unpack makes the image of a packed container.
func (l *Lease) unpack(ctx context.Context) error {
	if err := l.s.unpack(ctx, l.c); err != nil {
		return l.unpackError(ctx, err)
	}
	return nil
}

// unpackError says what a packed workspace that could not be read means for its container.
func (l *Lease) unpackError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, sandbox.ErrDamaged):
		l.s.log().ErrorContext(ctx, "packed workspace is damaged", "container_id", l.c.ID, "blob_key", l.c.packKey, "kept_for", keepLost, "error", err)
		return errors.Join(l.lost(ctx), err)
	case errors.Is(err, blob.ErrNotFound) && l.c.Home != l.s.Instance:
		return farError() // it lies in a store that its home has and we do not
	case errors.Is(err, blob.ErrNotFound):
		// A store that is the wrong one, or that answers for all its blobs alike, has lost nothing.
		if ping := l.s.Blobs.Ping(ctx); ping != nil {
			return fmt.Errorf("%w, in a store that cannot be reached: %w", err, ping)
		}
		return errors.Join(l.lost(ctx), err)
	}
	return capacity(err)
}

// lost ends a container whose files are gone for good, and gives the error that says so.
func (l *Lease) lost(ctx context.Context) error {
	if err := setState(ctx, l.s.DB, l.c.ID, StateActive, StateLost); err != nil {
		return err
	}
	l.c.State = StateLost
	return lostError(l.c.ID)
}

// endSandbox destroys the sandbox of a container whose turn the caller holds; the container stays. Unless the sandbox
// died and a successor is about to start, the workspace is detached too.
func (s *Service) endSandbox(ctx context.Context, v *live, why string) error {
	limit := cmp.Or(s.KeepLimit, keepLimit)
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	ctx = context.WithoutCancel(ctx)
	v.mu.Lock()
	sb, ws := v.sb, v.ws
	v.mu.Unlock()
	if sb != nil {
		s.bookRest(ctx, v, sb)
		reason := string(sb.ExitReason())
		s.keep(ctx, v, sb, why, limit)
		if err := sb.Destroy(ctx); err != nil {
			return fmt.Errorf("destroy sandbox of container %s: %w", v.id, err)
		}
		v.hold()
		v.mu.Lock()
		v.sb, v.hold, v.frozen, v.held, v.size = nil, nil, false, false, 0
		v.mu.Unlock()
		if s.Admission != nil {
			s.Admission.Changed()
		}
		s.log().InfoContext(ctx, "sandbox ended", "container_id", v.id, "why", why, "reason", reason)
	}
	s.giveShare(v)
	switch {
	case why == whyDied || ws == nil:
		return nil
	case why == whyDeleted || why == whyExpired:
		return s.detach(ctx, v, ws.Drop) // a full disk must not keep what would make room on it
	}
	return s.detach(ctx, v, ws.Detach)
}

// detachLimit is how long the end of a sandbox waits for the disk; the next pass or use waits again.
const detachLimit = 30 * time.Second

func (s *Service) detach(ctx context.Context, v *live, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, detachLimit)
	defer cancel()
	if err := end(ctx); err != nil {
		if errors.Is(err, sandbox.ErrUnsaved) {
			s.noteUnsaved(ctx, v, err)
		}
		return fmt.Errorf("detach workspace of container %s: %w", v.id, err)
	}
	v.mu.Lock()
	v.ws = nil
	v.mu.Unlock()
	return s.seal(v.id)
}

// dropLive destroys the sandbox of a container whether or not a turn runs; later starts are refused.
func (s *Service) dropLive(ctx context.Context, id ID, why string) error {
	v := s.known(id)
	if v == nil {
		return nil
	}
	v.mu.Lock()
	v.closed = true
	sb := v.sb
	v.mu.Unlock()
	v.end(endError(why))
	if sb != nil {
		s.bookRest(ctx, v, sb)
		if err := sb.Destroy(ctx); err != nil {
			return fmt.Errorf("destroy sandbox: %w", err)
		}
	}
	// The cut-off turn ends by itself soon; the image may only go once nobody starts a sandbox on it.
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errors.New("the running turn did not end")
	}
	defer v.put()
	if err := s.endSandbox(ctx, v, why); err != nil {
		return err
	}
	s.forget(v)
	return nil
}

// hasUnsaved says whether the next use must be told something that only this entry knows.
func (v *live) hasUnsaved() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.unsaved.err != nil && !v.unsaved.noted
}

// forget drops the entry of a container without a sandbox; the caller holds its turn.
func (s *Service) forget(v *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lives[v.id] != v {
		return // forgotten before, and the one of that name is another
	}
	// Somebody who waits has a pointer to this entry; a second one beside it would allow two turns at once. A deleted
	// container has no such problem: whoever waits finds the row gone.
	if (v.waiting == 0 && !v.hasUnsaved()) || v.closed {
		delete(s.lives, v.id)
	}
}
