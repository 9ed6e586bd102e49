package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

func cutOffRules() []rule {
	return []rule{
		{"KilledWhileItIsMadeIsMadeAgain", killedOnce},
		{"KilledAgainIsCutOffAndLeavesNothing", killedAlways},
		{"RefusedIsNotCutOff", refusedIsTold},
	}
}

// firstOnes are the processes that a driver starts for a sandbox before that is there: on gVisor launcher, gofer and sentry.
func firstOnes(e *Env) int {
	if e.Capabilities.Kernel {
		return 3
	}
	return 1
}

// killedOnce: whoever kills a process of a sandbox that is being made costs time and nothing else.
func killedOnce(t *testing.T, e *Env) {
	for n := 1; n <= firstOnes(e); n++ {
		const tries = 50
		hit := false
		for i := 0; i < tries && !hit; i++ {
			b, killed, err := startKilling(t, e, func(pids []int) bool { return len(pids) >= n }, n-1, 1)
			if err != nil {
				t.Fatalf("process %d of its start was killed: %v", n, err)
			}
			hit = killed && b.Alive(t.Context()) == nil // else it was there already
			if err := b.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !hit {
			t.Errorf("process %d was never met in %d starts", n, tries)
		}
	}
}

// killedAlways: two are killed as soon as they are seen.
func killedAlways(t *testing.T, e *Env) {
	for range 50 {
		before, err := e.Leftovers()
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := startKilling(t, e, func(pids []int) bool { return len(pids) > 0 }, 0, 2)
		if err == nil {
			if err := b.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue // one was there before it was seen
		}
		if !errors.Is(err, sandbox.ErrCutOff) || errors.Is(err, sandbox.ErrCapacity) {
			t.Errorf("killed twice: %v, want ErrCutOff", err)
		}
		if err := e.CheckLeaks(t.Context(), before); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("two starts in a row were never met")
}

// refusedIsTold: what would fail in the same way again is not tried again.
func refusedIsTold(t *testing.T, e *Env) {
	empty := t.TempDir()
	for name, change := range map[string]Option{
		"a root without mount points": func(s *sandbox.Spec) { s.RootFS = empty },
		"a root that is not there":    func(s *sandbox.Spec) { s.RootFS = filepath.Join(empty, "none") },
	} {
		b, err := e.StartBlank(t.Context(), change)
		if err == nil {
			t.Errorf("%s: a sandbox was made", name)
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		} else if errors.Is(err, sandbox.ErrCutOff) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// startKilling makes a sandbox and kills one of its processes as soon as they are as many as seen wants, so many times. It
// tells whether the last kill came before the answer.
func startKilling(t *testing.T, e *Env, seen func(pids []int) bool, which, times int) (b *Box, killed bool, err error) {
	t.Helper()
	id := nextID(e)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b, err = e.StartBlank(t.Context(), func(s *sandbox.Spec) { s.ID = id })
	}()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	known := map[int]bool{}
	for times > 0 {
		select {
		case <-ended:
			return b, false, err
		case <-tick.C:
		}
		pids := processesOf(t, e, id)
		if !seen(pids) || known[pids[which]] {
			continue
		}
		known[pids[which]] = true
		if kerr := unix.Kill(pids[which], unix.SIGKILL); kerr != nil && !errors.Is(kerr, unix.ESRCH) {
			t.Fatal(kerr)
		}
		times--
	}
	<-ended
	return b, true, err
}

var ids int

func nextID(e *Env) string {
	ids++
	return fmt.Sprintf("cut%s%d", strings.TrimPrefix(e.Host.ID, "test"), ids)
}

// processesOf are the first process of a sandbox that this program is making, and that one's children in their order.
func processesOf(t *testing.T, e *Env, id string) []int {
	t.Helper()
	for _, pid := range childrenOf(t, "self") {
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && bytes.Contains(groups, []byte(e.Host.Prefix()+id+"\n")) {
			return append([]int{pid}, childrenOf(t, strconv.Itoa(pid))...)
		}
	}
	return nil
}

func childrenOf(t *testing.T, pid string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		list, _ := os.ReadFile(file) // a thread that has ended has none
		for child := range strings.FieldsSeq(string(list)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}
