package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Outcome is how an attempt ended. The words are part of `doctor --attack --json`.
type Outcome string

// The outcomes. Only NotHeld makes a machine unsafe.
const (
	// Held: the attempt was made and everything that the row requires held.
	Held Outcome = "held"
	// Documented: it got through, and the threat model says that this driver lets it.
	Documented Outcome = "documented"
	// NotHeld: something that must hold did not.
	NotHeld Outcome = "not held"
	// NotTried: the attempt could not be made.
	NotTried Outcome = "not tried"
)

// Result is one row of a report.
type Result struct {
	Row      int     `json:"row"`
	Name     string  `json:"name"`
	Required string  `json:"required"`
	Outcome  Outcome `json:"outcome"`
	// Detail says what did not hold, or why it was not tried.
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Report is what one driver did against all attempts.
type Report struct {
	Driver  string    `json:"driver"`
	At      time.Time `json:"at"`
	Kernel  string    `json:"kernel"`
	Cgroups string    `json:"cgroups"`
	User    string    `json:"user"`
	RootFS  string    `json:"rootfs"`
	Results []Result  `json:"results"`
}

// Safe tells whether everything that must hold was tried and did.
func (r Report) Safe() bool {
	return r.Count(Held) > 0 && r.Count(NotHeld) == 0 && r.Count(NotTried) == 0
}

// Count is the number of rows with this outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// rowLimit ends an attempt that hangs.
const rowLimit = 3 * time.Minute

// Run makes the attempts, one after the other, with files below dir, and tells each one as it ends. An error says that
// they could not begin, or that ctx ended them; the report then holds those made so far.
func Run(ctx context.Context, f Factory, dir string, threats []Threat, told func(Result)) (report Report, err error) {
	report = Report{Driver: f.Name, At: time.Now().UTC(), RootFS: f.RootFS, Kernel: kernel(), User: user()}
	if _, err := probeProgram(); err != nil {
		return report, err
	}
	e, err := Open(ctx, f, dir)
	if err != nil {
		return report, fmt.Errorf("driver %s: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	report.Cgroups = e.Capabilities.CgroupMode
	for _, t := range threats {
		result := try(ctx, e, t)
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		report.Results = append(report.Results, result)
		told(result)
	}
	return report, nil
}

func try(ctx context.Context, e *Env, t Threat) Result {
	ctx, cancel := context.WithTimeout(ctx, rowLimit)
	defer cancel()
	began := time.Now()
	err := Attack(ctx, e, t)
	r := Result{Row: t.Row, Name: t.Name, Required: t.Required, Outcome: outcome(err), Seconds: time.Since(began).Seconds()}
	if err != nil {
		r.Detail = err.Error()
	}
	return r
}

func outcome(err error) Outcome {
	switch {
	case err == nil:
		return Held
	case errors.Is(err, ErrDocumented):
		return Documented
	case errors.Is(err, ErrNotTried):
		return NotTried
	}
	return NotHeld
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

func user() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return fmt.Sprintf("uid %d", os.Geteuid())
}

// Markdown is the report as a page for people.
func (r Report) Markdown() string {
	var b strings.Builder
	verdict := "Everything that must hold held."
	if missing := len(Threats()) - len(r.Results); r.Safe() && missing > 0 {
		verdict = fmt.Sprintf("What was tried and must hold held; %d rows were left out.", missing)
	}
	if !r.Safe() {
		verdict = "**Code cannot be run safely with this driver on this machine.**"
	}
	fmt.Fprintf(&b, "## Driver %s\n\n%s %d rows tried: %d held, %d got through as documented, %d did not hold, %d could not be tried.\n\n",
		r.Driver, verdict, len(r.Results), r.Count(Held), r.Count(Documented), r.Count(NotHeld), r.Count(NotTried))
	fmt.Fprintf(&b, "Begun %s on %s, cgroups %s, as %s, root file system `%s`.\n\n", r.At.Format(time.RFC3339), r.Kernel, r.Cgroups, r.User, r.RootFS)
	b.WriteString("| # | attempt | what must hold | outcome | s |\n|---|---|---|---|---|\n")
	for _, row := range r.Results {
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %.1f |\n", row.Row, row.Name, row.Required, row.Outcome, row.Seconds)
	}
	for _, row := range r.Results {
		if row.Detail != "" {
			fmt.Fprintf(&b, "\n### %d %s: %s\n\n", row.Row, row.Name, row.Outcome)
			for line := range strings.Lines(strings.TrimSpace(row.Detail)) {
				b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
			}
		}
	}
	return b.String()
}
