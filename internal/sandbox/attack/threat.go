package attack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Threat is one row of the threat table.
type Threat struct {
	// Row is its number in docs/threat-model.md.
	Row int
	// Name is the rest of the test's name.
	Name string
	// Required is what must hold, in the words of the table.
	Required string
	// Run makes the attempt. An error says in what way it was not held;
	// ErrNotTried says that nothing was attempted.
	Run func(context.Context, *Env) error
}

// Title is the name of the row's test: T01ForkBomb.
func (t Threat) Title() string { return fmt.Sprintf("T%02d%s", t.Row, t.Name) }

// Threats lists the attempts in the order of the table.
func Threats() []Threat {
	all := slices.Concat(resourceThreats(), outputThreats(), processThreats(), fileThreats(),
		kernelThreats(), networkThreats(), tenantThreats(), sharedThreats(), hostThreats(), toolThreats())
	slices.SortFunc(all, func(a, b Threat) int { return a.Row - b.Row })
	return all
}

// Attack makes the attempt and then looks for what it left on the host, which
// every row forbids. All sandboxes of the Env are destroyed in between.
func Attack(ctx context.Context, e *Env, t Threat) error {
	if err := WarmUp(ctx, e); err != nil {
		return fmt.Errorf("a sandbox before the attempt: %w", err)
	}
	before, err := e.Leftovers()
	if err != nil {
		return err
	}
	err = t.Run(ctx, e)
	after := e.DestroyAll(context.WithoutCancel(ctx))
	if after != nil {
		after = fmt.Errorf("destroy afterwards: %w", after)
	}
	after = errors.Join(after, e.CheckLeaks(context.WithoutCancel(ctx), before))
	if after != nil && err != nil {
		// Not wrapped: what was left behind is neither documented nor a reason not to try.
		return fmt.Errorf("%w\n%s", after, err.Error())
	}
	return errors.Join(err, after)
}

// WarmUp makes what a driver keeps from its first sandbox on (a memory file, a
// template, a thread), so that it does not count as left behind.
func WarmUp(ctx context.Context, e *Env) error {
	b, err := e.Start(ctx)
	if err == nil {
		err = b.Alive(ctx)
	}
	return errors.Join(err, e.DestroyAll(ctx))
}

// ErrDocumented is the error of an attempt that got through where docs/threat-model.md says that this driver lets it.
var ErrDocumented = errors.New("not held, as documented")

// findings collects what did not hold, so that one attempt reports all of it.
type findings struct {
	failed  []error
	allowed []string
}

func (f *findings) want(held bool, format string, args ...any) {
	if !held {
		f.failed = append(f.failed, fmt.Errorf(format, args...))
	}
}

func (f *findings) add(err error) {
	if err != nil {
		f.failed = append(f.failed, err)
	}
}

// wantUnless is want, except that a driver of which the threat model says so may let it through.
func (f *findings) wantUnless(documented, held bool, format string, args ...any) {
	if documented && !held {
		f.allowed = append(f.allowed, fmt.Sprintf(format, args...))
		return
	}
	f.want(held, format, args...)
}

// err is ErrDocumented only if nothing else went wrong.
func (f *findings) err() error {
	if len(f.failed) == 0 && len(f.allowed) > 0 {
		return fmt.Errorf("%w: %s", ErrDocumented, strings.Join(f.allowed, "; "))
	}
	return errors.Join(f.failed...)
}

// refused demands that the kernel or the filter said no to every answer.
func (f *findings) refused(as Answers) {
	f.want(len(as) > 0, "the probe answered nothing")
	for _, a := range as {
		f.want(a.Refused(), "%s: answer %q, want a refusal", a.Name, a.Errno)
	}
}

// inBox makes an attempt in a sandbox of its own, which must answer afterwards.
func inBox(attempt func(context.Context, *Box, *findings) error, options ...Option) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		b, err := e.Start(ctx, options...)
		if err != nil {
			return err
		}
		var f findings
		f.add(attempt(ctx, b, &f))
		f.add(b.Alive(ctx))
		return f.err()
	}
}

// allRefused is the attempt of calling every system call of a probe's group.
func allRefused(group string) func(context.Context, *Box, *findings) error {
	return func(ctx context.Context, b *Box, f *findings) error {
		answers, out, err := b.Probe(ctx, "calls", group)
		if err != nil {
			return err
		}
		f.want(out.Code == 0, "the probe ended early: %v", out)
		f.refused(answers)
		return nil
	}
}
