package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/server/servertest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestDiskGuardRefusesBulkFirstThenEveryWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		used       float64
		bulk, some bool
	}{
		{0.5, true, true}, {0.84, true, true}, {0.85, false, true}, {0.94, false, true}, {0.95, false, false},
	} {
		g := &guard{crowded: 0.85, full: 0.95, diskUsed: func(string) (float64, error) { return tt.used, nil }}
		if got := g.admitNew(t.Context()) == nil; got != tt.bulk {
			t.Errorf("at %.2f new data admitted: %v", tt.used, got)
		}
		err := g.admitWrite(t.Context())
		if (err == nil) != tt.some {
			t.Errorf("at %.2f write admitted: %v", tt.used, err)
		}
		if got := g.admitSandbox(t.Context()) == nil; got != tt.some {
			t.Errorf("at %.2f sandbox admitted: %v", tt.used, got)
		}
		if e := wire.AsError(err); err != nil && (e.HTTPStatus() != 529 || e.RetryAfter == 0) {
			t.Errorf("refusal is %+v", e)
		}
	}
}

func TestDiskGuardLogsEachChangeOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	used := 0.1
	g := &guard{
		crowded: 0.85, full: 0.95, diskUsed: func(string) (float64, error) { return used, nil },
		log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	for _, used = range []float64{0.1, 0.9, 0.91, 0.96, 0.97, 0.2, 0.2} {
		_ = g.admitNew(t.Context()) // the log is what counts here
	}
	if lines := strings.Count(log.String(), "\n"); lines != 3 {
		t.Errorf("%d lines for three changes:\n%s", lines, log.String())
	}
	if n := g.refused.Load(); n != 4 {
		t.Errorf("%d refusals counted, want 4", n)
	}
}

// A server whose disk fills up stops what would fill it further, step by step, and comes back by itself.
func TestServerOnADiskThatFills(t *testing.T) {
	t.Parallel()
	cfg := smallDiskConfig(t)
	s := start(t, cfg)
	id := s.container(s.key)
	file, box := s.upload(s.key, "kept.txt", "kept"), "/airlock/v1/containers/"+id
	command := map[string]any{"command": "true"}
	s.answers("POST", box+"/exec", command, 200)

	fill(t, cfg.Data, 0.86)
	s.answers("POST", "/airlock/v1/containers", map[string]any{}, 529)
	s.answers("POST", box+"/fork", nil, 529)
	s.answers("POST", "/v1/files", nil, 529)
	s.answers("POST", box+"/exec", command, 200)

	fill(t, cfg.Data, 0.96)
	s.answers("POST", box+"/exec", command, 529)
	s.answers("PUT", box+"/files/workspace/x", strings.NewReader("x"), 529)
	s.answers("GET", "/v1/files/"+file, nil, 200)
	s.answers("GET", box, nil, 200)
	s.answers("DELETE", "/v1/files/"+file, nil, 200)

	fill(t, cfg.Data, 0.3)
	s.answers("POST", box+"/exec", command, 200)
	s.answers("DELETE", box, nil, 200)
}

// With not one block left, what makes room still works, and nothing is called a fault of the server.
func TestDeletingWorksOnADiskThatIsFull(t *testing.T) {
	t.Parallel()
	cfg := smallDiskConfig(t)
	cfg.Container.SweepEvery = time.Hour // what is not written yet stays so until the deletion
	s := start(t, cfg)
	file, live := s.upload(s.key, "kept.txt", "kept"), s.container(s.key)
	var resting []string
	for range 40 {
		resting = append(resting, s.container(s.key))
	}
	var key struct {
		ID string `json:"id"`
	}
	s.json("POST", s.AdminURL()+"/airlock/v1/keys", s.AdminKey(), map[string]any{"app": "default"}, 200, &key)
	// What it wrote lies in memory for the most part, and will find no room.
	s.answers("POST", "/airlock/v1/containers/"+live+"/exec", map[string]any{"command": "head -c 8000000 /dev/urandom > f"}, 200)

	fillWhole(t, cfg.Data)
	s.parts.guard.trimBallast(t.Context())
	fillWhole(t, cfg.Data) // the ballast's place, too
	s.answers("GET", "/airlock/v1/containers/"+live, nil, 200)
	// Those before the live one give nothing back.
	for _, id := range slices.Insert(resting, 20, live) {
		s.answers("DELETE", "/airlock/v1/containers/"+id, nil, 200)
		s.answers("GET", "/airlock/v1/containers/"+id, nil, 404)
	}
	s.answers("DELETE", "/v1/files/"+file, nil, 200)
	if got := s.status("DELETE", s.AdminURL()+"/airlock/v1/keys/"+key.ID, s.AdminKey(), nil); got != 200 {
		t.Errorf("a key could not be revoked: %d", got)
	}
	if n := s.parts.containers.LiveCount(); n != 0 {
		t.Errorf("%d sandboxes live after the deletions", n)
	}
}

// Fails if nothing is given up for what is still in memory when the last block of the disk is taken, or if nobody is told
// that there was no place for it.
func TestWhatIsStillInMemoryHasRoomOnADiskThatIsFull(t *testing.T) {
	t.Parallel()
	for name, ballast := range map[string]bool{"with ballast": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := smallDiskConfig(t)
			cfg.Container.SweepEvery, cfg.Container.IdleDestroy = time.Hour, time.Nanosecond
			s := start(t, cfg)
			box := "/airlock/v1/containers/" + s.container(s.key)
			s.answers("POST", box+"/exec", map[string]any{"command": "true"}, 200)
			s.answers("POST", box+"/exec", map[string]any{"command": "head -c 600000 /dev/urandom > f; sha256sum f > sum"}, 200)
			fillWhole(t, cfg.Data)
			if !ballast {
				s.parts.guard.trimBallast(t.Context())
				fillWhole(t, cfg.Data)
			}
			s.parts.containers.SweepIdle(t.Context()) // from here on only the image on disk shows what was kept
			if n := s.parts.containers.LiveCount(); n != 0 && ballast {
				t.Fatalf("%d sandboxes live on", n)
			}
			if err := os.Remove(filepath.Join(cfg.Data, "fill")); err != nil {
				t.Fatal(err)
			}
			if !ballast {
				s.answers("POST", box+"/exec", map[string]any{"command": "true"}, 500)
				s.answers("POST", box+"/exec", map[string]any{"command": "true"}, 200)
				return
			}
			resp := s.do("POST", box+"/exec", s.key, map[string]any{"command": "sha256sum -c sum"})
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), base64.StdEncoding.EncodeToString([]byte("f: OK\n"))) {
				t.Errorf("status %d, %v: %s", resp.StatusCode, err, b)
			}
		})
	}
}

// A command that exits 0 says nothing of what it found lost, so the model gets a note.
func TestModelIsToldOnceThatFilesCouldNotBeSaved(t *testing.T) {
	t.Parallel()
	cfg := smallDiskConfig(t)
	cfg.Container.SweepEvery, cfg.Container.IdleDestroy = time.Hour, time.Nanosecond
	s := start(t, cfg)
	id := s.container(s.key)
	s.answers("POST", "/airlock/v1/containers/"+id+"/exec", map[string]any{"command": "head -c 600000 /dev/urandom > f"}, 200)
	fillWhole(t, cfg.Data)
	s.parts.guard.trimBallast(t.Context())
	fillWhole(t, cfg.Data)
	s.parts.containers.SweepIdle(t.Context())
	if err := os.Remove(filepath.Join(cfg.Data, "fill")); err != nil {
		t.Fatal(err)
	}
	for _, told := range []bool{true, false} {
		var msg json.RawMessage
		s.json("POST", "/v1/messages", s.key, map[string]any{
			"model": "script", "max_tokens": 1000, "container": id,
			"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
			"messages": []any{map[string]any{"role": "user", "content": "```bash\ntrue\n```\n"}},
		}, 200, &msg)
		if got := strings.Contains(string(msg), "may be lost or damaged"); got != told {
			t.Errorf("told %v, want %v: %s", got, told, msg)
		}
	}
}

func TestBallastIsDroppedWithoutRoomAndTakenOnAgain(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	b := &sandbox.Ballast{Path: filepath.Join(dir, "ballast")}
	held := func() bool {
		b.Trim(t.Context())
		_, err := os.Stat(b.Path)
		return err == nil
	}
	if !held() {
		t.Error("an empty disk: no ballast")
	}
	fill(t, dir, 0.97)
	if !held() {
		t.Error("room left: the ballast is gone")
	}
	fillWhole(t, dir)
	if held() {
		t.Error("no room left: the ballast is there")
	}
	fill(t, dir, 0.95)
	if held() {
		t.Error("little room left: it was taken for ballast")
	}
	fill(t, dir, 0.5)
	if !held() {
		t.Error("room again: no ballast")
	}
}

func TestBallastIsNotTakenOnInMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servertest.Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	b := &sandbox.Ballast{Path: filepath.Join(dir, "ballast")}
	b.Trim(t.Context())
	if _, err := os.Lstat(b.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("memory was taken for ballast: %v", err)
	}
}

// fillWhole leaves no block of a disk.
func fillWhole(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := int64(1 << 20); piece >= 1<<10; piece /= 2 {
		for err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, size(t, f), piece)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}

func (r *running) answers(method, path string, body any, want int) {
	r.t.Helper()
	resp := r.do(method, path, r.key, body)
	if resp.StatusCode != want {
		b, _ := io.ReadAll(resp.Body)
		r.t.Errorf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, b)
	}
	if want == 529 && resp.Header.Get("retry-after") == "" {
		r.t.Errorf("%s %s: no retry-after", method, path)
	}
}

// fill makes a disk full to a share of its size.
func fill(t *testing.T, dir string, share float64) {
	t.Helper()
	name := filepath.Join(dir, "fill")
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		used, err := sandbox.DiskUsed(dir)
		if err != nil {
			t.Fatal(err)
		}
		if used >= share {
			return
		}
		if err := unix.Fallocate(int(f.Fd()), 0, size(t, f), 256<<10); err != nil {
			t.Fatal(err)
		}
	}
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// smallDiskConfig is a server whose data folder has a disk of its own, and whose levels are those of every server.
func smallDiskConfig(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t)
	cfg.Data = smallDisk(t)
	cfg.Disk = DefaultConfig().Disk
	return cfg
}

// smallDisk is a file system of 128 MiB on a loop device, mounted for the time of the test.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 128<<20), os.Mkdir(at, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		if err := servertest.Unmount(at); err != nil {
			t.Errorf("unmount: %v", errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)))
		}
	})
	return at
}

// A server whose disk was filled up while it was down starts, and lets its callers make room. Without the room that it keeps
// for that it says what to do.
func TestServerStartsOnADiskThatIsFull(t *testing.T) {
	t.Parallel()
	cfg := smallDiskConfig(t)
	first, stop := open(t, cfg)
	first.key = first.newKey("default")
	id := first.container(first.key)
	first.answers("POST", "/airlock/v1/containers/"+id+"/exec", map[string]any{"command": "echo kept > f"}, 200)
	file := first.upload(first.key, "kept.txt", strings.Repeat("kept", 4<<20))
	stop()
	fillWhole(t, cfg.Data)

	s, stop := open(t, cfg)
	s.key = first.key
	s.answers("GET", "/v1/files/"+file, nil, 200)
	s.answers("POST", "/airlock/v1/containers", map[string]any{}, 529)
	s.answers("DELETE", "/v1/files/"+file, nil, 200)
	s.answers("DELETE", "/airlock/v1/containers/"+id, nil, 200)
	s.answers("GET", "/airlock/v1/containers/"+id, nil, 404)
	stop()

	if err := os.RemoveAll(filepath.Join(cfg.Data, "airlock.db-room")); err != nil {
		t.Fatal(err)
	}
	fillWhole(t, cfg.Data)
	refused, err := Open(t.Context(), cfg)
	if err == nil {
		t.Fatal(errors.Join(errors.New("it started without room"), refused.Close()))
	}
	if text := err.Error(); !strings.Contains(text, "make room") || !strings.Contains(text, cfg.Data) {
		t.Errorf("the refusal is %q", text)
	}
	if err := os.Remove(filepath.Join(cfg.Data, "fill")); err != nil {
		t.Fatal(err)
	}
	_, stop = open(t, cfg)
	stop()
}
