package sandbox

import (
	"context"
	"time"
)

// accountant is an Instance that can be read around every call at little cost. Others are read through Usage.
type accountant interface {
	// CPU is the processor time used so far, in microseconds.
	CPU() (int64, error)
	// WatchPeak begins to look for the most memory in use; peak ends that and tells, in bytes. Where the kernel cannot begin
	// anew it is the most since the sandbox was made.
	WatchPeak() (peak func() (int64, error))
}

// account is what one call used, of all processes inside: also those that it left behind, that nobody waited for, or that
// were killed.
type account struct {
	s     *Sandbox
	began time.Time
	cpu   int64 // -1 = could not be read
	peak  func() (int64, error)
}

func (s *Sandbox) open(ctx context.Context) *account {
	a := &account{s: s, began: time.Now(), cpu: -1}
	if i, ok := s.inst.(accountant); ok {
		a.peak = i.WatchPeak()
	}
	if cpu, err := s.CPU(ctx); err == nil {
		a.cpu = cpu.Microseconds()
	}
	return a
}

// close replaces what the guest could know by what the kernel counted. It works after the guest has died, until Destroy;
// the time of a call that never ended stops there.
func (a *account) close(ctx context.Context, r *Result, err error) {
	ctx = context.WithoutCancel(ctx) // a call that was canceled has used something, too
	if cpu, cerr := a.s.CPU(ctx); cerr == nil && a.cpu >= 0 {
		r.CPU = cpu - time.Duration(a.cpu)*time.Microsecond
	}
	if peak, perr := a.readPeak(ctx); perr == nil {
		r.MemoryPeak = peak
	}
	if err != nil && r.Wall == 0 {
		r.Wall = time.Since(a.began)
	}
}

func (a *account) readPeak(ctx context.Context) (int64, error) {
	if a.peak != nil {
		return a.peak()
	}
	u, err := a.s.Usage(ctx)
	return u.MemoryPeak, err
}

// CPU is the processor time of everything inside so far; it works until Destroy.
func (s *Sandbox) CPU(ctx context.Context) (time.Duration, error) {
	if i, ok := s.inst.(accountant); ok {
		us, err := i.CPU()
		return time.Duration(us) * time.Microsecond, err
	}
	u, err := s.Usage(ctx)
	return time.Duration(u.CPU) * time.Microsecond, err
}
