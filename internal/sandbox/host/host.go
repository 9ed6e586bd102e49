package host

import (
	"context"
	"time"
)

// Status says how a check ended. The words are part of `doctor --json`.
type Status string

// A failed check makes serving unsafe or impossible; a warning leaves it safe
// but weaker, slower or incomplete.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is the outcome of one probe.
type Check struct {
	// Name is stable: scripts select by it.
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what was seen, in a few words.
	Found string `json:"found"`
	// Means says what follows for someone who runs code here.
	Means string `json:"means,omitempty"`
	// Remedy is the exact line to type or setting to change; empty when
	// there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what one run of all probes found.
type Report struct {
	At     time.Time `json:"at"`
	Safe   bool      `json:"safe"`
	Checks []Check   `json:"checks"`
}

// Options name the folders to look at and what only the caller can try.
type Options struct {
	// Data is the data folder; it need not exist yet.
	Data string
	// RootFS is the folder of root file systems; it need not exist yet.
	RootFS string
	// SelfTest makes one sandbox with the driver that would serve and runs
	// a command in it. Nil leaves the check out.
	SelfTest func(context.Context) error
	// Largest names who keeps most on the disk of Data; it is asked when that fills up. Nil leaves it out.
	Largest func(context.Context) (string, error)
	// CgroupParent is the setting of that name: the limits of groups above the sandboxes bound their memory, too.
	CgroupParent string
	// Reserve is what sandboxes leave to the machine of so many bytes of memory. Nil = nothing.
	Reserve func(total int64) int64
	// Crowded and Full are the shares of the disk of Data from which on less is served; 0 = never.
	Crowded, Full float64
	// Runsc is the path of gVisor's program; if empty, it is looked for as serving does.
	Runsc string
	// TryGVisor makes one sandbox with the gvisor driver. Nil leaves that out.
	TryGVisor func(context.Context) error
	// Now is time.Now if nil.
	Now func() time.Time
}

// probeLimit ends a probe that hangs, as a broken KVM or a dead network
// disk makes them do.
const probeLimit = 10 * time.Second

type probe struct {
	name string
	run  func(context.Context, Options) Check
}

// Run carries out every probe, one after the other, and returns what they
// found in a fixed order. It never fails itself: a probe that cannot be
// carried out is a failed check.
func Run(ctx context.Context, o Options) Report {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := Report{At: o.Now().UTC(), Safe: true}
	for _, p := range probes() {
		c := runProbe(ctx, p, o)
		if c.Status == Fail {
			r.Safe = false
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

func runProbe(ctx context.Context, p probe, o Options) Check {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	done := make(chan Check, 1)
	// The probe may sit in a system call that no context ends; the buffered
	// channel lets it finish later without a reader.
	go func() { done <- p.run(ctx, o) }()
	select {
	case c := <-done:
		c.Name = p.name
		return c
	case <-ctx.Done():
		return Check{
			Name: p.name, Status: Fail, Found: "no answer within " + probeLimit.String(),
			Means: "the kernel or a device hangs on this request; a sandbox would hang on it too",
		}
	}
}

func ok(found string) Check { return Check{Status: OK, Found: found} }

func warn(found, means, remedy string) Check {
	return Check{Status: Warn, Found: found, Means: means, Remedy: remedy}
}

func fail(found, means, remedy string) Check {
	return Check{Status: Fail, Found: found, Means: means, Remedy: remedy}
}
