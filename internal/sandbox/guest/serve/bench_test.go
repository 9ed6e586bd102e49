package serve_test

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// interleave measures plain fork/exec and something else turn by turn, so that
// load on the machine hits both, and reports medians and their ratio.
func interleave(b *testing.B, other func()) {
	var plain, ours []time.Duration
	for b.Loop() {
		t := time.Now()
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if _, err := cmd.Output(); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(t))
		t = time.Now()
		other()
		ours = append(ours, time.Since(t))
	}
	slices.Sort(plain)
	slices.Sort(ours)
	p, o := plain[len(plain)/2], ours[len(ours)/2]
	b.ReportMetric(float64(p.Microseconds()), "plain-us")
	b.ReportMetric(float64(o.Microseconds()), "ours-us")
	b.ReportMetric(float64(o)/float64(p), "ratio")
}

func BenchmarkExecTrue(b *testing.B) {
	g := start(b, guest.Options{})
	interleave(b, func() { g.run(b, guest.Command{Argv: []string{"/bin/true"}}) })
}

func BenchmarkExecTrueBesideInterpreter(b *testing.B) {
	g := start(b, guest.Options{})
	if _, err := g.Cell(b.Context(), guest.Cell{Code: "1"}); err != nil {
		b.Fatal(err)
	}
	interleave(b, func() { g.run(b, guest.Command{Argv: []string{"/bin/true"}}) })
}

func BenchmarkCell(b *testing.B) {
	g := start(b, guest.Options{})
	interleave(b, func() {
		if r, err := g.Cell(b.Context(), guest.Cell{Code: "1"}); err != nil || r.Code != 0 {
			b.Fatal(r, err)
		}
	})
}
