package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

// held is what a process holds that could leak.
type held struct{ files, mounts, data int }

func (w *world) held() (held, error) {
	w.mu.Lock()
	pid := w.server.Pid()
	w.mu.Unlock()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return held{}, err
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return held{}, err
	}
	h := held{files: len(fds), mounts: strings.Count(string(mounts), "\n")}
	for _, folder := range []string{"workspaces", "run", "blobs"} {
		entries, err := os.ReadDir(filepath.Join(w.data(), folder))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return h, err
		}
		h.data += len(entries)
	}
	return h, nil
}

// cycles makes, uses and deletes containers, a few at a time, and compares what the server holds before and after.
func cycles(ctx context.Context, w *world) error {
	c, _ := w.current()
	// What is made once, at the first use, is no leak.
	for range 4 {
		if err := cycle(ctx, c, "warm"); err != nil {
			return err
		}
	}
	before, err := w.held()
	if err != nil {
		return err
	}
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range jobs {
				if err := cycle(ctx, c, fmt.Sprint(i)); err != nil {
					w.report.fault("cycle", "%d: %v", i, err)
				}
				w.report.count("containers made, used and deleted")
			}
		})
	}
	for i := 0; i < w.o.cycles && ctx.Err() == nil; i++ {
		jobs <- i
	}
	close(jobs)
	workers.Wait()
	c.HTTP.CloseIdleConnections()
	after, err := w.held()
	if err != nil {
		return err
	}
	w.report.note("before the cycles %+v, after them %+v", before, after)
	// The pool and the database may hold a few files more or less at a moment; what leaks grows with the cycles.
	if slack := 32 + w.o.cycles/500; after.files > before.files+slack || after.mounts > before.mounts || after.data > before.data+8 {
		w.report.fault("leak", "before %+v, after %+v", before, after)
	}
	return errors.Join(w.stopAndCheck(ctx), ctx.Err())
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
