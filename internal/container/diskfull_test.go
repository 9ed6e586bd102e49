package container_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// ticks gets one value for each piece of output; more are not needed than somebody takes.
type ticks chan struct{}

func (c ticks) Write(p []byte) (int, error) {
	select {
	case c <- struct{}{}:
	default:
	}
	return len(p), nil
}

func TestFullDiskEndsTheSandboxesThatGoOnWritingAndNoOther(t *testing.T) {
	t.Parallel()
	runAll(t, func(t *testing.T, e *containertest.Env) {
		full := false
		e.DiskFull = func(context.Context) bool { return full }
		writer, quiet := create(t, e, container.CreateParams{}).ID, create(t, e, container.CreateParams{}).ID
		for _, id := range []container.ID{writer, quiet} {
			e.Sh(t, id, "echo kept > note; sync note; (exec sleep 1000 >/dev/null 2>&1) & echo $! > pid")
		}
		const write = "head -c 4M /dev/urandom > f; sync f; "
		// What was written while there was room does not count, not even if the disk was full before.
		full = true
		e.SweepFullDisk(t.Context())
		full = false
		e.Sh(t, writer, write)
		e.SweepFullDisk(t.Context())
		full = true
		e.SweepFullDisk(t.Context())
		full = false
		e.SweepFullDisk(t.Context())
		if out, _ := e.Sh(t, writer, "kill -0 $(cat pid) && echo lives"); out != "lives\n" {
			t.Fatalf("a sandbox that writes while there is room says %q", out)
		}

		full = true
		e.SweepFullDisk(t.Context())
		written, done := make(ticks), make(chan error, 1)
		go func() {
			_, err := e.Exec(t.Context(), e.Caller, writer, sandbox.Command{Shell: "while :; do " + strings.Replace(write, ">", ">>", 1) + "echo; done", Timeout: time.Minute}, written, nil)
			done <- err
		}()
		for err := error(nil); err == nil; {
			select {
			case <-written:
				e.SweepFullDisk(t.Context())
			case err = <-done:
				wantError(t, err, 500, container.CodeDiskFull)
			}
		}
		if out, _ := e.Sh(t, quiet, "kill -0 $(cat pid) && cat note"); out != "kept\n" {
			t.Errorf("the sandbox beside says %q", out)
		}
		if out, _ := e.Sh(t, writer, "cat note"); out != "kept\n" {
			t.Errorf("its successor says %q", out)
		}
	})
}
