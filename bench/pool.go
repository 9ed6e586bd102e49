package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

// poolBudgets differ per driver.
type poolBudgets struct {
	claim     float64 // of its baseline, plain fork and exec on native, the driver's own cold create elsewhere
	cell, mib float64
}

var poolBudgetsOf = map[string]poolBudgets{"native": {3, 0.05, 80}, "gvisor": {0.15, 0.12, 110}}

// poolRows measure what members of the pool are for. They need an image with pandas: the largest is taken.
func poolRows(ctx context.Context, l *lab, o options) ([]result, error) {
	root, err := largestRootFS(l.rootfs)
	if err != nil {
		return nil, err
	}
	class := sandbox.Class{RootFS: root, Limits: sandbox.DefaultLimits(), Preload: sandbox.DefaultPreload()}
	var rows []result
	for _, measure := range []func() ([]result, error){
		func() ([]result, error) { return poolClaim(ctx, l, o, class) },
		func() ([]result, error) { return firstCell(ctx, l, o, class) },
		func() ([]result, error) { return forkServerMemory(ctx, l, class) },
		func() ([]result, error) { return memberOfABase(ctx, l, o, class) },
	} {
		more, err := measure()
		rows = append(rows, more...)
		if err != nil {
			rows = append(rows, failed("a pool row", err))
		}
	}
	for n := range rows {
		rows[n].Driver = l.name
	}
	return rows, nil
}

func largestRootFS(otherwise string) (string, error) {
	store := &rootfs.Store{Dir: filepath.Dir(filepath.Dir(otherwise))}
	images, err := store.List()
	if err != nil {
		return "", err
	}
	best, size := otherwise, int64(0)
	for _, image := range images {
		if image.Size > size {
			best, size = image.Path, image.Size
		}
	}
	if found, _ := filepath.Glob(filepath.Join(best, "usr/lib/python3/dist-packages/pandas")); len(found) == 0 {
		return "", fmt.Errorf("no root file system in %s has pandas, run: airlock rootfs build", store.Dir)
	}
	return best, nil
}

// reserve is a pool whose members are waited for outside the time that counts.
type reserve struct {
	*sandbox.Pool
	class sandbox.Class
}

func openReserve(ctx context.Context, l *lab, size int, class sandbox.Class) reserve {
	return openReserveWith(ctx, l, size, class, nil)
}

func openReserveWith(ctx context.Context, l *lab, size int, class sandbox.Class, bases *sandbox.Snapshots) reserve {
	p := &sandbox.Pool{
		Driver: l.driver, Workspaces: l.spaces, Size: size, Every: 10 * time.Millisecond, Bases: bases,
		Default: func() (sandbox.Class, error) { return class, nil },
	}
	p.Start(ctx)
	return reserve{p, class}
}

func (r reserve) close(ctx context.Context) error { return r.Stop(context.WithoutCancel(ctx)) }

func (r reserve) fill(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r.Ready() < r.Size {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

var errNotReady = errors.New("the pool was full and gave nothing")

// use measures from the claim to the first output of what run starts.
func (r reserve) use(ctx context.Context, run func(*sandbox.Sandbox, *firstByte) error) (time.Duration, error) {
	if err := r.fill(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	m := r.Claim(ctx, r.class)
	if m == nil {
		return 0, errNotReady
	}
	defer m.Discard()
	var first firstByte
	err := run(m.Sandbox, &first)
	return first.at.Sub(start), err
}

func poolClaim(ctx context.Context, l *lab, o options, class sandbox.Class) ([]result, error) {
	r := openReserve(ctx, l, 1, class)
	var destroys []time.Duration
	medians, err := interleave(o.rounds/2,
		candidate{"plain", func() (time.Duration, error) { return firstOutput(ctx, echo[0], echo[1:]...) }},
		candidate{"cold", func() (time.Duration, error) { return createOnce(ctx, l, &destroys) }},
		candidate{"pool", func() (time.Duration, error) {
			return r.use(ctx, func(sb *sandbox.Sandbox, first *firstByte) error {
				_, err := sb.Exec(ctx, sandbox.Command{Argv: echo, Stdout: first})
				return err
			})
		}},
	)
	if err := errors.Join(err, r.close(ctx)); err != nil {
		return nil, err
	}
	baseline, note := "plain", "plain fork and exec"
	if l.name != "native" {
		baseline, note = "cold", "its own cold create"
	}
	return []result{ratioAtMost("claim from the pool to first output", "ms", medians["pool"], medians[baseline], poolBudgetsOf[l.name].claim, note)}, nil
}

const pandasCell = "import pandas\nprint(pandas.DataFrame({'a': [1]}).shape)"

// firstCell compares with an interpreter that has to import, in a sandbox that waits for it.
func firstCell(ctx context.Context, l *lab, o options, class sandbox.Class) ([]result, error) {
	spec := l.spec(nil)
	spec.RootFS = class.RootFS
	cold, err := l.driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	r := openReserve(ctx, l, 1, class)
	medians, err := interleave(o.rounds/2,
		candidate{"cold", func() (time.Duration, error) {
			start := time.Now()
			var first firstByte
			_, err := cold.Cell(ctx, sandbox.Cell{Code: pandasCell, Fresh: true, Stdout: &first})
			return first.at.Sub(start), err
		}},
		candidate{"pool", func() (time.Duration, error) {
			return r.use(ctx, func(sb *sandbox.Sandbox, first *firstByte) error {
				_, err := sb.Cell(ctx, sandbox.Cell{Code: pandasCell, Stdout: first})
				return err
			})
		}},
	)
	if err := errors.Join(err, r.close(ctx), cold.Destroy(ctx)); err != nil {
		return nil, err
	}
	return []result{ratioAtMost("first cell with pandas, from claim to first output", "ms", medians["pool"], medians["cold"], poolBudgetsOf[l.name].cell,
		"a cell that starts Python and imports, in a running sandbox")}, nil
}

// forkServerMemory is the proportional share of a member: its guest and its fork server.
func forkServerMemory(ctx context.Context, l *lab, class sandbox.Class) ([]result, error) {
	const many = 16
	r := openReserve(ctx, l, many, class)
	err := r.fill(ctx)
	var total float64
	if err == nil {
		var now attack.Snapshot
		now, err = attack.TakeSnapshot(l.host.ID, l.dir)
		total = held(now.Processes)
	}
	if err := errors.Join(err, r.close(ctx)); err != nil {
		return nil, err
	}
	row := atMost("idle sandbox with fork server", "MiB", total/many, poolBudgetsOf[l.name].mib)
	row.Note = fmt.Sprintf("%d at once, imports %s", many, strings.Join(class.Preload, " "))
	return []result{row}, nil
}

// memberOfABase compares what the pool pays for a member that it continues from a base with one that it makes cold: the time
// until it is ready, and the processor time of its sandbox. There is no budget; the ratio is why there are bases.
func memberOfABase(ctx context.Context, l *lab, o options, class sandbox.Class) ([]result, error) {
	if _, ok := l.driver.(sandbox.Restorer); !ok {
		return nil, nil
	}
	bases := &sandbox.Snapshots{Dir: filepath.Join(l.dir, "bases"), Max: 8 << 30}
	cpu := map[string][]time.Duration{}
	once := func(name string, bases *sandbox.Snapshots) (time.Duration, error) {
		start := time.Now()
		r := openReserveWith(ctx, l, 1, class, bases)
		err := r.fill(ctx)
		took := time.Since(start)
		if err == nil {
			var used time.Duration
			used, err = r.cpu(ctx)
			cpu[name] = append(cpu[name], used)
		}
		return took, errors.Join(err, r.close(ctx))
	}
	medians, err := interleave(max(1, o.rounds/15),
		candidate{"cold", func() (time.Duration, error) { return once("cold", nil) }},
		candidate{"base", func() (time.Duration, error) {
			if err := writeBase(ctx, l, class, bases); err != nil {
				return 0, err
			}
			return once("base", bases)
		}},
	)
	if err != nil {
		return nil, err
	}
	const note = "one made cold: create, imports, first command"
	wall := ratioAtMost("pool member continued from a base", "ms", medians["base"], medians["cold"], 1, note)
	work := ratioAtMost("the same, processor time", "ms", median(cpu["base"][1:]), median(cpu["cold"][1:]), 1, note)
	return []result{wall, work}, nil
}

// writeBase runs a pool until it has written a base.
func writeBase(ctx context.Context, l *lab, class sandbox.Class, bases *sandbox.Snapshots) error {
	r := openReserveWith(ctx, l, 1, class, bases)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ids, err := bases.List()
		if err == nil && len(ids) == 1 { // it has its name, and a moment later its seal
			if _, unsealed := os.Stat(filepath.Join(bases.Dir, ids[0], "workspace")); unsealed == nil {
				return r.close(ctx)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return errors.Join(err, r.close(ctx))
		}
	}
}

// cpu is what the sandbox of a ready member has used so far.
func (r reserve) cpu(ctx context.Context) (time.Duration, error) {
	m := r.Claim(ctx, r.class)
	if m == nil {
		return 0, errNotReady
	}
	defer m.Discard()
	used, err := m.Sandbox.Usage(ctx)
	return time.Duration(used.CPU) * time.Microsecond, err
}
