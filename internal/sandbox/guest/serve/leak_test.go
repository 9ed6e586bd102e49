package serve_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func TestCallsLeaveNothingBehindInTheGuest(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	round := func() {
		g.shell(t, "sleep 100 & echo out; echo err >&2")
		g.run(t, guest.Command{Shell: "exit 1", Stdin: strings.NewReader("unread")})
		g.run(t, guest.Command{Shell: "sleep 100", Timeout: time.Millisecond})
		g.run(t, guest.Command{Shell: "sleep 0.01 & exit 0", Keep: true})
		g.run(t, guest.Command{Shell: strings.Repeat("#", 200<<10) + "\necho long"})
		if _, err := g.try(t.Context(), guest.Command{Argv: []string{"no-such-program"}, Stdin: strings.NewReader("x")}); err == nil {
			t.Error("a missing program ran")
		}
		g.put(t, "f", "content")
		if _, err := g.get(t, "f", asCode); err != nil {
			t.Error(err)
		}
		if _, err := g.get(t, "missing", asCode); err == nil {
			t.Error("a missing file was read")
		}
		if _, err := g.List(t.Context(), "/", 2, 5000); err != nil {
			t.Error(err)
		}
		if o := g.runCell(t, guest.Cell{Code: "1", Fresh: true}); o.Code != 0 {
			t.Errorf("got %+v", o)
		}
	}
	round()
	g.shell(t, "sleep 0.1")
	before := openFiles(t, g)
	for range 5 {
		round()
	}
	// The pipes of the kept process close when it ends.
	g.shell(t, "sleep 0.1")
	if after := openFiles(t, g); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// openFiles counts the descriptors of the guest itself.
func openFiles(t *testing.T, g *guestProcess) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
