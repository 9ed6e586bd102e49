package sandboxtest

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// BenchmarkParkAndResume is one call of a tool as the host sees it: from the answer of the call before to the next call,
// without the quiet time that a cell gives its other tasks. Frozen adds a thaw on the way and a freeze beside it.
func BenchmarkParkAndResume(b *testing.B) {
	for _, name := range driverNames {
		for _, frozen := range []bool{false, true} {
			b.Run(map[bool]string{false: name, true: name + "/frozen"}[frozen], func(b *testing.B) {
				if _, err := os.Stat(runsc); name == "gvisor" && err != nil {
					b.Skip("gvisor is not built: run make runsc")
				}
				parkAndResume(b, name, frozen)
			})
		}
	}
}

func parkAndResume(b *testing.B, name string, frozen bool) {
	ctx := b.Context()
	e, err := attack.Open(ctx, factory(name), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Close(context.WithoutCancel(ctx)); err != nil {
			b.Error(err)
		}
	}()
	box, err := e.Start(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var spent []time.Duration
	for b.Loop() {
		var answered time.Time
		call := func(ctx context.Context, calls []sandbox.ToolCall) []sandbox.ToolAnswer {
			if !answered.IsZero() {
				spent = append(spent, time.Since(answered)-guest.ToolQuiet)
			}
			if frozen {
				err := box.Freeze(ctx)
				answered = time.Now()
				if err = errors.Join(err, box.Thaw(ctx)); err != nil {
					b.Error(err)
				}
			} else {
				answered = time.Now()
			}
			return []sandbox.ToolAnswer{{ID: calls[0].ID, Text: "x"}}
		}
		_, out, err := askTools(ctx, box, "for n in range(20): await echo(n=n)", attack.CommandTime, call)
		if err != nil || out.Code != 0 {
			b.Fatal(out, err)
		}
	}
	slices.Sort(spent)
	b.ReportMetric(float64(spent[len(spent)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(spent[len(spent)*95/100].Microseconds()), "p95-us")
}
