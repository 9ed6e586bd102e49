package serve_test

import (
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func TestExecReturnsExitCodeAndBothStreams(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.shell(t, "echo out; echo err >&2; exit 7")
	if o.out != "out\n" || o.err != "err\n" || o.Code != 7 || o.Signal != 0 {
		t.Errorf("got %+v", o)
	}
}
