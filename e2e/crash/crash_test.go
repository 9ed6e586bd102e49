package crash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

// moments is how often the server is killed, by driver; each activity gets its share.
var moments = map[string]int{"native": 20, "gvisor": 5}

// ledger holds what the server has acknowledged and must not lose.
type ledger struct {
	mu         sync.Mutex
	uploads    map[string]int    // id -> size
	outputs    map[string]string // id -> hash of the content
	containers map[string]bool
}

func (l *ledger) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// activity is what the server does when it is killed. It works until a request fails, which the kill makes happen.
type activity struct {
	name string
	// within is the time in which the kill falls.
	within time.Duration
	run    func(ctx context.Context, s *server, l *ledger, box string) error
}

var activities = []activity{
	{"upload", 400 * time.Millisecond, func(ctx context.Context, s *server, l *ledger, _ string) error {
		content := bytes.Repeat([]byte("airlock "), 1<<19)
		id, err := s.Upload(ctx, "big.bin", content)
		if err == nil {
			l.note(func() { l.uploads[id] = len(content) })
		}
		return err
	}},
	{"create", 400 * time.Millisecond, func(ctx context.Context, s *server, l *ledger, _ string) error {
		id, err := s.Create(ctx)
		if err != nil {
			return err
		}
		l.note(func() { l.containers[id] = true })
		if _, err := s.Exec(ctx, id, "echo "+id+" > id"); err != nil {
			return err
		}
		other, err := s.Create(ctx)
		if err != nil {
			return err
		}
		return s.Delete(ctx, other)
	}},
	{"command", 600 * time.Millisecond, func(ctx context.Context, s *server, l *ledger, box string) error {
		_, err := s.Exec(ctx, box, "for i in $(seq 50); do head -c 100000 /dev/urandom > /tmp/scratch; echo $i; done")
		return err
	}},
	{"export", 800 * time.Millisecond, func(ctx context.Context, s *server, l *ledger, box string) error {
		m, err := s.turn(ctx, box, `head -c 6000000 /dev/zero > "$OUTPUT_DIR/zero.bin"; echo done > "$OUTPUT_DIR/small.txt"`)
		if err != nil {
			return err
		}
		if len(m.Files) != 2 {
			return &servertest.AnswerError{Text: fmt.Sprintf("the turn exported %d files", len(m.Files))}
		}
		sum := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
		l.note(func() {
			l.outputs[m.Files[0]] = sum([]byte("done\n"))
			l.outputs[m.Files[1]] = sum(make([]byte, 6000000))
		})
		return nil
	}},
	{"settle", 200 * time.Millisecond, func(ctx context.Context, s *server, l *ledger, _ string) error {
		m, err := s.turn(ctx, "", "echo x > /workspace/x")
		if err == nil {
			l.note(func() { l.containers[m.Container] = true })
		}
		return err
	}},
}

func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("AIRLOCK_TEST_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("crash moments from AIRLOCK_TEST_SEED=%d\n", n)
	return n
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestKilledServerLeavesNothingBehindAndLosesNothing(t *testing.T) {
	n := seed(t)
	for driver, moments := range moments {
		t.Run(driver, func(t *testing.T) {
			needDriver(t, driver)
			killOften(t, driver, moments, rand.New(rand.NewPCG(n, 0)))
		})
	}
}

// needDriver skips gVisor where it was not built, unless it is required.
func needDriver(t *testing.T, driver string) {
	t.Helper()
	_, err := os.Stat(filepath.Join(filepath.Dir(os.Getenv("AIRLOCK_BIN")), "runsc"))
	switch {
	case driver != "gvisor" || err == nil:
	case strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "gvisor"):
		t.Fatal("gvisor is required: run make runsc")
	default:
		t.Skip("gvisor is not built: run make runsc")
	}
}

func killOften(t *testing.T, driver string, moments int, rng *rand.Rand) {
	ctx := t.Context()
	str := must[string](t)

	beside := startServer(t, driver, t.TempDir())
	defer beside.end()
	beside.Key = str(beside.NewKey(ctx))
	neighbour := str(beside.Create(ctx))
	str(beside.Exec(ctx, neighbour, "(while :; do echo >> tick; sleep 0.05; done) >/dev/null 2>&1 &"))

	data := t.TempDir()
	s := startServer(t, driver, data)
	defer func() { s.end() }()
	key := str(s.NewKey(ctx))
	s.Key = key
	// kept is at rest at every kill, box is in the middle of something.
	kept, box := str(s.Create(ctx)), str(s.Create(ctx))
	l := &ledger{uploads: map[string]int{}, outputs: map[string]string{}, containers: map[string]bool{kept: true, box: true}}

	for i := range moments {
		a := activities[i%len(activities)]
		str(s.Exec(ctx, kept, fmt.Sprintf("mkdir -p d%d && head -c %d /dev/urandom > d%d/f", i, rng.IntN(300_000), i)))
		hashes := str(s.Exec(ctx, kept, hashAll))

		after := time.Duration(rng.Int64N(int64(a.within)))
		t.Logf("moment %d: %s, killed after %v", i, a.name, after)
		ended := make(chan error, 1)
		go func() {
			for {
				if err := a.run(ctx, s, l, box); err != nil {
					ended <- err
					return
				}
			}
		}()
		<-time.After(after)
		s.kill()
		err := <-ended
		if answer := (*servertest.AnswerError)(nil); errors.As(err, &answer) {
			t.Fatalf("%s failed before the kill: %v", a.name, err)
		}

		began := time.Now()
		before := s
		s = startServer(t, driver, data)
		s.Key = key
		s.wantClean(before)
		if got := str(s.Exec(ctx, kept, hashAll)); got != hashes {
			t.Fatalf("workspace after the kill:\n%s\nbefore:\n%s", got, hashes)
		}
		took := time.Since(began)
		t.Logf("clean and usable after %v", took)
		if took > 10*time.Second {
			t.Errorf("the restart took %v", took)
		}
		s.wantLedger(l)
		beside.wantTicking(neighbour)
	}
}

const hashAll = "find . -type f | sort | xargs sha256sum"

// wantLedger checks everything that was ever acknowledged.
func (s *server) wantLedger(l *ledger) {
	s.t.Helper()
	ctx := s.t.Context()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, size := range l.uploads {
		var f struct {
			Size int `json:"size_bytes"`
		}
		if err := s.Call(ctx, "GET", "/v1/files/"+id, nil, &f); err != nil || f.Size != size {
			s.t.Errorf("upload %s: size %d of %d, %v", id, f.Size, size, err)
		}
	}
	for id, sum := range l.outputs {
		b, err := s.Send(ctx, "GET", "/v1/files/"+id+"/content", nil, "")
		if got := sha256.Sum256(b); err != nil || hex.EncodeToString(got[:]) != sum {
			s.t.Errorf("output %s: %d bytes, %v", id, len(b), err)
		}
	}
	for id := range l.containers {
		if out, err := s.Exec(ctx, id, "echo usable"); err != nil || out != "usable\n" {
			s.t.Errorf("container %s: %q, %v", id, out, err)
		}
	}
	// The newest upload has its bytes, too.
	for id, size := range l.uploads {
		c, err := s.Create(ctx, id)
		if err != nil {
			s.t.Errorf("container with upload %s: %v", id, err)
			break
		}
		if out, err := s.Exec(ctx, c, "cat /files/input/* | wc -c"); err != nil || strings.TrimSpace(out) != strconv.Itoa(size) {
			s.t.Errorf("upload %s in a container: %q of %d, %v", id, out, size, err)
		}
		if err := s.Delete(ctx, c); err != nil {
			s.t.Error(err)
		}
		break
	}
}

// wantTicking checks that a background process of a neighbour still runs.
func (s *server) wantTicking(id string) {
	s.t.Helper()
	ctx := s.t.Context()
	out, err := s.Exec(ctx, id, "a=$(wc -c < tick); sleep 0.2; test $(wc -c < tick) -gt $a && echo ticks")
	if err != nil || out != "ticks\n" {
		s.t.Errorf("the server beside it: %q, %v", out, err)
	}
}
