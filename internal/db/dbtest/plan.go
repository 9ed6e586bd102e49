package dbtest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/db"
)

// Plan is how the database answers a statement.
type Plan struct {
	Text string
	// Wasted is the number of rows that were read and thrown away; PostgreSQL counts them, SQLite tells only the indexes.
	Wasted int
}

var removed = regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck): (\d+)`)

// Explain runs the statement, which must only read, and gives its plan. PostgreSQL takes statistics first, without which it
// guesses.
func Explain(t *testing.T, d *db.DB, statement string) Plan {
	t.Helper()
	how := "EXPLAIN QUERY PLAN "
	if d.Engine() == db.Postgres {
		how = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "
		if _, err := d.Read().ExecContext(t.Context(), "ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := d.Read().QueryContext(t.Context(), how+statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var p Plan
	for rows.Next() {
		cells := make([]any, len(columns))
		for i := range cells {
			cells[i] = new(any)
		}
		line := new(string)
		cells[len(cells)-1] = line // SQLite has numbers in front of the text
		if err := rows.Scan(cells...); err != nil {
			t.Fatal(err)
		}
		p.Text += *line + "\n"
		for _, m := range removed.FindAllStringSubmatch(*line, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			p.Wasted += n
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// UsesOnly fails the test unless the plan reads through these indexes and scans no table.
func (p Plan) UsesOnly(t *testing.T, indexes ...string) {
	t.Helper()
	for _, i := range indexes {
		if !strings.Contains(p.Text, i) {
			t.Errorf("the index %s is not used:\n%s", i, p.Text)
		}
	}
	for line := range strings.Lines(p.Text) {
		line = strings.TrimLeft(strings.TrimSpace(line), "-> ")
		scans := strings.HasPrefix(line, "SCAN ") && !strings.HasPrefix(line, "SCAN (subquery") && !strings.HasPrefix(line, "SCAN own") &&
			!strings.HasPrefix(line, "SCAN shared") || strings.HasPrefix(line, "Seq Scan")
		if scans {
			t.Errorf("a table is read from end to end: %s\n%s", line, p.Text)
		}
	}
}
