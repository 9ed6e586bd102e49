package container

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// account is that of one call while it is open.
type account struct {
	usage.Execution
	filesIn int64 // of BytesIn, the files put in since the call before
}

// book hands an account over to be written.
func (s *Service) book(e usage.Execution) {
	if s.Usage != nil {
		s.Usage.Add(e)
	}
}

// Metered is the sandbox of a turn whose executions are written down.
type Metered struct {
	*sandbox.Sandbox
	l    *Lease
	kind usage.Kind // of its commands
}

// Metered is Sandbox for those who run a model's code: its commands are written down as usage.KindBash.
func (l *Lease) Metered(ctx context.Context) (Metered, error) {
	sb, err := l.Sandbox(ctx)
	return Metered{sb, l, usage.KindBash}, err
}

// Exec runs a command and keeps its account.
func (m Metered) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	e := m.l.begin(m.kind, int64(len(c.Shell)))
	for _, arg := range c.Argv {
		e.BytesIn += int64(len(arg))
	}
	stdin := &countIn{r: c.Stdin}
	if c.Stdin != nil {
		c.Stdin = stdin
	}
	res, err := m.Sandbox.Exec(ctx, c)
	e.BytesIn += stdin.count()
	m.l.finish(e, res, err, m.ExitReason())
	return res, err
}

// Cell runs a cell and keeps its account.
func (m Metered) Cell(ctx context.Context, c sandbox.Cell) (sandbox.CellResult, error) {
	e := m.l.begin(usage.KindCell, int64(len(c.Code)))
	res, err := m.Sandbox.Cell(ctx, c)
	m.l.finish(e, res.Result, err, m.ExitReason())
	return res, err
}

// Put is that of the sandbox, for whoever is told that the file is there.
func (m Metered) Put(ctx context.Context, path string, r io.Reader, o guest.PutOptions) error {
	m.l.mu.Lock()
	m.l.answers = true
	m.l.mu.Unlock()
	return m.Sandbox.Put(ctx, path, r, o)
}

// countIn counts standard input, which may still be read when its command has ended.
type countIn struct {
	r io.Reader

	mu sync.Mutex
	n  int64
}

func (c *countIn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(n)
	return n, err
}

func (c *countIn) count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// begin opens the account of an execution; that of the one before is complete with it.
func (l *Lease) begin(kind usage.Kind, code int64) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bookLast()
	e := &account{Execution: usage.Execution{
		ID: wire.NewID("exec"), ContainerID: string(l.c.ID), Owner: l.makes(), Kind: kind, StartedAt: l.s.now(), BytesIn: code + l.filesIn,
	}, filesIn: l.filesIn}
	l.filesIn = 0
	return e
}

// finish fills the account in. It stays open for the output files of the call.
func (l *Lease) finish(e *account, r sandbox.Result, err error, reason sandbox.ExitReason) {
	var refused *guest.Error
	if errors.As(err, &refused) && !errors.Is(err, sandbox.ErrGone) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.filesIn += e.filesIn // it never started: the files are for the next one
		return
	}
	e.Wall, e.CPU, e.PeakBytes, e.BytesOut, e.ExitCode = r.Wall, r.CPU, r.MemoryPeak, r.Written, r.Code
	e.Outcome = outcomeOf(r, err, reason, l.ended.Err() != nil)
	if e.Outcome == usage.OutcomeGone || errors.Is(err, sandbox.ErrGone) {
		e.ExitCode = -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.answers = e, true
	if !l.live.count(e.CPU) {
		e.CPU = 0
	}
	if l.released {
		l.bookLast()
	}
}

// outcomeOf says how a call ended; ended tells that its container is being deleted, or the server stops.
func outcomeOf(r sandbox.Result, err error, reason sandbox.ExitReason, ended bool) usage.Outcome {
	switch {
	case r.OOM, err != nil && reason == sandbox.ExitOOM:
		return usage.OutcomeMemory
	case r.TimedOut, err != nil && reason == sandbox.ExitTimeout:
		return usage.OutcomeTimedOut
	case errors.Is(err, sandbox.ErrGone), ended && (r.Canceled || err != nil):
		return usage.OutcomeGone
	case r.Canceled, err != nil:
		return usage.OutcomeCanceled
	}
	return usage.OutcomeExited
}

// bookLast hands the complete account over to be written; the lease's mutex is held.
func (l *Lease) bookLast() {
	if l.last != nil {
		l.s.book(l.last.Execution)
		l.last = nil
	}
}

// count notes processor time that an execution accounts for; false if the sandbox is gone and all of it is booked.
func (v *live) count(cpu time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counted += cpu
	return !v.booked
}

// bookRest accounts for the processor time of a sandbox that no execution accounts for. It is called before the sandbox is
// destroyed, and does it once.
func (s *Service) bookRest(ctx context.Context, v *live, sb *sandbox.Sandbox) {
	cpu, err := sb.CPU(ctx)
	v.mu.Lock()
	rest, booked := cpu-v.counted, v.booked
	e := usage.Execution{ID: wire.NewID("exec"), ContainerID: string(v.id), Owner: v.owner, Kind: usage.KindBackground, StartedAt: v.startedAt, CPU: rest}
	v.booked = true
	v.mu.Unlock()
	if booked || err != nil || rest <= 0 {
		return // gone already, and booked then
	}
	if e.Outcome = usage.OutcomeExited; sb.ExitReason() == sandbox.ExitOOM {
		e.Outcome = usage.OutcomeMemory
	}
	s.book(e)
}
