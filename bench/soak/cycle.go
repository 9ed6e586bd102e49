package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

// restLimit is how long a server may take to come to rest after it was busy.
const restLimit = 2 * time.Minute

// look counts what the server under test holds now.
func (w *world) look() (holdings, error) {
	w.mu.Lock()
	pid, instance := w.server.Pid(), w.server.Instance
	w.mu.Unlock()
	return held(pid, instance, w.data())
}

// cycles makes, uses and deletes containers, a few at a time, and compares what the server holds before and after, both
// times at rest. Nothing may have become more.
func cycles(ctx context.Context, w *world) error {
	c, _ := w.current()
	// What is made once, at the first use, is no leak.
	w.cycle(ctx, c, 5*cyclesAtATime)
	c.HTTP.CloseIdleConnections()
	before, err := quiet(ctx, restLimit, atRest(w.o.driver), w.look)
	if err != nil {
		w.report.fault("rest", "before the cycles: %v", err)
	}
	w.cycle(ctx, c, w.o.cycles)
	c.HTTP.CloseIdleConnections()
	after, err := quiet(ctx, restLimit, atRest(w.o.driver), w.look)
	if err != nil {
		w.report.fault("rest", "after the cycles: %v", err)
	}
	w.report.holds(before, after)
	if grown := before.growth(after); grown != "" {
		w.report.fault("leak", "%d cycles left behind: %s", w.o.cycles, grown)
	}
	return errors.Join(w.stopAndCheck(ctx), ctx.Err())
}

const cyclesAtATime = 4

// cycle runs n cycles.
func (w *world) cycle(ctx context.Context, c *servertest.Client, n int) {
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range cyclesAtATime {
		workers.Go(func() {
			for i := range jobs {
				if err := cycle(ctx, c, strconv.Itoa(i)); err != nil && ctx.Err() == nil {
					w.report.fault("cycle", "%d: %v", i, err)
				}
				w.report.count("containers made, used and deleted at once")
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		jobs <- i
	}
	close(jobs)
	workers.Wait()
}

func cycle(ctx context.Context, c *servertest.Client, word string) error {
	id, err := c.Create(ctx)
	if err != nil {
		return err
	}
	out, err := c.Exec(ctx, id, "echo "+word)
	if err == nil && out != word+"\n" {
		err = fmt.Errorf("echo %s gave %q", word, out)
	}
	return errors.Join(err, c.Delete(ctx, id))
}
