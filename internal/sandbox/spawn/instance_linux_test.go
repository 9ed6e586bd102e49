package spawn

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// An operator looks for crashes in the log: what ended because it was asked to must not stand there.
func TestOnlyAnEndThatNobodyWantedIsLoggedAsACrash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		code   string
		before func(*Instance)
		logged bool
	}{
		{"by itself", "exit 0", func(*Instance) {}, true},
		{"asked, and done", "exit 0", (*Instance).AskToEnd, false},
		{"asked, and failed", "exit 1", (*Instance).AskToEnd, true},
	} {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		proc, err := os.StartProcess("/bin/sh", []string{"sh", "-c", c.code}, &os.ProcAttr{Files: []*os.File{null, null, null}})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		i := &Instance{ID: "one", Proc: proc, Log: slog.New(slog.NewTextHandler(&log, nil)), exited: make(chan struct{})}
		c.before(i)
		i.watch()
		if got := strings.Contains(log.String(), "ended by itself"); got != c.logged {
			t.Errorf("%s: logged %t, want %t: %s", c.name, got, c.logged, &log)
		}
	}
}
