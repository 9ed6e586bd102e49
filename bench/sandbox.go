package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
)

const driverName = "native"

// lab is a driver of its own instance with its workspaces.
type lab struct {
	name   string
	driver sandbox.Driver
	spaces *sandbox.Workspaces
	host   sandbox.Host
	dir    string
	rootfs string
	next   int
}

func openLab(ctx context.Context, name, dir, rootfs string, o drivers.Options) (*lab, error) {
	l := &lab{name: name, dir: filepath.Join(dir, name), rootfs: rootfs}
	l.host = sandbox.Host{ID: fmt.Sprintf("bench%d%s", os.Getpid(), name), RunDir: filepath.Join(l.dir, "run")}
	l.spaces = &sandbox.Workspaces{Dir: filepath.Join(l.dir, "workspaces")}
	for _, folder := range []string{l.host.RunDir, l.spaces.Dir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	o.Host = l.host
	driver, err := drivers.New(ctx, name, o)
	if err != nil {
		return nil, err
	}
	l.driver = driver
	_, err = driver.Probe(ctx)
	return l, err
}

func (l *lab) close(ctx context.Context) error { return l.driver.Close(ctx) }

func (l *lab) spec(ws *sandbox.Workspace) sandbox.Spec {
	l.next++
	return sandbox.Spec{ID: "b" + strconv.Itoa(l.next), RootFS: l.rootfs, Workspace: ws, Limits: sandbox.DefaultLimits()}
}

// workspace makes one and attaches it, as a pool does ahead of its use.
func (l *lab) workspace(ctx context.Context) (*sandbox.Workspace, func() error, error) {
	l.next++
	id := "w" + strconv.Itoa(l.next)
	ws, err := l.spaces.Create(ctx, id, sandbox.DefaultLimits())
	if err != nil {
		return nil, nil, err
	}
	if err := ws.Attach(ctx); err != nil {
		return nil, nil, errors.Join(err, l.spaces.Remove(id))
	}
	return ws, func() error { return errors.Join(ws.Detach(ctx), l.spaces.Remove(id)) }, nil
}

// firstByte remembers when the first output came.
type firstByte struct{ at time.Time }

func (f *firstByte) Write(p []byte) (int, error) {
	if f.at.IsZero() {
		f.at = time.Now()
	}
	return len(p), nil
}

var echo = []string{"/bin/echo", "hi"}

func sandboxRows(ctx context.Context, l *lab, o options) []result {
	var rows []result
	for _, measure := range []func(context.Context, *lab, options) ([]result, error){
		coldCreate, attachExisting, liveCommand, poolRows,
		func(ctx context.Context, l *lab, _ options) ([]result, error) { return idleMemory(ctx, l, 3) },
		func(ctx context.Context, l *lab, o options) ([]result, error) { return manyLive(ctx, l, o.live) },
		func(ctx context.Context, l *lab, o options) ([]result, error) { return idleDisk(ctx, l, o.idle) },
		func(ctx context.Context, l *lab, o options) ([]result, error) { return leaks(ctx, l, o.cycles) },
	} {
		more, err := measure(ctx, l, o)
		rows = append(rows, more...)
		if err != nil {
			rows = append(rows, failed("a sandbox row", err))
		}
	}
	return rows
}

// coldCreate also measures destroy, which follows each create anyway.
func coldCreate(ctx context.Context, l *lab, o options) ([]result, error) {
	var destroys []time.Duration
	medians, err := interleave(o.rounds,
		candidate{"plain", func() (time.Duration, error) { return firstOutput(ctx, echo[0], echo[1:]...) }},
		candidate{"bubblewrap", func() (time.Duration, error) { return firstOutput(ctx, "bwrap", bubblewrap(echo...)...) }},
		candidate{"airlock", func() (time.Duration, error) { return createOnce(ctx, l, &destroys) }},
	)
	if err != nil {
		return nil, err
	}
	return []result{
		ratioAtMost("create to first output", "ms", medians["airlock"], medians["plain"], 5, "plain fork and exec"),
		ratioAtMost("create to first output", "ms", medians["airlock"], medians["bubblewrap"], 1.15, "bubblewrap, which has no seccomp, limits, quota"),
		atMost("destroy", "ms", median(destroys), 3),
	}, nil
}

// createOnce takes the time from nothing to the first output, with a workspace from the pool, and adds that of destroy.
func createOnce(ctx context.Context, l *lab, destroys *[]time.Duration) (created time.Duration, err error) {
	ws, drop, err := l.workspace(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	start := time.Now()
	sb, err := l.driver.Create(ctx, l.spec(ws))
	if err != nil {
		return 0, err
	}
	var first firstByte
	_, err = sb.Exec(ctx, sandbox.Command{Argv: echo, Stdout: &first})
	ending := time.Now()
	err = errors.Join(err, sb.Destroy(ctx))
	*destroys = append(*destroys, time.Since(ending))
	return first.at.Sub(start), err
}

func attachExisting(ctx context.Context, l *lab, o options) ([]result, error) {
	ws, drop, err := l.workspace(ctx)
	if err != nil {
		return nil, err
	}
	var taken []time.Duration
	for range o.rounds {
		if err := ws.Detach(ctx); err != nil {
			return nil, errors.Join(err, drop())
		}
		again, err := l.spaces.Open(ws.ID)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if err := again.Attach(ctx); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(start))
		ws = again
	}
	return []result{atMost("attach an existing workspace", "ms", median(taken), 12)},
		errors.Join(ws.Detach(ctx), l.spaces.Remove(ws.ID))
}

func liveCommand(ctx context.Context, l *lab, o options) ([]result, error) {
	sb, err := l.driver.Create(ctx, l.spec(nil))
	if err != nil {
		return nil, err
	}
	medians, err := interleave(4*o.rounds,
		candidate{"plain", func() (time.Duration, error) { return wholeCommand(ctx, echo[0], echo[1:]...) }},
		candidate{"airlock", func() (time.Duration, error) {
			var out bytes.Buffer
			start := time.Now()
			_, err := sb.Exec(ctx, sandbox.Command{Argv: echo, Stdout: &out})
			return time.Since(start), err
		}},
		candidate{"first of airlock", func() (time.Duration, error) {
			var first firstByte
			start := time.Now()
			_, err := sb.Exec(ctx, sandbox.Command{Argv: echo, Stdout: &first})
			return first.at.Sub(start), err
		}},
		candidate{"first of plain", func() (time.Duration, error) { return firstOutput(ctx, echo[0], echo[1:]...) }},
	)
	if err := errors.Join(err, sb.Destroy(ctx)); err != nil {
		return nil, err
	}
	return []result{
		ratioAtMost("command in a live container", "ms", medians["airlock"], medians["plain"], 1.3, "plain fork and exec"),
		ratioAtMost("first output in a live container", "ms", medians["first of airlock"], medians["first of plain"], 1.3, "plain fork and exec"),
	}, nil
}

// idleMemory is the proportional share of what a sandbox holds: its guest.
func idleMemory(ctx context.Context, l *lab, budget float64) (rows []result, err error) {
	const many = 20
	var all []*sandbox.Sandbox
	defer func() {
		for _, sb := range all {
			err = errors.Join(err, sb.Destroy(ctx))
		}
	}()
	for range many {
		sb, err := l.driver.Create(ctx, l.spec(nil))
		if err != nil {
			return nil, err
		}
		all = append(all, sb)
		if _, err := sb.Exec(ctx, sandbox.Command{Argv: echo}); err != nil {
			return nil, err
		}
	}
	now, err := attack.TakeSnapshot(l.host.ID, l.dir)
	if err != nil {
		return nil, err
	}
	return []result{atMost("idle sandbox", "MiB", held(now.Processes)/many, budget)}, nil
}

// held is the proportional share of processes, in MiB. Memory that several of them have in common is counted once: the
// kernel counts it in full for each, and gVisor's stubs come in such groups.
func held(processes []string) (total float64) {
	var counted []uintptr
	for _, p := range processes {
		text, _, _ := strings.Cut(p, " ")
		pid, err := strconv.Atoi(text)
		if err != nil || slices.ContainsFunc(counted, func(other uintptr) bool { return sameMemory(uintptr(pid), other) }) {
			continue
		}
		counted = append(counted, uintptr(pid))
		total += pss("/proc/" + text + "/smaps_rollup")
	}
	return total
}

// sameMemory tells whether two processes are one address space. A kernel that cannot tell counts too much.
func sameMemory(a, b uintptr) bool {
	const vm = 1 // KCMP_VM
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, a, b, vm, 0, 0, 0)
	return errno == 0 && order == 0
}

// pss is in MiB; a process that has gone has none.
func pss(path string) float64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return 0
			}
			return kib / 1024
		}
	}
	return 0
}

// manyLive makes many containers and has all of them run bash at once.
func manyLive(ctx context.Context, l *lab, live int) (rows []result, err error) {
	all := make([]*sandbox.Sandbox, 0, live)
	defer func() {
		for _, sb := range all {
			err = errors.Join(err, sb.Destroy(ctx))
		}
	}()
	start := time.Now()
	for range live {
		sb, err := l.driver.Create(ctx, l.spec(nil))
		if err != nil {
			return []result{{Metric: "live containers at once", Driver: driverName, Value: float64(len(all)), Unit: "containers", Budget: fmt.Sprint(live), Note: err.Error()}}, nil
		}
		all = append(all, sb)
	}
	created := time.Since(start)
	var failures int
	var mu sync.Mutex
	var group sync.WaitGroup
	start = time.Now()
	for n, sb := range all {
		group.Go(func() {
			var out bytes.Buffer
			res, err := sb.Exec(ctx, sandbox.Command{Shell: "sleep 1; echo " + strconv.Itoa(n), Stdout: &out})
			if err != nil || res.Code != 0 || out.String() != strconv.Itoa(n)+"\n" {
				mu.Lock()
				failures++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	good := len(all) - failures
	return []result{{
		Metric: "live containers at once, each running bash", Driver: driverName, Value: float64(good), Unit: "containers",
		Budget: fmt.Sprintf("%d, none failing", live), OK: good == live,
		Note: fmt.Sprintf("made in %s, all answered in %s", created.Round(time.Millisecond), time.Since(start).Round(time.Millisecond)),
	}}, nil
}

// leaks makes and destroys sandboxes and counts what is left.
func leaks(ctx context.Context, l *lab, cycles int) ([]result, error) {
	once := func() error {
		sb, err := l.driver.Create(ctx, l.spec(nil))
		if err != nil {
			return err
		}
		_, err = sb.Exec(ctx, sandbox.Command{Argv: echo})
		return errors.Join(err, sb.Destroy(ctx))
	}
	if err := once(); err != nil {
		return nil, err
	}
	before, err := attack.TakeSnapshot(l.host.ID, l.dir)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for n := range cycles {
		if err := once(); err != nil {
			return nil, fmt.Errorf("cycle %d: %w", n, err)
		}
	}
	took := time.Since(start)
	row := result{
		Metric: "create, echo and destroy without a trace", Driver: driverName, Value: float64(cycles), Unit: "cycles", Budget: "nothing left", OK: true,
		Note: fmt.Sprintf("%.0f a second", float64(cycles)/took.Seconds()),
	}
	if err := attack.WaitClean(ctx, l.host.ID, l.dir, before); err != nil {
		row.OK, row.Note = false, err.Error()
	}
	return []result{row}, nil
}
