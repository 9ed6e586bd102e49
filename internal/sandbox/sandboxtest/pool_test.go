package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

// preload is in every root file system with Python, and no cold interpreter has imported it.
var preload = []string{"uuid", "random", "tempfile", "multiprocessing.process"}

func poolClass(e *Env) sandbox.Class {
	limits := e.NewSpec(nil).Limits
	limits.MemoryBytes = sandbox.ForkServerMemory
	return sandbox.Class{RootFS: e.RootFS, Limits: limits, Preload: preload}
}

// startPool fills a pool that ends, and leaves nothing, before the driver closes.
func startPool(t *testing.T, e *Env, change func(*sandbox.Pool)) *sandbox.Pool {
	t.Helper()
	class := poolClass(e)
	p := &sandbox.Pool{
		Driver: e.Driver, Workspaces: e.Workspaces, Size: 2, Every: 5 * time.Millisecond, Pause: time.Millisecond,
		Default: func() (sandbox.Class, error) { return class, nil }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(p)
	}
	before, err := e.Leftovers()
	if err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := e.CheckLeaks(ctx, before); err != nil {
			t.Error(err)
		}
	})
	return p
}

// until waits for a state that another goroutine brings about.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func full(t *testing.T, p *sandbox.Pool) {
	t.Helper()
	until(t, "a full pool", func() bool { return p.Ready() == p.Size })
}

// claim takes a member as a box that is discarded with the test.
func claim(t *testing.T, e *Env, p *sandbox.Pool) (*Box, *sandbox.Member) {
	t.Helper()
	full(t, p)
	class, err := p.Default()
	if err != nil {
		t.Fatal(err)
	}
	m := p.Claim(t.Context(), class)
	if m == nil {
		t.Fatal("nothing was ready")
	}
	t.Cleanup(m.Discard)
	return &Box{Sandbox: m.Sandbox, Spec: e.NewSpec(nil)}, m
}

func TestPoolMembersAreWarmBlankAndUsedOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		p := startPool(t, e, nil)
		seen := map[string]bool{}
		for range 3 {
			b, m := claim(t, e, p)
			if seen[m.Sandbox.ID()] || seen[m.Workspace.ID] || !strings.HasPrefix(m.Workspace.ID, sandbox.PoolPrefix) {
				t.Errorf("member %s, workspace %s", m.Sandbox.ID(), m.Workspace.ID)
			}
			seen[m.Sandbox.ID()], seen[m.Workspace.ID] = true, true
			wantOutput(t, sh(t, b, "find /workspace /tmp /files -mindepth 1 | sort; hostname; pwd; touch used"), "/files/input\n/files/output\nairlock\n/workspace\n")
			_, out := cell(t, b, "import sys; print('uuid' in sys.modules)")
			wantOutput(t, out, "True\n")
		}
	})
}

func TestPoolClaimNeedsTheSameClass(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		p := startPool(t, e, nil)
		full(t, p)
		other := poolClass(e)
		other.Limits.CPUs = 0.5
		if m := p.Claim(t.Context(), other); m != nil {
			m.Discard()
			t.Error("a member with other limits was given")
		}
		// It was asked for, so it is kept from now on.
		until(t, "members of both classes", func() bool { return p.Ready() == 4 })
		m := p.Claim(t.Context(), other)
		if m == nil {
			t.Fatal("nothing of the class that was asked for")
		}
		defer m.Discard()
		if got := m.Sandbox.Limits().CPUs; got != 0.5 {
			t.Errorf("the limit is %g", got)
		}
	})
}

func TestPoolFollowsItsSettings(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		var mu sync.Mutex
		class, held := poolClass(e), 0
		class.Hold = func() (func(), error) {
			mu.Lock()
			defer mu.Unlock()
			held++
			return func() {
				mu.Lock()
				defer mu.Unlock()
				held--
			}, nil
		}
		current := func() (sandbox.Class, error) {
			mu.Lock()
			defer mu.Unlock()
			return class, nil
		}
		p := startPool(t, e, func(p *sandbox.Pool) { p.Default = current })
		full(t, p)
		old, _ := current()
		if m := p.Claim(t.Context(), old); m == nil {
			t.Error("nothing was ready")
		} else {
			m.Discard()
		}
		mu.Lock()
		class.Limits.Processes++
		mu.Unlock()
		until(t, "members with the new limit", func() bool {
			c, _ := current()
			m := p.Claim(t.Context(), c)
			if m != nil {
				m.Discard()
			}
			return m != nil
		})
		full(t, p)
		if m := p.Claim(t.Context(), old); m != nil {
			m.Discard()
			t.Error("a member with the old limit was given")
		}
		p.Drain()
		until(t, "no hold on the image", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return held == 0
		})
	})
}

// living claims until a member is given.
func living(t *testing.T, p *sandbox.Pool, c sandbox.Class) (m *sandbox.Member) {
	t.Helper()
	until(t, "a member", func() bool {
		m = p.Claim(t.Context(), c)
		return m != nil
	})
	t.Cleanup(m.Discard)
	return m
}

// The pool may have made a new member by the time that this claims; what must not be given is one of those that were killed.
func TestPoolReplacesTheDead(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		p := startPool(t, e, nil)
		full(t, p)
		now, err := e.Leftovers()
		if err != nil {
			t.Fatal(err)
		}
		killed := map[string]bool{}
		for _, group := range now.Cgroups {
			if _, id, ok := strings.Cut(filepath.Base(group), sandbox.PoolPrefix); ok {
				killed[sandbox.PoolPrefix+id] = true
			}
		}
		if len(killed) != p.Size {
			t.Fatalf("a full pool is %v", killed)
		}
		for _, line := range now.Processes {
			pid, _, _ := strings.Cut(line, " ")
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(n, syscall.SIGKILL) // it may have gone with its guest
		}
		m := living(t, p, poolClass(e))
		if killed[m.Sandbox.ID()] {
			t.Errorf("the dead member %s was given", m.Sandbox.ID())
		}
		wantOutput(t, sh(t, &Box{Sandbox: m.Sandbox, Spec: e.NewSpec(nil)}, "echo new"), "new\n")
	})
}

func TestPoolEndsOldMembers(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		made := countingDriver{Driver: e.Driver}
		startPool(t, e, func(p *sandbox.Pool) { p.MaxAge, p.Size, p.Driver = time.Millisecond, 1, &made })
		until(t, "the third in turn", func() bool { return made.n.Load() >= 3 })
	})
}

type countingDriver struct {
	sandbox.Driver
	n    atomic.Int64
	last atomic.Pointer[sandbox.Sandbox]
}

func (d *countingDriver) Create(ctx context.Context, s sandbox.Spec) (*sandbox.Sandbox, error) {
	d.n.Add(1)
	sb, err := d.Driver.Create(ctx, s)
	d.last.Store(sb)
	return sb, err
}

func TestPoolGivesItsMemoryBackWhenItIsScarce(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		var tight atomic.Bool
		before, err := e.Leftovers()
		if err != nil {
			t.Fatal(err)
		}
		p := startPool(t, e, func(p *sandbox.Pool) {
			p.Admit = func(context.Context) error {
				if tight.Load() {
					return fmt.Errorf("no memory: %w", sandbox.ErrScarce)
				}
				return nil
			}
		})
		full(t, p)
		tight.Store(true)
		// Full pools ask nobody, so somebody who is refused drains them, as here the next fill does.
		m := p.Claim(t.Context(), poolClass(e))
		if m == nil {
			t.Fatal("nothing was ready")
		}
		m.Discard()
		until(t, "an empty pool", func() bool {
			now, err := e.Leftovers()
			return err == nil && p.Ready() == 0 && len(now.Cgroups) == len(before.Cgroups)
		})
	})
}

// With room for one and not for two the one stays: it would be made again, and ended again.
func TestPoolKeepsWhatItHasWhenNoMoreIsAdmitted(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		var refused atomic.Bool
		var after atomic.Int64 // passes since
		class := poolClass(e)
		made := countingDriver{Driver: e.Driver}
		p := startPool(t, e, func(p *sandbox.Pool) {
			p.Driver = &made
			p.Default = func() (sandbox.Class, error) {
				if refused.Load() {
					after.Add(1)
				}
				return class, nil
			}
			p.Admit = func(context.Context) error {
				if made.n.Load() == 0 {
					return nil
				}
				refused.Store(true)
				return errors.New("no memory for another one")
			}
		})
		until(t, "the second to be refused", func() bool { return after.Load() >= 2 })
		m := p.Claim(t.Context(), class)
		if m == nil {
			t.Fatal("the first was ended")
		}
		m.Discard()
	})
}

// A claim that nobody waits for any more, or that a busy machine answers late, costs no sandbox. One that is late again and
// again does.
func TestPoolKeepsAMemberThatWasNotHeardOut(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		made := countingDriver{Driver: e.Driver}
		p := startPool(t, e, func(p *sandbox.Pool) { p.Size, p.Driver = 1, &made })
		full(t, p)
		first := made.last.Load()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			if m := p.Claim(gone, poolClass(e)); m != nil || p.Ready() != 1 {
				t.Fatalf("somebody who has gone got %v, %d are left", m, p.Ready())
			}
		}
		if err := first.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m := p.Claim(t.Context(), poolClass(e)); m != nil || p.Ready() != 1 {
			t.Fatalf("one that does not answer was given (%v), %d are left", m, p.Ready())
		}
		if m := p.Claim(t.Context(), poolClass(e)); m != nil {
			t.Fatalf("one that does not answer was given: %v", m)
		}
		_, m := claim(t, e, p)
		if m.Sandbox.ID() == first.ID() {
			t.Error("one that does not answer stays for ever")
		}
	})
}

func TestPoolOfNoneAndStoppedPoolGiveNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		none := startPool(t, e, func(p *sandbox.Pool) { p.Size = 0 })
		if m := none.Claim(t.Context(), poolClass(e)); m != nil || none.Ready() != 0 {
			t.Error("a pool of none gave a member")
		}
		var missing *sandbox.Pool
		if m := missing.Claim(t.Context(), poolClass(e)); m != nil {
			t.Error("no pool gave a member")
		}
		p := startPool(t, e, nil)
		full(t, p)
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m := p.Claim(t.Context(), poolClass(e)); m != nil || p.Ready() != 0 {
			t.Error("a stopped pool gave a member")
		}
	})
}

func TestPoolGoesOnAfterFailures(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		var healed atomic.Bool
		broken, good := poolClass(e), poolClass(e)
		broken.RootFS = t.TempDir() // no mount points: nothing can be made of it
		tried := countingDriver{Driver: e.Driver}
		p := startPool(t, e, func(p *sandbox.Pool) {
			p.Driver, p.Calm = &tried, time.Millisecond
			p.Default = func() (sandbox.Class, error) {
				if healed.Load() {
					return good, nil
				}
				return broken, nil
			}
		})
		until(t, "a second try", func() bool { return tried.n.Load() >= 2 })
		if m := p.Claim(t.Context(), broken); m != nil || p.Ready() != 0 {
			t.Error("a member of nothing")
		}
		healed.Store(true)
		m := living(t, p, good)
		wantOutput(t, sh(t, &Box{Sandbox: m.Sandbox, Spec: e.NewSpec(nil)}, "echo on"), "on\n")
	})
}

func TestRenamedWorkspaceIsTheSameUnderAnotherName(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		b := start(t, e)
		old := b.Spec.Workspace.ID
		sh(t, b, "echo kept > f")
		if err := e.Workspaces.Rename(b.Spec.Workspace, "renamed"); err != nil {
			t.Fatal(err)
		}
		if e.Workspaces.Exists(old) || !e.Workspaces.Exists("renamed") {
			t.Error("the image has not moved")
		}
		if err := e.Workspaces.Remove("renamed"); !errors.Is(err, sandbox.ErrLocked) {
			t.Errorf("an image in use was removed: %v", err)
		}
		taken, err := e.Workspaces.Create(t.Context(), "taken", b.Spec.Limits)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Workspaces.Rename(b.Spec.Workspace, taken.ID); !errors.Is(err, os.ErrExist) {
			t.Errorf("another image was replaced: %v", err)
		}
		if err := e.Workspaces.Rename(taken, "loose"); err == nil {
			t.Error("an image without a lock was renamed")
		}
		if err := e.Workspaces.Rename(b.Spec.Workspace, "../out"); err == nil {
			t.Error("an image was moved out of its folder")
		}
		if err := errors.Join(b.Destroy(t.Context()), b.Spec.Workspace.Detach(t.Context()), e.Workspaces.Remove(taken.ID)); err != nil {
			t.Fatal(err)
		}
		again, err := e.Workspaces.Open("renamed")
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Attach(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Spec.Workspace = again
		next, err := e.Restart(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		wantOutput(t, sh(t, next, "cat f"), "kept\n")
	})
}

// Fails if Claim does not ask a member for its time, or if a claimed or discarded member keeps a descriptor.
func TestCase77ClockIsCheckedAtCheckoutAndDescriptorsStayConstant(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		var ahead atomic.Int64
		p := startPool(t, e, func(p *sandbox.Pool) {
			p.Now, p.Size = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, 1
		})
		class := poolClass(e)
		for _, drift := range []time.Duration{time.Hour, -time.Hour} {
			full(t, p)
			ahead.Store(int64(drift))
			if m := p.Claim(t.Context(), class); m != nil {
				m.Discard()
				t.Errorf("a member whose clock is off by %s was given", drift)
			}
			ahead.Store(0)
		}
		use := func() {
			_, m := claim(t, e, p)
			if _, err := m.Sandbox.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil {
				t.Error(err)
			}
			m.Discard()
		}
		settled := func() attack.Snapshot {
			full(t, p)
			now, err := e.Leftovers()
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		use()
		before := len(settled().Descriptors)
		for range 5 {
			use()
		}
		until(t, "as many descriptors as before", func() bool { return len(settled().Descriptors) <= before })
	})
}

// richest is the image with the most in it: numpy, if any has it.
func richest(t *testing.T, e *Env) string {
	t.Helper()
	best, size := e.RootFS, int64(0)
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = os.Getenv("HOME") + "/.local/share"
	}
	images, err := (&rootfs.Store{Dir: data + "/airlock/rootfs"}).List()
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		if image.Size > size {
			best, size = image.Path, image.Size
		}
	}
	return best
}

// drawing prints what must differ between any two interpreters, one a line.
const drawing = `
import os, random, secrets, tempfile, uuid
print('random', random.random())
print('urandom', os.urandom(8).hex())
print('secrets', secrets.token_hex(8))
print('uuid4', uuid.uuid4())
one = uuid.uuid1()
print('uuid1', one)
print('node', uuid.getnode())
print('clock_seq', one.clock_seq, one.time)
print('tempfile', next(tempfile._get_candidate_names()), tempfile.mkdtemp())
try:
    import numpy
except ImportError:
    pass
else:
    print('numpy', numpy.random.random())
    print('numpy state', numpy.random.get_state()[1].tobytes().hex()[:64])
    print('default_rng', numpy.random.default_rng().random(), numpy.random.SeedSequence().entropy)
from multiprocessing import process
print('authkey', bytes(process.current_process().authkey).hex())
`

// TestTwoContainersNeverShareRandomState: members of a pool, several interpreters of one, and containers made without it.
func TestTwoContainersNeverShareRandomState(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		root := richest(t, e)
		class := poolClass(e)
		class.RootFS = root
		class.Preload = append([]string{"numpy", "numpy.random"}, preload...)
		cold := start(t, e, func(s *sandbox.Spec) { s.RootFS, s.Limits = root, class.Limits })
		p := startPool(t, e, func(p *sandbox.Pool) {
			p.Default = func() (sandbox.Class, error) { return class, nil }
		})
		one, _ := claim(t, e, p)
		two, _ := claim(t, e, p)
		seen, hashes := map[string]string{}, map[string]string{}
		for name, b := range map[string]*Box{"one": one, "two": two, "cold": cold} {
			for _, fresh := range []bool{true, true, false} {
				_, out, err := b.Cell(t.Context(), sandbox.Cell{Code: drawing, Fresh: fresh, Timeout: time.Minute})
				if err != nil || out.Stderr != "" || strings.Count(out.Stdout, "\n") < 9 {
					t.Fatalf("%s: %v, %v", name, err, out)
				}
				for line := range strings.Lines(out.Stdout) {
					if other, ok := seen[line]; ok {
						t.Errorf("%s and %s both drew %q", other, name, line)
					}
					seen[line] = name
				}
			}
			_, out := cell(t, b, "hash('airlock')")
			if other, ok := hashes[out.Stdout]; ok {
				t.Errorf("%s and %s hash alike", other, name)
			}
			hashes[out.Stdout] = name
		}
		if err := cold.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
