package internal

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// partA are the numbers of the cases that this part of the product answers for.
var partA = []int{
	2, 3, 4, 5, 8, 9, 12, 14, 15, 16, 18, 19, 21, 22, 25, 29, 30, 31, 32, 34, 36, 37, 38, 39, 40, 43, 44, 46, 47, 49, 51, 52, 54,
	55, 56, 57, 59, 60, 61, 62, 63, 66, 67, 68, 69, 70, 71, 74, 75, 76, 81, 82, 83, 84,
}

const casesFile = "testdata/cases.txt"

var numberedTest = regexp.MustCompile(`^TestCase([0-9]+)`)

// rewriteCases sorts every test that carries a case's number to its case and keeps the other names that exist.
func rewriteCases(t *testing.T, tests map[string]bool) {
	t.Helper()
	phrases, covered := map[int]string{}, map[int][]string{}
	for _, line := range golden(t, casesFile) {
		parts := strings.Split(line, "|")
		number, err := strconv.Atoi(strings.TrimSpace(parts[0]))
		if err != nil {
			continue
		}
		phrases[number] = strings.TrimSpace(parts[1])
		for name := range strings.SplitSeq(strings.Join(parts[2:], ""), ",") {
			if name = strings.TrimSpace(name); tests[name] {
				covered[number] = append(covered[number], name)
			}
		}
	}
	for name := range tests {
		if m := numberedTest.FindStringSubmatch(name); m != nil {
			number, _ := strconv.Atoi(m[1])
			covered[number] = append(covered[number], name)
		}
	}
	var done, open strings.Builder
	for _, number := range slices.Sorted(maps.Keys(phrases)) {
		names := covered[number]
		slices.Sort(names)
		if names = slices.Compact(names); len(names) == 0 {
			fmt.Fprintf(&open, "%d | %s\n", number, phrases[number])
			continue
		}
		fmt.Fprintf(&done, "%d | %s | %s\n", number, phrases[number], strings.Join(names, ", "))
	}
	text := "# The cases of this part: number | what holds | tests. Cases under \"open:\" have no test yet.\n\n" + done.String() + "\nopen:\n" + open.String()
	if err := os.WriteFile(casesFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEveryCaseIsCoveredOrSaidToBeOpen reads testdata/cases.txt: "number | what | tests", and under the line "open:" the
// cases that no test covers yet. The truth about coverage is this file, so each named test must exist, and each test that
// carries a case's number must be named.
func TestEveryCaseIsCoveredOrSaidToBeOpen(t *testing.T) {
	t.Parallel()
	tests := testFunctions(t)
	if *update {
		rewriteCases(t, tests)
	}
	open, listed, seen := false, map[string]bool{}, map[int]bool{}
	for _, line := range golden(t, casesFile) {
		if line == "open:" {
			open = true
			continue
		}
		parts := strings.Split(line, "|")
		number, err := strconv.Atoi(strings.TrimSpace(parts[0]))
		if err != nil || len(parts) < 2 {
			t.Errorf("not a case: %s", line)
			continue
		}
		if seen[number] {
			t.Errorf("case %d is there twice", number)
		}
		seen[number] = true
		if open {
			continue
		}
		if len(parts) != 3 || strings.TrimSpace(parts[2]) == "" {
			t.Errorf("case %d names no test and does not stand under \"open:\"", number)
			continue
		}
		for name := range strings.SplitSeq(parts[2], ",") {
			name = strings.TrimSpace(name)
			listed[name] = true
			if !tests[name] {
				t.Errorf("case %d names %s, which does not exist", number, name)
			}
		}
	}
	for _, number := range partA {
		if !seen[number] {
			t.Errorf("case %d is missing", number)
		}
	}
	for name := range tests {
		if numberedTest.MatchString(name) && !listed[name] {
			t.Errorf("%s is not in testdata/cases.txt", name)
		}
	}
}

// TestCompatibilityRegisterNamesRealTests reads docs/compat/README.md: the last column of each row names its tests.
func TestCompatibilityRegisterNamesRealTests(t *testing.T) {
	t.Parallel()
	tests := testFunctions(t)
	b, err := os.ReadFile("../docs/compat/README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 4 || strings.Contains(line, "---") || strings.Contains(cells[0], "where") {
			continue
		}
		rows++
		names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(names) == 0 {
			t.Errorf("a row without a test: %s", line)
		}
		for _, n := range names {
			if !tests[n[1]] {
				t.Errorf("%s does not exist, says the row: %s", n[1], line)
			}
		}
	}
	if rows == 0 {
		t.Error("the register has no row")
	}
}

// The tree names no registry: a lock file carries no addresses, and the module proxy of the machine that
// runs this stands nowhere.
func TestNothingOfOneMachineIsCommitted(t *testing.T) {
	t.Parallel()
	files, err := gitFiles()
	if err != nil {
		t.Fatal(err)
	}
	private := regexp.MustCompile(strings.Join(append(proxyHosts(t), `"resolved":`), "|"))
	for _, path := range files {
		if strings.HasSuffix(path, "go.sum") || path == "internal/cases_test.go" {
			continue
		}
		b, err := os.ReadFile("../" + path)
		if os.IsNotExist(err) || slices.Contains(b, 0) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if m := private.Find(b); m != nil {
			t.Errorf("%s holds %q", path, m)
		}
	}
}

// proxyHosts are the hosts of the module proxies in use here, as patterns.
func proxyHosts(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for entry := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return strings.ContainsRune(",|\n ", r) }) {
		if u, err := url.Parse(entry); err == nil && u.Hostname() != "" {
			hosts = append(hosts, regexp.QuoteMeta(u.Hostname()))
		}
	}
	return hosts
}

// TestThreatModelNamesRealRows holds every `TnnName` and `TestName` of the threat model against the suite and the tests.
func TestThreatModelNamesRealRows(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	var suite strings.Builder
	for _, f := range allSources(t) {
		if f.dir() == "internal/sandbox/attack" {
			suite.Write(f.text)
		}
	}
	tests := testFunctions(t)
	for _, m := range regexp.MustCompile("`(?:T([0-9]+)([A-Z][A-Za-z0-9]*)|(Test[A-Za-z0-9_]+))[/`]").FindAllStringSubmatch(string(b), -1) {
		if m[3] != "" {
			if !tests[m[3]] {
				t.Errorf("%s does not exist", m[3])
			}
			continue
		}
		row := regexp.MustCompile(`\{0*` + strings.TrimLeft(m[1], "0") + `, "` + m[2] + `"`)
		if !row.MatchString(suite.String()) {
			t.Errorf("the suite has no row T%s%s", m[1], m[2])
		}
	}
}
