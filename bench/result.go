package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// result is one row of the table and of latest.json.
type result struct {
	Metric string `json:"metric"`
	Driver string `json:"driver"`
	// Value is the median, in Unit.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Baseline is the yardstick in the same unit, 0 if there is none.
	Baseline float64 `json:"baseline"`
	// Ratio is Value to Baseline, 0 without one.
	Ratio  float64 `json:"ratio"`
	Budget string  `json:"budget"`
	OK     bool    `json:"ok"`
	// Note says what the yardstick was, or what went wrong.
	Note string `json:"note,omitempty"`
}

// atMost makes a row whose value must not pass a budget.
func atMost(metric, unit string, value, budget float64) result {
	return result{Metric: metric, Driver: driverName, Value: value, Unit: unit, Budget: fmt.Sprintf("<= %g %s", budget, unit), OK: value <= budget}
}

// ratioAtMost makes a row whose ratio to the baseline must not pass a budget.
func ratioAtMost(metric, unit string, value, baseline, budget float64, note string) result {
	r := result{Metric: metric, Driver: driverName, Value: value, Unit: unit, Baseline: baseline, Budget: fmt.Sprintf("<= %gx", budget), Note: note}
	if baseline > 0 {
		r.Ratio = value / baseline
		r.OK = r.Ratio <= budget
	}
	return r
}

// ratioAtLeast is ratioAtMost for what should be large, as throughput.
func ratioAtLeast(metric, unit string, value, baseline, budget float64, note string) result {
	r := ratioAtMost(metric, unit, value, baseline, budget, note)
	r.Budget, r.OK = fmt.Sprintf(">= %gx", budget), r.Ratio >= budget
	return r
}

// failed is the row of something that could not be measured.
func failed(metric string, err error) result {
	return result{Metric: metric, Driver: driverName, Note: err.Error()}
}

// candidate is one way to do a thing; each call does it once and says how
// long it took.
type candidate struct {
	name string
	once func() (time.Duration, error)
}

// interleave runs the candidates in turn, n times each, after one round that
// does not count, and returns the medians in milliseconds by name.
func interleave(n int, candidates ...candidate) (map[string]float64, error) {
	taken := map[string][]time.Duration{}
	for round := range n + 1 {
		for _, c := range candidates {
			d, err := c.once()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				taken[c.name] = append(taken[c.name], d)
			}
		}
	}
	medians := map[string]float64{}
	for name, all := range taken {
		medians[name] = median(all)
	}
	return medians, nil
}

// median is in milliseconds.
func median(all []time.Duration) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[len(sorted)/2]) / float64(time.Millisecond)
}

func printTable(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "metric\tdriver\tvalue\tbaseline\tratio\tbudget\tok\tnote")
	for _, r := range results {
		baseline, ratio, verdict := "-", "-", "yes"
		if r.Baseline > 0 {
			baseline, ratio = fmt.Sprintf("%.2f %s", r.Baseline, r.Unit), fmt.Sprintf("%.2fx", r.Ratio)
		}
		if !r.OK {
			verdict = "NO"
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f %s\t%s\t%s\t%s\t%s\t%s\n", r.Metric, r.Driver, r.Value, r.Unit, baseline, ratio, r.Budget, verdict, r.Note)
	}
	return t.Flush()
}

func writeResults(path string, results []result) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
