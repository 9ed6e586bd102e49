package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
)

func TestSignalThatEndsACommandIsItsExitCode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		for _, args := range [][]string{{"file", "list"}, {"container", "exec", "container_1", "sleep", "60"}, {"ask", "hello"}} {
			reached := make(chan struct{})
			hang := func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				reached <- struct{}{}
				<-r.Context().Done()
			}
			f := fake(t, "one", hang, map[string]http.HandlerFunc{
				"GET /v1/files": hang, "POST /airlock/v1/containers/{id}/exec": hang,
			})
			cmd := f.command(t, t.TempDir(), args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-reached
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if code := exitCode(t, cmd.Wait()); code != tt.code {
				t.Errorf("%v at a %v: exit code %d, want %d", args, tt.signal, code, tt.code)
			}
		}
	}
}

// A terminal or a pipe that nobody writes to would hold a read for ever.
func TestReadOfStandardInputEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	silent, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := interruptible(ctx, silent)
	cancel(signalError(syscall.SIGINT))
	if _, err := io.ReadAll(r); !errors.Is(err, signalError(syscall.SIGINT)) {
		t.Errorf("the read ended with %v", err)
	}
}
