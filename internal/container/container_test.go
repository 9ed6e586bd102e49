package container

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

var t0 = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestIDRefusesWhatCannotBeOne(t *testing.T) {
	t.Parallel()
	for id, ok := range map[ID]bool{
		"container_011CWHPPabcdefghij": true, "container_x": true, "": false, "container_": false, "file_01x": false,
		"container_a/../b": false, "container_a b": false, ID("container_" + strings.Repeat("a", 200)): false,
	} {
		if err := id.Validate(); (err == nil) != ok {
			t.Errorf("Validate(%q) = %v, want ok %v", id, err, ok)
		}
	}
}

func TestIDsOfOtherThingsAreUnknownContainers(t *testing.T) {
	t.Parallel()
	for id, status := range map[ID]int{
		"file_011CNha8iCJcU1wXNR6q4V8w": 404, "msg_01Up": 404, "srvtoolu_01x": 404,
		"container_": 400, "": 400, "x": 400, "../container_01x": 400, ID("file_" + strings.Repeat("a", 10<<10)): 400,
	} {
		e := wire.AsError(id.Validate())
		if e == nil || e.HTTPStatus() != status {
			t.Errorf("Validate(%.40q) = %v, want %d", id, e, status)
		} else if status == 404 && e.Message != wire.NotFound().Message {
			t.Errorf("Validate(%q) tells %q", id, e.Message)
		}
	}
}

// The setting is stored with the container, every use moves the expiry by it, and no number of uses passes the end.
func TestCase76ExpiryRollsByItsOwnTimeAndNeverPassesTheMaximum(t *testing.T) {
	t.Parallel()
	c := Container{State: StateActive, IdleTTL: 30 * time.Minute, MaxExpiresAt: t0.Add(2 * time.Hour)}
	var got []time.Duration
	for _, at := range []time.Duration{0, 20 * time.Minute, 100 * time.Minute, 110 * time.Minute} {
		c.touch(t0.Add(at))
		got = append(got, c.ExpiresAt.Sub(t0))
	}
	want := []time.Duration{30 * time.Minute, 50 * time.Minute, 2 * time.Hour, 2 * time.Hour}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("expiry (-want +got):\n%s", d)
	}
}

// A container that may live as long as any has its expiry at the maximum age from the first moment on.
func TestUseMovesTheLastUseAlsoAtTheMaximumAge(t *testing.T) {
	t.Parallel()
	for _, max := range []time.Duration{time.Hour, 3 * time.Hour} {
		c := Container{State: StateActive, IdleTTL: max, MaxExpiresAt: t0.Add(max)}
		for _, tt := range []struct {
			at, used time.Duration
			write    bool
		}{{0, 0, true}, {9 * time.Second, 0, false}, {10 * time.Second, 10 * time.Second, true}, {30 * time.Minute, 30 * time.Minute, true}} {
			if got := c.touch(t0.Add(tt.at)); got != tt.write || c.LastUsedAt != t0.Add(tt.used) || c.ExpiresAt != t0.Add(max) {
				t.Errorf("%s: a use at %s: written %t, last used %s", max, tt.at, got, c.LastUsedAt.Sub(t0))
			}
		}
	}
}

func TestUsableTellsTheFourEndsApart(t *testing.T) {
	t.Parallel()
	base := Container{ID: "container_x", State: StateActive, ExpiresAt: t0.Add(time.Hour), MaxExpiresAt: t0.Add(time.Hour)}
	for _, tt := range []struct {
		name  string
		state State
		at    time.Time
		code  string
		gone  bool
	}{
		{"in time", StateActive, t0, "", false},
		{"at its expiry", StateActive, t0.Add(time.Hour), CodeExpired, true},
		{"expired", StateExpired, t0, CodeExpired, true},
		{"lost", StateLost, t0, CodeLost, true},
		{"deleting", StateDeleting, t0, "", true},
		{"deleted", StateDeleted, t0, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := base
			c.State = tt.state
			err := c.usable(tt.at)
			if !tt.gone {
				if err != nil {
					t.Fatalf("usable: %v", err)
				}
				return
			}
			e := wire.AsError(err)
			if e.HTTPStatus() != 404 || e.Code != tt.code {
				t.Errorf("got %d %q, want 404 %q", e.HTTPStatus(), e.Code, tt.code)
			}
			if tt.code == "" && !cmp.Equal(e, wire.NotFound()) {
				t.Errorf("a deleted container answers %+v, want the constant body", e)
			}
		})
	}
}

func TestExpiredMessageHasBothWordsAndForbidsRetry(t *testing.T) {
	t.Parallel()
	e := wire.AsError(expiredError("container_x"))
	if !strings.Contains(e.Message, "container") || !strings.Contains(e.Message, "expired") || !e.NoRetry {
		t.Errorf("got %+v", e)
	}
}

func TestCase34SecondFileOfOneNameGetsANumber(t *testing.T) {
	t.Parallel()
	var taken []Input
	add := func(name string) string {
		got := freeName(name, taken)
		taken = append(taken, Input{Path: InputDir + "/" + got})
		return got
	}
	var got []string
	for _, n := range []string{"image.png", "image.png", "image.png", "image (2).png", "README", "README", ".bashrc", ".bashrc"} {
		got = append(got, add(n))
	}
	want := []string{
		"image.png", "image (2).png", "image (3).png", "image (2) (2).png", "README", "README (2)", ".bashrc", ".bashrc (2)",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	name := strings.Repeat("x", maxNameBytes-4) + ".png"
	taken = []Input{{Path: InputDir + "/" + name}}
	if got := freeName(name, taken); len(got) > maxNameBytes || !strings.HasSuffix(got, " (2).png") {
		t.Errorf("long name became %q (%d bytes)", got, len(got))
	}
}

func TestExportTakesRegularFilesAndNamesTheRest(t *testing.T) {
	t.Parallel()
	dir := outputRoot + "/c/"
	entries := []sandbox.FileInfo{
		{Path: dir + "z.txt", Type: guest.TypeFile},
		{Path: dir + "a.txt", Type: guest.TypeFile, Size: DefaultMaxFile},
		{Path: dir + "sub", Type: guest.TypeDir},
		{Path: dir + "link", Type: guest.TypeSymlink},
		{Path: dir + "pipe", Type: guest.TypeOther},
		{Path: dir + "big", Type: guest.TypeFile, Size: DefaultMaxFile + 1},
	}
	p := planExport(entries, DefaultMaxFile)
	if d := cmp.Diff([]string{"a.txt", "z.txt"}, p.take); d != "" {
		t.Errorf("taken (-want +got):\n%s", d)
	}
	want := []string{
		`not exported: "big": larger than 500 MiB`,
		`not exported: "link": a symbolic link`,
		`not exported: "pipe": not a regular file`,
		`not exported: "sub": a folder; only files at the top level of $OUTPUT_DIR are taken`,
	}
	if d := cmp.Diff(want, p.notes()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func TestExportStopsAtItsNumberOfFilesAndOfNotes(t *testing.T) {
	t.Parallel()
	var entries []sandbox.FileInfo
	for range maxExportFiles + 50 {
		entries = append(entries, sandbox.FileInfo{Path: outputRoot + "/c/f", Type: guest.TypeFile})
	}
	p := planExport(entries, DefaultMaxFile)
	if len(p.take) != maxExportFiles || len(p.notes()) != maxExportNotes+1 {
		t.Errorf("took %d with %d notes", len(p.take), len(p.notes()))
	}
	if got := p.notes()[maxExportNotes]; got != "not exported: 30 more" {
		t.Errorf("last note %q", got)
	}
	p.cut = true
	if got := p.notes(); len(got) != maxExportNotes+2 || !strings.Contains(got[maxExportNotes+1], "more than 10000 entries") {
		t.Errorf("notes of a cut listing: %q", got)
	}
}

func TestOutputPathRefusesWhatIsNoFolderName(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "..", "a/b", "a\x00b", strings.Repeat("a", 129)} {
		if p, err := outputPath(id); err == nil {
			t.Errorf("outputPath(%q) = %q", id, p)
		}
	}
}

// Each end of a sandbox has its own words; none blames the time limit for a crash.
func TestCase75EndsOfASandboxAreToldApart(t *testing.T) {
	t.Parallel()
	seen := map[string]sandbox.ExitReason{}
	for _, r := range []sandbox.ExitReason{sandbox.ExitOOM, sandbox.ExitTimeout, sandbox.ExitDestroyed, sandbox.ExitCrash} {
		e := wire.AsError(GoneError(r, sandbox.ErrGone))
		if prev, dup := seen[e.Message]; dup {
			t.Errorf("%q and %q have the same message", prev, r)
		}
		seen[e.Message] = r
		if strings.Contains(e.Message, "time") != (r == sandbox.ExitTimeout) {
			t.Errorf("%q: %s", r, e.Message)
		}
		if !e.NoRetry || e.Code == "" {
			t.Errorf("%q: %+v", r, e)
		}
	}
	other := errors.New("other")
	if got := GoneError(sandbox.ExitCrash, other); got != other { //nolint:errorlint // it must come through as it is, not wrapped
		t.Errorf("another error became %v", got)
	}
}
