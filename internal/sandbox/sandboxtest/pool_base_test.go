package sandboxtest

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// record is a log of several goroutines.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

// has looks for a line with all of these words.
func (r *record) has(words ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
lines:
	for line := range strings.Lines(r.buf.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		return true
	}
	return false
}

// basePool is a pool of one with a base in dir.
func basePool(t *testing.T, e *Env, dir string, class sandbox.Class) (*sandbox.Pool, *record) {
	t.Helper()
	log := &record{}
	return startPool(t, e, func(p *sandbox.Pool) {
		p.Size, p.Default = 1, func() (sandbox.Class, error) { return class, nil }
		p.Bases = &sandbox.Snapshots{Dir: dir, Max: 2 << 30}
		p.Log = slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}), log
}

func bases(t *testing.T, p *sandbox.Pool) []string {
	t.Helper()
	ids, err := p.Bases.List()
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func baseReady(t *testing.T, p *sandbox.Pool) {
	t.Helper()
	until(t, "a base", func() bool { return len(bases(t, p)) == 1 })
}

// Members that are continued are what others are: warm, blank, in our time. Each has a base of its own, so that no two
// interpreters draw, hash or lie alike.
func TestMembersMadeOfABaseAreBlankAndShareNoRandomness(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		class := poolClass(e)
		class.RootFS = richest(t, e)
		class.Preload = append([]string{"numpy", "numpy.random"}, preload...)
		p, log := basePool(t, e, t.TempDir(), class)
		if !e.Capabilities.Snapshot {
			full(t, p)
			if ids := bases(t, p); len(ids) > 0 {
				t.Errorf("bases %v", ids)
			}
			return
		}
		seen := map[string]string{}
		for _, name := range []string{"cold", "first", "second"} {
			baseReady(t, p)
			b, m := claim(t, e, p)
			if !log.has("pool member ready", m.Sandbox.ID(), map[bool]string{true: "continued=false", false: "continued=true"}[name == "cold"]) {
				t.Errorf("the %s member was made otherwise", name)
			}
			wantOutput(t, sh(t, b, "find /workspace /tmp /files -mindepth 1 | sort; hostname; pwd; touch used"), "/files/input\n/files/output\nairlock\n/workspace\n")
			for _, code := range []string{drawing, "print('hash', hash('airlock'))", "print(next(l for l in open('/proc/self/maps') if 'libc.so' in l))"} {
				_, out := cell(t, b, code)
				if out.Stderr != "" || out.Stdout == "" {
					t.Fatalf("%s: %v", name, out)
				}
				for line := range strings.Lines(out.Stdout) {
					if other, ok := seen[line]; ok && strings.TrimSpace(line) != "" {
						t.Errorf("%s and %s have both %q", other, name, line)
					}
					seen[line] = name
				}
			}
		}
	})
}

// A base outlives the pool that made it. One that cannot be continued costs nothing but the time it would have saved, and
// one of another class goes.
func TestBaseIsForTheNextPoolOfItsClass(t *testing.T) {
	needDriver(t, "gvisor")
	e := open(t, factory("gvisor"))
	dir := t.TempDir()
	p, _ := basePool(t, e, dir, poolClass(e))
	baseReady(t, p)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids := bases(t, p)
	p, log := basePool(t, e, dir, poolClass(e))
	full(t, p)
	if !log.has("pool member ready", "continued=true") {
		t.Error("the member of the next pool was made anew")
	}
	baseReady(t, p)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(p.Bases.Dir, ids[0], "image", "pages.img"), 1); err != nil {
		t.Fatal(err)
	}
	p, log = basePool(t, e, dir, poolClass(e))
	full(t, p)
	if !log.has("not continued") || !log.has("pool member ready", "continued=false") {
		t.Error("a broken base was continued")
	}
	baseReady(t, p)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := poolClass(e)
	other.Preload = preload[:1]
	p, log = basePool(t, e, dir, other)
	full(t, p)
	if !log.has("pool member ready", "continued=false") {
		t.Error("a base of another class was continued")
	}
	until(t, "the end of the base of a class that nobody wants", func() bool { return !slices.Contains(bases(t, p), ids[0]) })
}
