package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// report is what the run found. It is safe for concurrent use.
type report struct {
	o     options
	began time.Time
	file  string

	mu     sync.Mutex
	counts map[string]int
	faults map[string][]string
	notes  []string
	phases map[string]time.Time
	held   [2]holdings // before and after the cycles
}

func newReport(o options) *report {
	now := time.Now().UTC()
	return &report{
		o: o, began: now, file: filepath.Join(o.out, "soak-"+now.Format("2006-01-02")+"-"+o.driver+".md"),
		counts: map[string]int{}, faults: map[string][]string{}, phases: map[string]time.Time{},
	}
}

func (r *report) count(what string) { r.add(what, 1) }

func (r *report) add(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// fault is something that must not be: a leak, a lost workspace, a lie, an answer that nothing explains.
func (r *report) fault(kind, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := time.Now().UTC().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...)
	r.faults[kind] = append(r.faults[kind], text)
	fmt.Fprintf(os.Stderr, "FAULT %s: %s\n", kind, text)
}

func (r *report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// holds shows what the server held before and after the cycles.
func (r *report) holds(before, after holdings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = [2]holdings{before, after}
}

func (r *report) begin(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phases[phase] = time.Now()
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().UTC().Format(time.TimeOnly), phase)
}

func (r *report) end(phase string) {
	r.mu.Lock()
	took := time.Since(r.phases[phase]).Round(time.Second)
	r.mu.Unlock()
	r.note("%s: %v", phase, took)
}

// verdict is an error if there was any fault.
func (r *report) verdict() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) == 0 {
		return nil
	}
	return fmt.Errorf("faults of the kinds %v, see %s", slices.Sorted(maps.Keys(r.faults)), r.file)
}

// writeHeld is the table of what the server held.
func (r *report) writeHeld(b *strings.Builder) {
	kinds := maps.Clone(r.held[0])
	if kinds == nil {
		return
	}
	maps.Copy(kinds, r.held[1])
	b.WriteString("\n| the server holds, at rest | before the cycles | after them |\n|---|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(b, "| %s | %d | %d |\n", kind, r.held[0][kind], r.held[1][kind])
	}
}

func (r *report) write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	fmt.Fprintf(&b, "# Soak of %s, driver %s\n\n", r.began.Format("2006-01-02 15:04"), r.o.driver)
	fmt.Fprintf(&b, "Linux %s, seed %d, %v in all; %d cycles, %d containers.\n\n", unix.ByteSliceToString(u.Release[:]), r.o.seed,
		time.Since(r.began).Round(time.Second), r.o.cycles, r.o.containers)
	for _, note := range r.notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	b.WriteString("\n| what | how often |\n|---|---|\n")
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "| %s | %d |\n", what, r.counts[what])
	}
	r.writeHeld(&b)
	b.WriteString("\n## Faults\n\n")
	if len(r.faults) == 0 {
		b.WriteString("None: nothing leaked, no workspace was lost, no answer was wrong, the server beside it was unharmed.\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(&b, "### %s (%d)\n\n", kind, len(r.faults[kind]))
		for _, text := range r.faults[kind][:min(20, len(r.faults[kind]))] {
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(text, "\n", " "))
		}
	}
	if err := os.MkdirAll(r.o.out, 0o755); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "report in", r.file)
	return os.WriteFile(r.file, []byte(b.String()), 0o600)
}
