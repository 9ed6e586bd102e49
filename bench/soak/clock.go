package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-sandbox/airlock/internal/server"
	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

// clockMode as first argument makes this program the server, with a clock that is off by what a file says.
const clockMode = "clock"

// serveWithClock takes the arguments of airlock serve that servertest gives.
func serveWithClock(offset string, args []string) error {
	flags := map[string]string{}
	for i := 1; i+1 < len(args); i += 2 {
		flags[strings.ReplaceAll(strings.TrimPrefix(args[i], "--"), "-", "_")] = args[i+1]
	}
	cfg, err := server.LoadConfig(server.LoadOptions{
		Flags: map[string]string{"listen": flags["listen"], "upstream": flags["upstream"], "data": flags["data"]}, Env: os.Environ(),
	})
	if err != nil {
		return err
	}
	cfg.Sandbox.AllowSharedKernel = true
	cfg.Container.PerApp = 0 // the machine is to be the limit
	cfg.Now = func() time.Time {
		b, err := os.ReadFile(offset)
		if err != nil {
			panic(err) // a soak without its clock is worth nothing
		}
		seconds, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			panic(err)
		}
		return time.Now().Add(time.Duration(seconds) * time.Second)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return err
	}
	l, err := s.Listen(ctx)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	fmt.Fprintln(os.Stdout, "airlock ready url="+s.URL())
	return errors.Join(s.Serve(ctx, l), s.Close())
}

// clockJumps lets the server's clock jump forward within the life of containers, then beyond it, then back.
func clockJumps(ctx context.Context, w *world) (err error) {
	data := filepath.Join(w.disk, "clock")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	offset := filepath.Join(w.dir, "offset")
	jump := func(d time.Duration) error {
		next := offset + ".next"
		if err := os.WriteFile(next, []byte(strconv.Itoa(int(d/time.Second))), 0o600); err != nil {
			return err
		}
		w.report.count("clock jumps")
		return os.Rename(next, offset)
	}
	if err := jump(0); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// It outlives an interruption, so that it can end in order.
	p, err := servertest.Start(context.WithoutCancel(ctx), servertest.Options{Binary: self, Args: []string{clockMode, offset}, Data: data, Env: w.settings()})
	if err != nil {
		return err
	}
	defer w.end(ctx, p)
	if p.Key, err = p.NewKey(ctx); err != nil {
		return err
	}
	boxes, err := w.boxes(ctx, p, min(50, w.o.containers))
	if err != nil {
		return err
	}
	check := func(when string, want int) {
		for id, content := range boxes {
			out, err := p.Exec(ctx, id, "cat f")
			if ctx.Err() != nil {
				return
			}
			if got := servertest.Status(err); want == 200 && (err != nil || out != content) || want != 200 && got != want {
				w.report.fault("clock", "%s: container %s gave %q, %v, want status %d", when, id, out, err, want)
			}
			w.report.count("looks at a container after a clock jump")
		}
	}
	// A container lives an hour after its last use.
	for _, step := range []struct {
		when   string
		offset time.Duration
		want   int
	}{
		{"50 minutes on", 50 * time.Minute, 200},
		{"back by 20 minutes", 30 * time.Minute, 200},
		{"three hours on", 210 * time.Minute, 404},
		{"back to the start", 0, 404},
	} {
		if err := jump(step.offset); err != nil {
			return err
		}
		check(step.when, step.want)
		if step.want != http.StatusNotFound {
			continue
		}
		// What has expired is swept: until then a clock that goes back would make it young again, and be right.
		if err := w.imagesGo(ctx, data, func() ([]string, error) { return nil, nil }); err != nil {
			return err
		}
	}
	// A new container works under the old time again.
	again, err := w.boxes(ctx, p, 5)
	boxes = again
	check("new ones", 200)
	return err
}

// boxes are containers with a file of known content.
func (w *world) boxes(ctx context.Context, p *servertest.Process, n int) (map[string]string, error) {
	boxes := map[string]string{}
	for i := range n {
		id, err := p.Create(ctx)
		if err != nil {
			return nil, err
		}
		boxes[id] = fmt.Sprintf("content %d\n", i)
		if _, err := p.Exec(ctx, id, fmt.Sprintf("echo content %d > f", i)); err != nil {
			return nil, err
		}
	}
	return boxes, nil
}
