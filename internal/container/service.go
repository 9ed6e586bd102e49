package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Service owns the containers of one instance. All fields are set before the first call and not changed afterwards.
type Service struct {
	DB    *db.DB
	Files *file.Service
	// Blobs holds packed workspaces; nil = nothing is packed.
	Blobs      *blob.Store
	Driver     sandbox.Driver
	Workspaces *sandbox.Workspaces
	// Snapshots keeps what ran in sandboxes that were put away, where the driver can continue it; nil = nothing is kept.
	Snapshots *sandbox.Snapshots
	RootFS    *rootfs.Store
	// Pool has sandboxes ready for fresh containers; nil = each is made when it is needed.
	Pool *sandbox.Pool
	// Instance is the id of the data folder; rows carry it as their home.
	Instance string
	// CursorKey signs list cursors.
	CursorKey wire.CursorKey

	// DefaultRootFS names the root file system of containers that ask for none; empty = the store's default.
	DefaultRootFS string
	// Limits of every sandbox; zero = sandbox.DefaultLimits.
	Limits sandbox.Limits
	// Preload names the Python modules that sandboxes have imported before they are asked; see sandbox.Spec.
	Preload []string

	IdleTTL           time.Duration // rolling life after the last use; 0 = 1 h
	MaxAge            time.Duration // absolute life; 0 = 30 days
	IdleFreeze        time.Duration // 0 = 30 s, negative = never
	IdleDestroy       time.Duration // 0 = 10 min
	KeepParkedRunning bool          // a sandbox whose code waits for an answer from outside is not frozen
	PackAfter         time.Duration // unused time after which a workspace is packed; 0 = 1 h, negative = never
	BusyWait          time.Duration // how long a request waits for a busy container; 0 = 30 s, negative = not at all
	SweepEvery        time.Duration // pace of the background loop; 0 = 1 s
	SweepLimit        time.Duration // how long one container may hold it up; 0 = 30 s
	KeepLimit         time.Duration // how long the end of a sandbox waits for its snapshot; 0 = 20 s

	// PerApp and PerUser bound the turns that use a sandbox at once, of an app and of one user in it; 0 = no bound.
	PerApp, PerUser int

	// MaxFile bounds an output file; 0 = DefaultMaxFile.
	MaxFile int64

	// Admission decides when memory carries another sandbox; nil = always.
	Admission *admission.Queue
	// Admit is asked before a sandbox is made; an error refuses it (wire.Overloaded). nil = everything is admitted.
	Admit func(ctx context.Context) error
	// AdmitSnapshot says whether there is disk for snapshots; an error removes all of them. nil = always.
	AdmitSnapshot func(ctx context.Context) error
	// DiskFull says whether the disk takes no more data; sandboxes that go on writing then are ended. nil = never.
	DiskFull func(ctx context.Context) bool
	// TrimBallast is called before workspaces are written out, so that what can be given up on a disk without any room is. nil =
	// nothing can.
	TrimBallast func(ctx context.Context)
	// AdmitNew is asked before a container is made. nil = always.
	AdmitNew func(ctx context.Context) error

	// Usage has what each call used written down; nil = nothing is.
	Usage *usage.Log

	Now func() time.Time // nil = time.Now
	Log *slog.Logger     // nil = discard

	sync  func(context.Context, *sandbox.Workspace) error // replaced by tests; nil = its Sync
	crash func(step string) error                         // of tests: an error ends packing there, as a crash would, or fails a claim

	mu       sync.Mutex
	lives    map[ID]*live
	deleting map[ID]bool // deletions at work in this process
	expiring map[ID]bool // and other ends

	loop     loop // freezes, destroys
	ends     loop
	booking  loop
	fullDisk loop
	wasFull  atomic.Bool // at the last sweepFullDisk
	packing  loop
	work     sync.WaitGroup // on single containers, also what a loop has left behind
	packer   packer

	inUse inUse
}

// Bounds of expires_after_seconds.
const (
	MinExpiresAfter = 60 * time.Second
	defaultIdleTTL  = time.Hour
	defaultMaxAge   = 30 * 24 * time.Hour
)

// CreateParams asks for a container outside a Messages request.
type CreateParams struct {
	Files  []file.ID
	RootFS string
	// ExpiresAfter replaces the idle time of this container; 0 = the service's.
	ExpiresAfter time.Duration
}

// Create makes a container and loads the given files. It returns after the files can be seen inside.
func (s *Service) Create(ctx context.Context, caller tenant.Caller, p CreateParams) (*Container, error) {
	c, err := s.newContainer(ctx, caller, p.RootFS, p.ExpiresAfter)
	if err != nil {
		return nil, err
	}
	files, err := s.Files.Authorize(ctx, caller, p.Files)
	if err != nil {
		return nil, err
	}
	if err := admitFiles(caller, p.Files, files); err != nil {
		return nil, err
	}
	if err := insert(ctx, s.DB, c); err != nil {
		return nil, err
	}
	if len(p.Files) == 0 {
		return c, nil
	}
	l, err := s.Acquire(ctx, caller, c.ID)
	if err != nil {
		return nil, err
	}
	for _, id := range p.Files {
		if _, err = l.AddFile(ctx, caller, files[id]); err != nil {
			break
		}
	}
	l.Release(ctx)
	if err != nil {
		// Nobody has seen the id, so nobody can delete what was made for it.
		s.discard(ctx, c.ID)
		return nil, err
	}
	return l.Container(), nil
}

// newContainer checks the parameters and fills a row; it writes nothing.
func (s *Service) newContainer(ctx context.Context, caller tenant.Caller, rootFS string, ttl time.Duration) (*Container, error) {
	if ttl == 0 {
		ttl = cmp.Or(s.IdleTTL, defaultIdleTTL)
	} else if ttl < MinExpiresAfter || ttl > cmp.Or(s.MaxAge, defaultMaxAge) {
		return nil, wire.Invalid("expires_after_seconds: %d is outside %d to %d", int64(ttl/time.Second),
			int64(MinExpiresAfter/time.Second), int64(cmp.Or(s.MaxAge, defaultMaxAge)/time.Second))
	}
	img, err := s.FindRootFS(rootFS)
	if err != nil {
		return nil, err
	}
	if s.AdmitNew != nil {
		if err := s.AdmitNew(ctx); err != nil {
			return nil, err
		}
	}
	return s.blank(caller.Owner(), img.Name, ttl), nil
}

// blank fills the row of a container that begins its life now.
func (s *Service) blank(owner tenant.Owner, rootFS string, ttl time.Duration) *Container {
	now := s.now()
	c := &Container{
		ID:           ID(wire.NewID("container")),
		Owner:        owner,
		State:        StateActive,
		RootFS:       rootFS,
		Home:         s.Instance,
		IdleTTL:      ttl,
		CreatedAt:    now,
		MaxExpiresAt: now.Add(cmp.Or(s.MaxAge, defaultMaxAge)),
	}
	c.touch(now)
	return c
}

// Get returns a container the caller may use, whatever its state but deleted.
func (s *Service) Get(ctx context.Context, caller tenant.Caller, id ID) (*Container, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	c, err := load(ctx, s.DB, caller, id)
	if err != nil {
		return nil, err
	}
	return s.settled(ctx, c)
}

// settled is asSeen, written down: a container that was once called expired stays so, even if the clock steps back. A disk
// without room for that does not keep anybody from reading.
func (s *Service) settled(ctx context.Context, c *Container) (*Container, error) {
	was := c.State
	if c = s.asSeen(c); c.State == was {
		return c, nil
	}
	if _, err := markExpired(ctx, s.DB, c.ID, s.now()); err != nil && wire.AsError(err).Type != wire.TypeOverloaded {
		return nil, err
	}
	return c, nil
}

// Far says whether the disk of another server holds the workspace; only that one knows whether the container is at work.
func (s *Service) Far(c *Container) bool { return c.Home != s.Instance && !c.packed() }

// asSeen gives a row the state that time has given it, even if the background loop has not been there yet. One that is far
// ends when its own server says so.
func (s *Service) asSeen(c *Container) *Container {
	if c.State == StateActive && c.Expired(s.now()) && !s.Far(c) && !s.busy(c.ID) {
		c.State = StateExpired
	}
	return c
}

// Sizes of a page of containers.
const (
	defaultListed = 20
	mostListed    = 100
)

// ListParams selects a page.
type ListParams struct {
	Limit  int    // 1 to 100; 0 = 20
	Cursor string // next_page of the page before
}

// Page is one page of a list; Next is empty on the last.
type Page struct {
	Data []*Container
	Next string
}

// List returns the caller's containers, newest first, without deleted ones.
func (s *Service) List(ctx context.Context, caller tenant.Caller, p ListParams) (*Page, error) {
	limit := cmp.Or(p.Limit, defaultListed)
	if limit < 1 || limit > mostListed {
		return nil, wire.Invalid("limit: %d is outside 1 to %d", limit, mostListed)
	}
	after, err := s.decodeCursor(caller, p.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := list(ctx, s.DB, caller, after, limit+1)
	if err != nil {
		return nil, err
	}
	page := &Page{Data: rows}
	if len(rows) > limit {
		page.Data = rows[:limit]
		if page.Next, err = s.encodeCursor(caller, rows[limit-1]); err != nil {
			return nil, err
		}
	}
	for i, c := range page.Data {
		page.Data[i] = s.asSeen(c)
	}
	return page, nil
}

// Delete ends a container. When it returns without an error its processes and its workspace are gone. In every case its
// id answers like one that never existed; what failed is done again by the background loop. A running turn is cut off:
// deleting is how an owner stops what a container does. One that is far has its processes and its workspace until the next
// pass of its own server's loop.
func (s *Service) Delete(ctx context.Context, caller tenant.Caller, id ID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	if _, err := load(ctx, s.DB, caller, id); err != nil {
		return err
	}
	done, ok := s.beginDelete(id)
	if !ok {
		return wire.NotFound()
	}
	defer done()
	err := setState(ctx, s.DB, id, "", StateDeleting)
	if errors.Is(err, db.ErrStale) {
		return wire.NotFound() // deleted since it was read
	}
	if err != nil {
		return err
	}
	// Read behind the mark: from here on nobody packs or claims it any more.
	c, err := find(ctx, s.DB, id)
	if err != nil || s.Far(c) {
		return err
	}
	return s.finishDelete(context.WithoutCancel(ctx), id)
}

// beginDelete claims a deletion for the caller; false = it is at work already.
func (s *Service) beginDelete(id ID) (done func(), ok bool) { return s.begin(&s.deleting, id) }

func (s *Service) begin(at *map[ID]bool, id ID) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (*at)[id] {
		return nil, false
	}
	if *at == nil {
		*at = make(map[ID]bool)
	}
	(*at)[id] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(*at, id)
	}, true
}

func (s *Service) finishDelete(ctx context.Context, id ID) error {
	if err := s.dropLive(ctx, id, whyDeleted); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	if err := s.dropSnapshot(id); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	if err := s.Workspaces.Remove(string(id)); err != nil {
		return fmt.Errorf("delete container %s: remove workspace: %w", id, err)
	}
	// Read now that no turn can change it any more.
	c, err := find(ctx, s.DB, id)
	if err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	if err := s.dropPack(ctx, c); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return setDeleted(ctx, s.DB, id)
}

// discard removes a container whose id was never shown.
func (s *Service) discard(ctx context.Context, id ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := setState(ctx, s.DB, id, "", StateDeleting); err == nil {
		err = s.finishDelete(ctx, id)
		if err == nil {
			return
		}
		s.log().ErrorContext(ctx, "discard container", "container_id", id, "error", err)
	}
}

// FindRootFS resolves the name of a root file system, the empty one to the default; an unknown name is the caller's mistake.
// Errors of both kinds match rootfs.ErrNotFound.
func (s *Service) FindRootFS(name string) (*rootfs.Image, error) {
	if name == "" {
		name = s.DefaultRootFS
	}
	if name == "" {
		img, err := s.RootFS.Default()
		if err != nil {
			e := wire.Internal(fmt.Errorf("default root file system: %w", err))
			e.Message, e.NoRetry = "This server has no root file system yet. Its operator can make one with: airlock rootfs build", true
			return nil, e
		}
		return img, nil
	}
	img, err := s.RootFS.Get(name)
	if err != nil {
		e := wire.Invalid("rootfs: there is no root file system named %q on this server", wire.Clip(name, 64))
		e.Err = err
		return nil, e
	}
	return img, nil
}

// DefaultMaxFile bounds what leaves or enters a container as one file where nothing else is set, in bytes.
const DefaultMaxFile = 500 << 20

func (s *Service) maxFile() int64 { return cmp.Or(s.MaxFile, DefaultMaxFile) }

func (s *Service) now() time.Time {
	if s.Now == nil {
		return time.Now().UTC().Truncate(time.Microsecond)
	}
	return s.Now().UTC().Truncate(time.Microsecond)
}

func (s *Service) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}
