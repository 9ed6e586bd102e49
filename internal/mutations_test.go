package internal

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// mutation breaks the rule of one case; scripts/mutants.sh applies it and runs the test that must notice.
type mutation struct{ number, file, old, new, pkg, test string }

// mutations reads testdata/mutations.txt.
func mutations(t *testing.T) []mutation {
	t.Helper()
	b, err := os.ReadFile("testdata/mutations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutation
	for entry := range strings.SplitSeq(string(b), "\n\n") {
		var m mutation
		for line := range strings.SplitSeq(strings.TrimSpace(entry), "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch {
			case strings.HasPrefix(line, "#"):
			case key == "case":
				m.number = value
			case key == "file":
				m.file = value
			case key == "old":
				m.old = value
			case key == "new":
				m.new = value
			case key == "test":
				m.pkg, m.test, _ = strings.Cut(value, " ")
			default:
				t.Errorf("not a line of a mutation: %s", line)
			}
		}
		if m != (mutation{}) {
			all = append(all, m)
		}
	}
	return all
}

// TestEveryCaseHasAMutationThatItsTestMustNotice keeps testdata/mutations.txt fit to be run by `make mutants`: a case
// without an entry, an entry whose line the code no longer has, or one that names a test of something else proves nothing.
func TestEveryCaseHasAMutationThatItsTestMustNotice(t *testing.T) {
	t.Parallel()
	covered := map[string]string{} // number -> its tests, in commas
	for _, line := range golden(t, casesFile) {
		if parts := strings.Split(line, "|"); len(parts) == 3 {
			covered[strings.TrimSpace(parts[0])] = ", " + strings.TrimSpace(parts[2]) + ", "
		}
	}
	packages := map[string]string{} // package -> the text of its tests
	for _, f := range allSources(t) {
		if f.test {
			packages["./"+f.dir()] += string(f.text)
		}
	}
	seen := map[string]bool{}
	for _, m := range mutations(t) {
		if covered[m.number] == "" {
			t.Errorf("case %s is not in %s", m.number, casesFile)
		}
		seen[m.number] = true
		text, err := os.ReadFile("../" + m.file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(text), m.old); m.old == "" || n != 1 {
			t.Errorf("case %s: %s holds %d times: %s", m.number, m.file, n, m.old)
		}
		if m.new == "" || m.new == m.old {
			t.Errorf("case %s changes nothing", m.number)
		}
		if !strings.Contains(covered[m.number], ", "+m.test+", ") {
			t.Errorf("case %s: %s does not name %s", m.number, casesFile, m.test)
		}
		if !strings.Contains(packages[m.pkg], "func "+m.test+"(") {
			t.Errorf("case %s: %s has no %s", m.number, m.pkg, m.test)
		}
	}
	for _, number := range partA {
		if !seen[strconv.Itoa(number)] {
			t.Errorf("case %d has no mutation", number)
		}
	}
}
