package messages

import (
	"context"
	"log/slog"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// places gives out containers for the time of one response.
type places interface {
	// Check refuses a container that the caller cannot use, without waiting for
	// its turn, and gives its owner; nil when none is named.
	Check(ctx context.Context, c tenant.Caller, id string) (*tenant.Owner, error)
	// Holds gives the files that a container which Check let pass has inside.
	Holds(ctx context.Context, id string) (map[file.ID]bool, error)
	// Acquire waits for the turn, if patient as long as ctx lasts.
	Acquire(ctx context.Context, c tenant.Caller, id string, patient bool) (place, error)
	// Join waits for a request that is at work on the same answers, see codeexec.Parked.Join.
	Join(ctx context.Context, id string, c codeexec.Call, answers []codeexec.Answer) (leave func(), patient bool, err error)
}

// place is the container of one response as the loop sees it; it may not exist
// yet. Release may be called twice.
type place interface {
	// Context is ctx for the work of this response: it ends with the container.
	Context(ctx context.Context) (context.Context, context.CancelFunc)
	// Shown is the container as the client is told it, nil while there is none.
	Shown() *claude.Node
	// Ensure makes the container exist, Open its sandbox too.
	Ensure(ctx context.Context) error
	Open(ctx context.Context) error
	AddFile(ctx context.Context, c tenant.Caller, f *file.File) (string, error)
	// Run runs one call; the error is that of ctx.
	Run(ctx context.Context, o codeexec.Offer, c codeexec.Call) (codeexec.Step, error)
	// Continue finds the call whose code waits for the answers; the errors are refusals.
	Continue(o codeexec.Offer, c codeexec.Call, answers []codeexec.Answer) (continuation, error)
	Release(ctx context.Context)
}

// continuation is a codeexec.Continuation.
type continuation interface {
	Stored() []*claude.Node
	Keep(events []*claude.Node)
	Next(ctx context.Context) (codeexec.Step, error)
	// Run runs a call behind the continued one, once for all requests with the same answers.
	Run(ctx context.Context, c codeexec.Call) (codeexec.Step, error)
}

// leases is container.Service as places.
type leases struct {
	containers *container.Service
	limits     codeexec.Limits
	parked     *codeexec.Parked
	log        *slog.Logger
}

func (l leases) Check(ctx context.Context, c tenant.Caller, id string) (*tenant.Owner, error) {
	if id == "" {
		return nil, nil //nolint:nilnil // no container has no owner
	}
	found, err := l.containers.Get(ctx, c, container.ID(id))
	if err != nil {
		return nil, err
	}
	if found.State != container.StateActive {
		// It has ended, and Acquire knows what is said about that.
		lease, err := l.Acquire(ctx, c, id, false)
		if err != nil {
			return nil, err
		}
		lease.Release(ctx)
	}
	return &found.Owner, nil
}

func (l leases) Holds(ctx context.Context, id string) (map[file.ID]bool, error) {
	return l.containers.Holds(ctx, container.ID(id))
}

func (l leases) Join(ctx context.Context, id string, c codeexec.Call, answers []codeexec.Answer) (func(), bool, error) {
	return l.parked.Join(ctx, id, c, answers)
}

func (l leases) Acquire(ctx context.Context, c tenant.Caller, id string, patient bool) (place, error) {
	acquire := l.containers.Acquire
	if patient {
		acquire = l.containers.AcquirePatiently
	}
	lease, err := acquire(ctx, c, container.ID(id))
	if err != nil {
		return nil, err
	}
	return leased{Lease: lease, leases: l}, nil
}

type leased struct {
	*container.Lease
	leases
}

func (l leased) Shown() *claude.Node {
	c := l.Container()
	if c == nil {
		return nil
	}
	return claude.NewObject("id", string(c.ID), "expires_at", wire.FormatTime(l.ExpiresAt()), "skills", claude.NewArray())
}

func (l leased) Ensure(ctx context.Context) error {
	_, err := l.Lease.Ensure(ctx)
	return err
}

func (l leased) Open(ctx context.Context) error {
	_, err := l.Sandbox(ctx)
	return err
}

func (l leased) Run(ctx context.Context, o codeexec.Offer, c codeexec.Call) (codeexec.Step, error) {
	return l.runner(o).Run(ctx, c)
}

func (l leased) Continue(o codeexec.Offer, c codeexec.Call, answers []codeexec.Answer) (continuation, error) {
	k, err := l.runner(o).Continue(c, answers)
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (l leased) runner(o codeexec.Offer) *codeexec.Runner {
	return &codeexec.Runner{Lease: l.Lease, Version: o.Version, Functions: o.Functions, Limits: l.limits, Parked: l.parked, Log: l.log}
}

func (s *Service) containers() places {
	if s.places != nil {
		return s.places
	}
	return leases{s.Containers, s.Limits, &s.Parked, s.Log}
}
