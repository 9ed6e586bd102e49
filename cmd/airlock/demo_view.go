//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// demoView tells the turn as it happens: what the model says, what it runs, what came of it and how long it took.
type demoView struct {
	notes
	out    io.Writer
	said   strings.Builder // of the present text block
	began  time.Time       // of the present step
	step   string
	failed int
	clock  *stepClock
}

// outputLines is how much of a step's output is shown.
const outputLines = 10

func (v *demoView) text(s string) { v.said.WriteString(s) }

func (v *demoView) started(b *claude.Node) {
	if b.Type() == "text" {
		v.text(b.Get("text").Str())
	}
}

func (v *demoView) finished(b *claude.Node) {
	switch kind := b.Type(); {
	case kind == "text":
		// Said at the end of the block: paragraphs, not fragments, and the script's model speaks all at once anyway.
		if said := strings.TrimSpace(v.said.String()); said != "" {
			v.print("● %s\n", strings.ReplaceAll(printable(wrap(said, 96)), "\n", "\n  "))
		}
		v.said.Reset()
	case kind == "server_tool_use":
		v.began, v.step = time.Now(), toolLine(b)
		v.startClock()
	case strings.HasSuffix(kind, "_tool_result"):
		v.stopClock()
		v.result(b.Get("content"))
	}
}

func (v *demoView) result(r *claude.Node) {
	took := time.Since(v.began).Round(10 * time.Millisecond)
	mark := "✓"
	code, ran := r.Get("return_code").Int()
	if r.Get("error_code").Str() != "" || ran && code != 0 {
		mark = "✗"
		v.failed++
	}
	v.print("  %s %s  (%s)\n", mark, v.step, took)
	output := strings.TrimRight(r.Get("stdout").Str(), "\n")
	if mark == "✗" {
		output = strings.TrimSpace(output + "\n" + r.Get("stderr").Str() + "\n" + r.Get("error_code").Str() + " " + r.Get("error_message").Str())
	}
	if output == "" {
		return
	}
	lines := strings.Split(printable(output), "\n")
	for i, l := range lines {
		if i == outputLines && len(lines) > outputLines+1 {
			v.print("      … %d more lines\n", len(lines)-outputLines)
			break
		}
		v.print("      %s\n", l)
	}
}

func (v *demoView) print(format string, args ...any) {
	_, _ = fmt.Fprintf(v.out, format, args...) // a reader that left is noticed when the command ends
}

// wrap breaks a paragraph between words.
func wrap(s string, width int) string {
	var out strings.Builder
	column := 0
	for word := range strings.FieldsSeq(s) {
		switch n := len([]rune(word)); {
		case column == 0:
			column = n
		case column+1+n > width:
			out.WriteByte('\n')
			column = n
		default:
			out.WriteByte(' ')
			column += 1 + n
		}
		out.WriteString(word)
	}
	return out.String()
}

// stepClock counts the seconds of a running step on a terminal; elsewhere there is none.
type stepClock struct {
	stop chan struct{}
	done sync.WaitGroup
}

func (v *demoView) startClock() {
	v.stopClock()
	if !v.fancy {
		return
	}
	c := &stepClock{stop: make(chan struct{})}
	v.clock = c
	step, began := v.step, v.began
	c.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = fmt.Fprintf(v.w, "\r\x1b[K  … %.90s  %s", step, time.Since(began).Round(100*time.Millisecond)) // progress only
			select {
			case <-c.stop:
				_, _ = fmt.Fprint(v.w, "\r\x1b[K") // progress only
				return
			case <-tick.C:
			}
		}
	})
}

func (v *demoView) stopClock() {
	if v.clock == nil {
		return
	}
	close(v.clock.stop)
	v.clock.done.Wait()
	v.clock = nil
}
