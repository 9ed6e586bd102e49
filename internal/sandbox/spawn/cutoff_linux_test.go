package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

func TestOnlyWhatWasCutOffIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{ID: "one", RootFS: "/", Limits: sandbox.DefaultLimits()}
	made := &sandbox.Sandbox{}
	for name, tt := range map[string]struct {
		errs []error // of each try; nil makes the sandbox
		want error
	}{
		"made":                {errs: []error{nil}},
		"cut off once":        {errs: []error{sandbox.ErrCutOff, nil}},
		"cut off twice":       {errs: []error{sandbox.ErrCutOff, sandbox.ErrCutOff}, want: sandbox.ErrCutOff},
		"refused":             {errs: []error{walls.RefusedError("no /proc")}, want: walls.RefusedError("no /proc")},
		"no room":             {errs: []error{unix.ENOSPC}, want: sandbox.ErrCapacity},
		"gone by memory":      {errs: []error{sandbox.ErrGone}, want: sandbox.ErrGone},
		"cut off, then no id": {errs: []error{sandbox.ErrCutOff, sandbox.ErrCapacity}, want: sandbox.ErrCapacity},
	} {
		var f Fleet
		tries := 0
		sb, err := f.Create(t.Context(), spec, func(context.Context, sandbox.Spec) (*sandbox.Sandbox, error) {
			tries++
			if tries > len(tt.errs) {
				t.Fatalf("%s: try %d", name, tries)
			}
			if err := tt.errs[tries-1]; err != nil {
				return nil, err
			}
			return made, nil
		})
		if !errors.Is(err, tt.want) || (sb == made) != (tt.want == nil) || tries != len(tt.errs) {
			t.Errorf("%s: %v after %d tries, want %v after %d", name, err, tries, tt.want, len(tt.errs))
		}
	}
}

func TestCallerWhoHasGoneGetsNoSecondTry(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var f Fleet
	tries := 0
	_, err := f.Create(ctx, sandbox.Spec{ID: "one", RootFS: "/", Limits: sandbox.DefaultLimits()}, func(context.Context, sandbox.Spec) (*sandbox.Sandbox, error) {
		tries++
		cancel()
		return nil, sandbox.ErrCutOff
	})
	if tries != 1 || !errors.Is(err, sandbox.ErrCutOff) {
		t.Errorf("%v after %d tries", err, tries)
	}
}

func TestEndOfTheOtherSideIsToldFromItsRefusal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{sandbox.ErrGone, true},
		{fmt.Errorf("%w: %w", sandbox.ErrGone, unix.ECONNRESET), true},
		{fmt.Errorf("send setup: %w", unix.EPIPE), true},
		{fmt.Errorf("join cgroups: %w", unix.ESRCH), true},
		{fmt.Errorf("%w: %w", sandbox.ErrGone, walls.RefusedError("mount /proc")), false},
		{errors.Join(sandbox.ErrGone, walls.RefusedError("runsc exited with code 128")), false},
		{fmt.Errorf("%w: no answer: %w", sandbox.ErrGone, os.ErrDeadlineExceeded), false},
		{fmt.Errorf("clone /rootfs: %w", unix.ENOENT), false},
		{context.DeadlineExceeded, false},
	} {
		if got := gone(tt.err); got != tt.want {
			t.Errorf("%v: gone %t, want %t", tt.err, got, tt.want)
		}
	}
}
