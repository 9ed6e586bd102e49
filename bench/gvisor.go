package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// bareRunsc is gVisor as its users start it: the same program and root file system, no walls, limits or disk of ours.
type bareRunsc struct {
	path, dir string
	next      int
}

func newBareRunsc(path, dir, rootfs string) (*bareRunsc, error) {
	r := &bareRunsc{path: path, dir: dir}
	for name, args := range map[string][]string{"echo": echo, "sleep": {"/bin/sleep", "1000"}} {
		bundle := map[string]any{
			"ociVersion": "1.0.0", "hostname": "bare", "root": map[string]any{"path": rootfs, "readonly": true},
			"process": map[string]any{"user": map[string]int{"uid": 0, "gid": 0}, "args": args, "env": []string{"PATH=/bin"}, "cwd": "/"},
			"mounts": []map[string]string{
				{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			},
			"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
		}
		text, err := json.Marshal(bundle)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.json"), text, 0o600); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *bareRunsc) args(more ...string) []string {
	return append([]string{
		"--root=" + filepath.Join(r.dir, "state"), "--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=none",
	}, more...)
}

func (r *bareRunsc) run(ctx context.Context) (time.Duration, error) {
	r.next++
	return firstOutput(ctx, r.path, r.args("run", "--bundle="+filepath.Join(r.dir, "echo"), "bare"+strconv.Itoa(r.next))...)
}

// hold keeps a container alive until the result is called.
func (r *bareRunsc) hold(ctx context.Context) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, r.path, r.args("run", "--detach", "--bundle="+filepath.Join(r.dir, "sleep"), "held")...)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("runsc run --detach: %w", err)
	}
	return func() error {
		return exec.CommandContext(context.WithoutCancel(ctx), r.path, r.args("delete", "--force", "held")...).Run()
	}, nil
}

func (r *bareRunsc) close() error {
	// runsc leaves a network namespace mounted there.
	if err := unix.Unmount(filepath.Join(r.dir, "state", "null-netns"), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return os.RemoveAll(r.dir)
}

// gvisorRows are the rows of the sandbox part that the gvisor driver has budgets for.
func gvisorRows(ctx context.Context, l *lab, o options) (rows []result) {
	bare, err := newBareRunsc(o.runsc, filepath.Join(l.dir, "bare"), l.rootfs)
	if err != nil {
		return []result{failed("gvisor rows", err)}
	}
	measures := []func() ([]result, error){
		func() ([]result, error) { return gvisorCreate(ctx, l, o, bare) },
		func() ([]result, error) { return gvisorCommand(ctx, l, o, bare) },
		func() ([]result, error) { return poolRows(ctx, l, o) },
		func() ([]result, error) { return idleMemory(ctx, l, 18) },
		func() ([]result, error) { return manyLive(ctx, l, o.gvisorLive) },
		func() ([]result, error) { return leaks(ctx, l, max(1, o.cycles/20)) },
	}
	for _, measure := range measures {
		more, err := measure()
		rows = append(rows, more...)
		if err != nil {
			rows = append(rows, failed("a gvisor row", err))
		}
	}
	if err := bare.close(); err != nil {
		rows = append(rows, failed("clean-up of bare runsc", err))
	}
	for n := range rows {
		rows[n].Driver = l.name
	}
	return rows
}

func gvisorCreate(ctx context.Context, l *lab, o options, bare *bareRunsc) ([]result, error) {
	var destroys []time.Duration
	medians, err := interleave(o.rounds,
		candidate{"runsc", func() (time.Duration, error) { return bare.run(ctx) }},
		candidate{"airlock", func() (time.Duration, error) { return createOnce(ctx, l, &destroys) }},
	)
	if err != nil {
		return nil, err
	}
	return []result{
		ratioAtMost("create to first output", "ms", medians["airlock"], medians["runsc"], 1, "runsc run of the same root, without walls, limits or disk of ours"),
		atMost("destroy", "ms", median(destroys), 25),
	}, nil
}

func gvisorCommand(ctx context.Context, l *lab, o options, bare *bareRunsc) (rows []result, err error) {
	end, err := bare.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	sb, err := l.driver.Create(ctx, l.spec(nil))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Destroy(ctx)) }()
	medians, err := interleave(o.rounds,
		candidate{"plain", func() (time.Duration, error) { return wholeCommand(ctx, echo[0], echo[1:]...) }},
		candidate{"runsc", func() (time.Duration, error) {
			return wholeCommand(ctx, bare.path, bare.args(append([]string{"exec", "held"}, echo...)...)...)
		}},
		candidate{"airlock", func() (time.Duration, error) {
			var out bytes.Buffer
			start := time.Now()
			_, err := sb.Exec(ctx, sandbox.Command{Argv: echo, Stdout: &out})
			return time.Since(start), err
		}},
	)
	if err != nil {
		return nil, err
	}
	return []result{
		ratioAtMost("command in a live container", "ms", medians["airlock"], medians["plain"], 7, "plain fork and exec"),
		ratioAtMost("command in a live container", "ms", medians["airlock"], medians["runsc"], 0.6, "runsc exec"),
	}, nil
}
