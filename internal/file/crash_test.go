package file_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

const crashEnv = "AIRLOCK_TEST_CRASH_DIR"

// openCrashed opens what the child works on.
func openCrashed(ctx context.Context, t *testing.T, dir string) (*file.Service, tenant.Caller) {
	t.Helper()
	d, err := db.Open(ctx, filepath.Join(dir, "airlock.db"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(ctx, filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := blobs.Close(); err != nil {
			t.Error(err)
		}
	})
	tenants := &tenant.Service{DB: d}
	app, err := tenants.EnsureDefaultApp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &file.Service{DB: d, Blobs: blobs, Log: quietLog, OrphanAge: time.Minute}, tenant.Caller{AppID: app.ID}
}

// TestCrashChild is the process that is killed: it uploads and deletes, and says on stdout what has been
// acknowledged, until it dies.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		return // only TestKilledServerLosesNoAcknowledgedFile starts it
	}
	s, c := openCrashed(t.Context(), t, dir)
	for i := 0; ; i++ {
		content := randomBytes(1 + i*37%3*700_000)
		f, err := s.Upload(t.Context(), c, file.UploadParams{Filename: fmt.Sprintf("%d.bin", i), Body: bytes.NewReader(content)})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		fmt.Printf("ack put %s %s\n", f.ID, hex.EncodeToString(sum[:]))
		if i%4 == 3 {
			fmt.Printf("ack try %s\n", f.ID)
			if err := s.Delete(t.Context(), c, f.ID); err != nil {
				t.Fatal(err)
			}
			fmt.Printf("ack del %s\n", f.ID)
		}
	}
}

// TestKilledServerLosesNoAcknowledgedFile kills the child at random moments. Afterwards every file it has
// acknowledged is whole, every deletion holds, and after a sweep there are as many blobs as files.
func TestKilledServerLosesNoAcknowledgedFile(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[file.ID]string{}
	for range 8 {
		killChild(t, dir, 1+random.IntN(6), time.Duration(random.IntN(20_000))*time.Microsecond, acked)
	}
	s, c := openCrashed(t.Context(), t, dir)
	checkAcked(t, s, c, acked)
	// What lies about belongs to nobody now: the child is dead.
	s.OrphanAge = time.Nanosecond
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkAcked(t, s, c, acked)
	rows, err := s.DB.Read().NewSelect().Table("files").Where("deleted_at IS NULL").Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	blobs := int64(0)
	if err := s.Blobs.List(t.Context(), "", func(blob.Entry) error { blobs++; return nil }); err != nil {
		t.Fatal(err)
	}
	if rows != blobs || rows == 0 {
		t.Errorf("%d files, %d blobs", rows, blobs)
	}
}

func checkAcked(t *testing.T, s *file.Service, c tenant.Caller, acked map[file.ID]string) {
	t.Helper()
	for id, want := range acked {
		f, body, err := s.Open(t.Context(), c, id)
		if want == "" {
			if err == nil {
				t.Errorf("%s was deleted and is back", id)
				_ = body.Close()
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, body); err != nil {
			t.Error(err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != want || f.SHA256 != want {
			t.Errorf("%s: hash %s, recorded %s, want %s", id, got, f.SHA256, want)
		}
	}
}

// killChild lets a child acknowledge some operations, waits a little into the next, and kills it.
func killChild(t *testing.T, dir string, acks int, into time.Duration, acked map[file.ID]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$", "-test.v")
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	seen := 0
	for lines.Scan() {
		seen += note(lines.Text(), acked)
		if seen == acks {
			time.AfterFunc(into, func() { _ = cmd.Process.Kill() }) // it may have ended by itself, which is noticed below
		}
	}
	if err := cmd.Wait(); err == nil || seen < acks {
		t.Fatalf("the child ended by itself after %d of %d: %v", seen, acks, err)
	}
}

func note(line string, acked map[file.ID]string) int {
	// The name of the test may stand before the first line.
	i := strings.Index(line, "ack ")
	if i < 0 {
		return 0
	}
	switch f := strings.Fields(line[i:]); {
	case len(f) == 4 && f[1] == "put" && len(f[3]) == 64:
		acked[file.ID(f[2])] = f[3]
		return 1
	case len(f) == 3 && f[1] == "try":
		delete(acked, file.ID(f[2])) // from here on it may be there or not
	case len(f) == 3 && f[1] == "del" && file.ID(f[2]).Valid() && len(f[2]) == len("file_01")+22:
		acked[file.ID(f[2])] = ""
		return 1
	}
	return 0
}
