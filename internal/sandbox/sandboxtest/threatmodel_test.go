package sandboxtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
)

const threatModel = "../../../docs/threat-model.md"

// documented reads the table: row -> its cells.
func documented(t *testing.T) map[int][]string {
	t.Helper()
	text, err := os.ReadFile(threatModel)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[int][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		row, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil {
			continue
		}
		if len(cells) < 5 || rows[row] != nil {
			t.Fatalf("row %d of the threat model is malformed or there twice: %s", row, line)
		}
		rows[row] = cells
	}
	return rows
}

func TestThreatModelAndTestsNameEachOther(t *testing.T) {
	t.Parallel()
	rows := documented(t)
	if len(rows) != 60 {
		t.Errorf("the threat model has %d rows, want 60", len(rows))
	}
	tried := regexp.MustCompile("^(held|not held on [a-z]+, by design)")
	title := regexp.MustCompile("^`(T[0-9]{2}[A-Za-z]+)`$")
	tested := map[int]string{}
	for _, threat := range attack.Threats() {
		if other, twice := tested[threat.Row]; twice {
			t.Errorf("row %d has two tests, %s and %s", threat.Row, other, threat.Title())
		}
		tested[threat.Row] = threat.Title()
	}
	for row, cells := range rows {
		test, status := strings.TrimSpace(cells[len(cells)-2]), strings.TrimSpace(cells[len(cells)-1])
		named := ""
		if m := title.FindStringSubmatch(test); m != nil {
			named = m[1]
		}
		if named != tested[row] {
			t.Errorf("row %d names the test %q, the suite has %q", row, test, tested[row])
		}
		if tried.MatchString(status) != (test != "-") {
			t.Errorf("row %d has the test %q and the status %q: held needs a test, and a test needs a status", row, test, status)
		}
		for driver, rows := range mayGetThrough {
			says := strings.Contains(status, "not held on "+driver+", by design")
			if says != slices.Contains(rows, row) {
				t.Errorf("row %d: that it may get through on %s is %t in the test and %t in the status %q", row, driver, !says, says, status)
			}
		}
	}
	for row := range tested {
		if rows[row] == nil {
			t.Errorf("row %d is tested and not in the threat model", row)
		}
	}
}

// The tests of other packages that the threat model relies on must exist.
func TestThreatModelNamesRealTestsElsewhere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(threatModel)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	files, err := filepath.Glob("../../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, own...)
	var all strings.Builder
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	if len(named) == 0 {
		t.Error("the threat model names no test of another package; this check reads it wrongly")
	}
	for _, m := range named {
		if !strings.Contains(all.String(), "func "+m[1]+"(") {
			t.Errorf("%s is named in the threat model and does not exist", m[1])
		}
	}
}
