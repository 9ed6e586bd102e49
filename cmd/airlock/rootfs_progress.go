//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

// imageProgress shows a build: one line that moves on a terminal, a line for each phase and each quarter elsewhere.
type imageProgress struct {
	notes
	start  time.Time
	worked bool // anything was reported
	phase  rootfs.Phase
	began  time.Time
	mark   int64 // quarters told
	drawn  time.Time
}

// redraw limits how often a terminal line is written: dpkg reports hundreds of packages a second.
const redraw = 80 * time.Millisecond

func (p *imageProgress) show(r rootfs.Progress) {
	p.worked = true
	now := time.Now()
	if r.Phase != p.phase {
		p.finishPhase(now)
		p.phase, p.began, p.mark = r.Phase, now, 0
		if !p.fancy {
			p.line("%s …", r.Phase)
			return
		}
	}
	if p.fancy {
		if now.Sub(p.drawn) >= redraw {
			p.drawn = now
			_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", p.describe(r, now)) // progress that nobody can read is no failure
		}
		return
	}
	if r.Total == 0 {
		return
	}
	if quarter := 4 * r.Done / r.Total; quarter > p.mark && quarter < 4 {
		p.mark = quarter
		p.line("%s %d %% (%s)", r.Phase, 25*quarter, now.Sub(p.start).Round(time.Second))
	}
}

const barWidth = 24

func (p *imageProgress) describe(r rootfs.Progress, now time.Time) string {
	took := now.Sub(p.start).Round(time.Second)
	if r.Total == 0 {
		return fmt.Sprintf("%-15s %s", r.Phase, took)
	}
	full := int(barWidth * r.Done / r.Total)
	bar := strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
	return fmt.Sprintf("%-15s %s %3d %% %s %s", r.Phase, bar, 100*r.Done/r.Total, took, printable(r.Item))
}

func (p *imageProgress) finishPhase(now time.Time) {
	if p.phase == "" || !p.fancy {
		return
	}
	_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	p.line("%-15s %s", p.phase, now.Sub(p.began).Round(100*time.Millisecond))
}

// end leaves the cursor on a line of its own.
func (p *imageProgress) end() { p.finishPhase(time.Now()) }
