package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestOutcomeIsThatOfTheWorstFinding(t *testing.T) {
	t.Parallel()
	documented, both := &findings{}, &findings{}
	for _, f := range []*findings{documented, both} {
		f.wantUnless(true, false, "the host's memory is readable")
	}
	both.want(false, "the guest is dead")
	undocumented := &findings{}
	undocumented.wantUnless(false, false, "the host's memory is readable")
	for name, tt := range map[string]struct {
		err  error
		want Outcome
	}{
		"nothing found":            {(&findings{}).err(), Held},
		"documented":               {documented.err(), Documented},
		"documented and something": {both.err(), NotHeld},
		"not for this driver":      {undocumented.err(), NotHeld},
		"not tried":                {fmt.Errorf("no process: %w", ErrNotTried), NotTried},
		"an unknown error":         {errors.New("x"), NotHeld},
	} {
		if got := outcome(tt.err); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestReportIsSafeOnlyIfAllWasTriedAndHeld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcomes []Outcome
		safe     bool
	}{
		"held and documented": {[]Outcome{Held, Documented}, true},
		"one not held":        {[]Outcome{Held, NotHeld}, false},
		"one not tried":       {[]Outcome{Held, NotTried}, false},
		"nothing":             {nil, false},
	} {
		r := Report{Driver: "native"}
		for n, o := range tt.outcomes {
			r.Results = append(r.Results, Result{Row: n + 1, Name: "Name", Outcome: o, Detail: "first\nsecond"})
		}
		if r.Safe() != tt.safe {
			t.Errorf("%s: safe %t", name, r.Safe())
		}
		text := r.Markdown()
		if strings.Contains(text, "cannot be run safely") == tt.safe || strings.Count(text, "\n    second") != len(tt.outcomes) {
			t.Errorf("%s: the page is\n%s", name, text)
		}
	}
}

func TestPartsOfAnotherProcessAreKnownByName(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"", "hold", "dance:test1:/nowhere"} {
		if err := PlayPart(context.Background(), Factory{}, part); err == nil {
			t.Errorf("part %q was played", part)
		}
	}
}
