package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// guard keeps the disk from filling up: it refuses what would write, with an answer that clients retry. Memory is the
// business of admission.Queue.
type guard struct {
	data string // the data folder, whose file system fills
	// crowded is the share of the disk from which on nothing new is taken, full that from which on nothing is written.
	crowded, full float64
	// diskUsed is replaced by tests; nil = sandbox.DiskUsed.
	diskUsed func(dir string) (float64, error)
	ballast  *sandbox.Ballast // nil = none
	log      *slog.Logger     // nil = discard

	refused atomic.Int64 // requests
	state   atomic.Int32 // the diskState that was logged last
}

// diskState is how full the disk is, in the terms of the settings.
type diskState int32

const (
	diskFine diskState = iota
	diskCrowded
	diskFull
)

func (d diskState) String() string {
	return [...]string{"fine", "crowded: no new uploads and containers", "full: reads and deletes only"}[d]
}

const retryFull = time.Minute

// admitSandbox is asked before a sandbox starts, which writes.
func (g *guard) admitSandbox(ctx context.Context) error { return g.admitWrite(ctx) }

// admitNew is asked before a container is made or a file uploaded.
func (g *guard) admitNew(ctx context.Context) error { return g.disk(ctx, diskCrowded) }

// admitSnapshot is asked before what can be done without is written, and whether it may stay. It refuses no request.
func (g *guard) admitSnapshot(ctx context.Context) error {
	used, state, err := g.look(ctx)
	if err == nil && state != diskFine {
		err = fmt.Errorf("the disk is %.0f %% full", used*100)
	}
	return err
}

// isFull says whether those who write already must stop. A disk that cannot be read stops nobody.
func (g *guard) isFull(ctx context.Context) bool {
	g.trimBallast(ctx)
	_, state, err := g.look(ctx)
	return err == nil && state == diskFull
}

// trimBallast drops the ballast if the disk has no room, and takes it on again when it has.
func (g *guard) trimBallast(ctx context.Context) {
	if g.ballast != nil {
		g.ballast.Trim(ctx)
	}
}

// admitWrite is asked before anything that may write.
func (g *guard) admitWrite(ctx context.Context) error { return g.disk(ctx, diskFull) }

func (g *guard) disk(ctx context.Context, least diskState) error {
	used, state, err := g.look(ctx)
	if err != nil {
		return fmt.Errorf("read disk usage: %w", err)
	}
	if state < least {
		return nil
	}
	g.refused.Add(1)
	what := "takes no new files and containers"
	if state == diskFull {
		what = "takes no more data; reading and deleting work"
	}
	return wire.Overloaded(retryFull, "The server's disk is %.0f %% full; until there is room it %s.", used*100, what).WithCode(wire.CodeDiskFull)
}

// look reads how full the disk is, and logs each change of what that means.
func (g *guard) look(ctx context.Context) (used float64, state diskState, err error) {
	read := g.diskUsed
	if read == nil {
		read = sandbox.DiskUsed
	}
	if used, err = read(g.data); err != nil {
		return 0, diskFine, err
	}
	switch {
	case used >= g.full:
		state = diskFull
	case used >= g.crowded:
		state = diskCrowded
	}
	if before := diskState(g.state.Swap(int32(state))); before != state && g.log != nil {
		level := slog.LevelWarn
		if state == diskFine {
			level = slog.LevelInfo
		}
		g.log.Log(ctx, level, "disk", "state", state.String(), "used_percent", int(used*100))
	}
	return used, state, nil
}

// used is for the metric; what cannot be read shows as NaN.
func (g *guard) used() float64 {
	used, _, err := g.look(context.Background()) //nolint:forbidigo // a metric has no context
	if err != nil {
		return math.NaN()
	}
	return used
}
