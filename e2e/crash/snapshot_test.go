package crash

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exists tells whether there is a file by this pattern.
func exists(t *testing.T, pattern ...string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}

// await looks often: what it waits for does not last.
func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
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

// cell has the scripted model run one Python cell.
func (s *server) cell(ctx context.Context, container, code string) (stdout, stderr string) {
	s.t.Helper()
	turn, err := s.Ask(ctx, container, "```cell\n"+code+"\n```")
	if err != nil || len(turn.Results) != 1 {
		s.t.Fatalf("cell %q: %d results, %v", code, len(turn.Results), err)
	}
	var block struct {
		Content struct {
			Stdout string `json:"stdout"`
			Stderr string `json:"stderr"`
		} `json:"content"`
	}
	if err := json.Unmarshal(turn.Results[0], &block); err != nil {
		s.t.Fatal(err)
	}
	return block.Content.Stdout, block.Content.Stderr
}

// killedAt kills the server at a moment that shows on its disk and starts the next. false if the moment was over by then.
func killedAt(t *testing.T, s *server, what string, moment func() bool, env ...string) (next *server, met bool) {
	t.Helper()
	await(t, what, moment)
	s.kill()
	met = moment() // nobody works there any more
	next = startServer(t, "gvisor", s.Data, env...)
	next.Key = s.Key
	if met {
		next.wantClean(s)
	}
	return next, met
}

// tries is how often a moment may be missed.
const tries = 10

// Half a snapshot is none: the container goes on cold, with its files, and the model is told.
func TestServerKilledWhileItKeepsVariables(t *testing.T) {
	needDriver(t, "gvisor")
	// A pool and a fork server would only be in the way.
	env := []string{"AIRLOCK_CONTAINER_IDLE_DESTROY=500ms", "AIRLOCK_CONTAINER_SWEEP_EVERY=50ms", "AIRLOCK_SANDBOX_POOL=0", "AIRLOCK_SANDBOX_PRELOAD="}
	data := t.TempDir()
	s := startServer(t, "gvisor", data, env...)
	defer func() { s.end() }()
	ctx := t.Context()
	str := must[string](t)
	s.Key = str(s.NewKey(ctx))
	box := str(s.Create(ctx))
	snapshots := filepath.Join(data, "snapshots")
	for name, moment := range map[string]func() bool{
		"its memory is written": func() bool { return exists(t, snapshots, ".new-*") },
		"its workspace is detached": func() bool {
			return exists(t, snapshots, box, "airlock.json") && !exists(t, snapshots, box, "workspace")
		},
	} {
		met := false
		for n := 0; n < tries && !met; n++ {
			if out, errs := s.cell(ctx, box, "x = 1; open('f', 'w').write('kept'); print('set')"); out != "set\n" {
				t.Fatalf("%s: %q, %q", name, out, errs)
			}
			s, met = killedAt(t, s, name, moment, env...)
		}
		if !met {
			t.Errorf("the moment when %s was missed %d times", name, tries)
			continue
		}
		if left, err := os.ReadDir(snapshots); err != nil || len(left) > 0 {
			t.Errorf("killed when %s, the next start left %v, %v", name, left, err)
		}
		out, told := s.cell(ctx, box, "print('x' in globals(), open('f').read())")
		if out != "False kept\n" || !strings.Contains(told, "variables") {
			t.Errorf("killed when %s, the next cell prints %q and is told %q", name, out, told)
		}
	}
}

// Half a base is none: the next member is made anew, and so is the base.
func TestServerKilledWhileItWritesABase(t *testing.T) {
	needDriver(t, "gvisor")
	env := []string{"AIRLOCK_SANDBOX_POOL=1", "AIRLOCK_SANDBOX_PRELOAD=uuid,random", "AIRLOCK_LOG_LEVEL=debug"}
	data := t.TempDir()
	s := startServer(t, "gvisor", data, env...)
	defer func() { s.end() }()
	bases := filepath.Join(data, "bases")
	half := func() bool { return exists(t, bases, ".new-*") }
	for n, met := 0, false; !met; n++ {
		if n == tries {
			t.Fatalf("the moment was missed %d times", tries)
		}
		if err := os.RemoveAll(bases); err != nil {
			t.Fatal(err)
		}
		s, met = killedAt(t, s, "half a base", half, env...)
	}
	ready := func() string {
		log, err := os.ReadFile(filepath.Join(data, "log"))
		if err != nil {
			t.Fatal(err)
		}
		start := strings.LastIndex(string(log), "containers recovered")
		for line := range strings.Lines(string(log[max(start, 0):])) {
			if strings.Contains(line, "pool member ready") {
				return line
			}
		}
		return ""
	}
	await(t, "a member of the pool", func() bool { return ready() != "" })
	if line := ready(); !strings.Contains(line, "continued=false") {
		t.Errorf("half a base was continued: %s", line)
	}
	await(t, "a whole base", func() bool { return exists(t, bases, "base-*", "workspace") })
}
