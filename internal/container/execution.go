package container

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Kind of an execution.
type Kind string

// The kinds.
const (
	KindExec       Kind = "exec"       // by the direct door
	KindBash       Kind = "bash"       // a shell command of a model
	KindCell       Kind = "cell"       // a Python cell
	KindBackground Kind = "background" // between calls: file work, processes that a call left running
)

// Outcome is how an execution ended.
type Outcome string

// The outcomes.
const (
	OutcomeExited   Outcome = "exited"
	OutcomeTimedOut Outcome = "timed_out"
	OutcomeMemory   Outcome = "out_of_memory" // the limit killed a process of it, or the sandbox
	OutcomeCanceled Outcome = "canceled"      // whoever asked for it does not wait any more
	// OutcomeGone: the sandbox ended under it, by a crash, from outside, or with its container or the server. Whether the
	// call first heard of its container's end or of its sandbox's makes no difference.
	OutcomeGone Outcome = "gone"
)

// Execution is the account of one call, as the kernel counted it.
type Execution struct {
	ID          string
	ContainerID ID
	Owner       tenant.Owner
	Kind        Kind
	Outcome     Outcome
	ExitCode    int // -1 = none, as of every OutcomeGone
	StartedAt   time.Time
	Wall, CPU   time.Duration // Wall is 0 for KindBackground
	PeakBytes   int64         // of memory, of the whole sandbox during the call
	BytesIn     int64         // code, standard input, and files put in since the call before
	BytesOut    int64         // both output streams, and output files

	filesIn int64 // of BytesIn, the files
}

// Metered is the sandbox of a turn whose executions are written down.
type Metered struct {
	*sandbox.Sandbox
	l    *Lease
	kind Kind // of its commands
}

// Metered is Sandbox for those who run a model's code: its commands are written down as KindBash.
func (l *Lease) Metered(ctx context.Context) (Metered, error) {
	sb, err := l.Sandbox(ctx)
	return Metered{sb, l, KindBash}, err
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
	e := m.l.begin(KindCell, int64(len(c.Code)))
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
func (l *Lease) begin(kind Kind, code int64) *Execution {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bookLast()
	e := &Execution{
		ID: wire.NewID("exec"), ContainerID: l.c.ID, Owner: l.makes(), Kind: kind, StartedAt: l.s.now(), BytesIn: code + l.filesIn,
		filesIn: l.filesIn,
	}
	l.filesIn = 0
	return e
}

// finish fills the account in. It stays open for the output files of the call.
func (l *Lease) finish(e *Execution, r sandbox.Result, err error, reason sandbox.ExitReason) {
	var refused *guest.Error
	if errors.As(err, &refused) && !errors.Is(err, sandbox.ErrGone) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.filesIn += e.filesIn // it never started: the files are for the next one
		return
	}
	e.Wall, e.CPU, e.PeakBytes, e.BytesOut, e.ExitCode = r.Wall, r.CPU, r.MemoryPeak, r.Written, r.Code
	e.Outcome = outcomeOf(r, err, reason, l.ended.Err() != nil)
	if e.Outcome == OutcomeGone || errors.Is(err, sandbox.ErrGone) {
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
func outcomeOf(r sandbox.Result, err error, reason sandbox.ExitReason, ended bool) Outcome {
	switch {
	case r.OOM, err != nil && reason == sandbox.ExitOOM:
		return OutcomeMemory
	case r.TimedOut, err != nil && reason == sandbox.ExitTimeout:
		return OutcomeTimedOut
	case errors.Is(err, sandbox.ErrGone), ended && (r.Canceled || err != nil):
		return OutcomeGone
	case r.Canceled, err != nil:
		return OutcomeCanceled
	}
	return OutcomeExited
}

// bookLast hands the complete account over to be written; the lease's mutex is held.
func (l *Lease) bookLast() {
	if l.last != nil {
		l.s.book(*l.last)
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
	e := Execution{ID: wire.NewID("exec"), ContainerID: v.id, Owner: v.owner, Kind: KindBackground, StartedAt: v.startedAt, CPU: rest}
	v.booked = true
	v.mu.Unlock()
	if booked || err != nil || rest <= 0 {
		return // gone already, and booked then
	}
	if e.Outcome = OutcomeExited; sb.ExitReason() == sandbox.ExitOOM {
		e.Outcome = OutcomeMemory
	}
	s.book(e)
}

// accounts holds executions until they are written, together and soon.
type accounts struct {
	mu      sync.Mutex
	rows    []Execution
	dropped int64
}

// maxAccounts bounds what waits for a database that cannot be reached.
const maxAccounts = 100_000

func (s *Service) book(e Execution) {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	if len(s.accounts.rows) < maxAccounts {
		s.accounts.rows = append(s.accounts.rows, e)
		return
	}
	if s.accounts.dropped++; s.accounts.dropped == 1 {
		s.log().Error("executions are dropped: too many wait for the database")
	}
}

func (a *accounts) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropped++
}

func (a *accounts) take() []Execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := a.rows
	a.rows = nil
	return rows
}

// giveBack puts executions before those that have come meanwhile.
func (a *accounts) giveBack(rows ...[]Execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = slices.Concat(append(rows, a.rows)...)
}

// DroppedExecutions counts those that could not be written down.
func (s *Service) DroppedExecutions() int64 {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	return s.accounts.dropped
}

// WriteAccounts writes the executions that have ended. A background loop calls it once a second, so that a command does not
// wait for the disk: a server that is killed loses the accounts since then. What cannot be written is kept for the
// next call. Executions are the facts of whoever bills, so nothing removes them.
func (s *Service) WriteAccounts(ctx context.Context) error {
	rows := s.accounts.take()
	if len(rows) == 0 {
		return nil
	}
	err := insertExecutions(ctx, s.DB, rows)
	if err == nil {
		return nil
	}
	if len(rows) == 1 {
		s.accounts.giveBack(rows)
		return err
	}
	return s.writeApart(ctx, rows)
}

// writeApart writes executions one by one after all of them together have failed, so that one that the database does not
// take holds up no other: it is at fault, and dropped, if a later one is taken.
func (s *Service) writeApart(ctx context.Context, rows []Execution) error {
	const patience = 3 // in a row: the database is at fault
	var refused []Execution
	var errs []error
	for i, e := range rows {
		err := insertExecutions(ctx, s.DB, rows[i:i+1])
		if err == nil {
			s.dropBad(ctx, refused, errs)
			refused, errs = nil, nil
			continue
		}
		refused, errs = append(refused, e), append(errs, err)
		if len(refused) == patience {
			s.accounts.giveBack(rows[i+1:], refused) // next time the others come first
			return errors.Join(errs...)
		}
	}
	s.accounts.giveBack(refused)
	return errors.Join(errs...)
}

// dropBad leaves executions to the log.
func (s *Service) dropBad(ctx context.Context, bad []Execution, errs []error) {
	for i, e := range bad {
		s.accounts.drop()
		s.log().ErrorContext(ctx, "execution dropped: the database does not take it", "error", errs[i], "execution_id", e.ID,
			"container_id", e.ContainerID, "owner_app", e.Owner.AppID, "kind", e.Kind, "outcome", e.Outcome,
			"cpu_usec", e.CPU.Microseconds(), "wall_usec", e.Wall.Microseconds(), "bytes_in", e.BytesIn, "bytes_out", e.BytesOut)
	}
}
