//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
)

func TestAttackReportsOfOneDayStayBesideEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := attack.Report{Driver: "native", Results: []attack.Result{{Row: 1, Name: "First", Outcome: attack.Held}}}
	second := attack.Report{Driver: "native", Results: []attack.Result{{Row: 2, Name: "Second", Outcome: attack.NotHeld, Detail: "it ran"}}}
	for n, report := range []attack.Report{first, second} {
		path, err := writeAttackReport(dir, []attack.Report{report})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || filepath.Dir(path) != dir || !strings.Contains(string(text), report.Results[0].Name) {
			t.Errorf("report %d at %s: %v\n%s", n, path, err, text)
		}
	}
	if made, err := filepath.Glob(filepath.Join(dir, "airlock-attack-*.md")); err != nil || len(made) != 2 {
		t.Errorf("reports: %v, %v", made, err)
	}
}

func TestAttackSummaryNamesWhatDidNotHold(t *testing.T) {
	t.Parallel()
	text := attackSummary([]attack.Report{{Driver: "native", Results: []attack.Result{
		{Row: 1, Name: "ForkBomb", Outcome: attack.Held},
		{Row: 2, Name: "MemoryWithoutEnd", Outcome: attack.NotHeld, Detail: "the host ran out"},
	}}})
	for _, want := range []string{"row 2 MemoryWithoutEnd: not held\nthe host ran out", "2 attempts, 1 held", "1 did not hold"} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "ForkBomb") {
		t.Errorf("the summary names what held:\n%s", text)
	}
}

func TestRowsWithoutAnAttemptAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := chosenThreats([]int{1, 99}); err == nil || !strings.Contains(err.Error(), "row 99") {
		t.Errorf("row 99: %v", err)
	}
	chosen, err := chosenThreats([]int{14, 1})
	if err != nil || len(chosen) != 2 || chosen[0].Row != 1 {
		t.Errorf("rows 14 and 1: %v, %v", chosen, err)
	}
}
