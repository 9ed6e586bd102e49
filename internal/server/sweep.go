package server

import (
	"context"
	"log/slog"
	"time"
)

// sweeper calls the sweeps of stores once a minute.
type sweeper struct {
	cancel context.CancelFunc
	done   chan struct{}
}

const sweepEvery = time.Minute

func (s *sweeper) start(ctx context.Context, log *slog.Logger, sweeps ...func(context.Context) error) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			for _, sweep := range sweeps {
				if err := sweep(ctx); err != nil && ctx.Err() == nil {
					log.ErrorContext(ctx, "sweep", "error", err)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

func (s *sweeper) stop() {
	s.cancel()
	<-s.done
}
