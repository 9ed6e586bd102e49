package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
)

func snapshotRules() []rule {
	return []rule{
		{"CheckpointKeepsVariablesAndProcesses", snapshotKeeps},
		{"UnusableSnapshotMeansColdStart", snapshotRefused},
		{"CheckpointIsUnsupportedOrPromised", snapshotPromise},
	}
}

// snapshotFolder is an empty folder of the host.
func snapshotFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func restore(t *testing.T, e *Env, b *Box, dir string, change ...attack.Option) (*Box, error) {
	t.Helper()
	return e.Restore(t.Context(), b, dir, change...)
}

func snapshotKeeps(t *testing.T, e *Env) {
	if !e.Capabilities.Snapshot {
		return // snapshotPromise says what then holds
	}
	b := start(t, e)
	cell(t, b, "import random\nkept = ['value', 42]\nf = open('/workspace/open', 'w+'); f.write('one'); f.flush()")
	run(t, b, sandbox.Command{Shell: "echo blue > color; (while :; do sleep 1; done) & echo $! > pid", Keep: true})
	for range 2 { // a restored sandbox can be written again
		dir := snapshotFolder(t)
		if err := b.Checkpoint(t.Context(), dir); err != nil {
			t.Fatalf("checkpoint: %v", err)
		}
		if b.ExitReason() != sandbox.ExitDestroyed {
			t.Errorf("it ended by %q, want destroyed", b.ExitReason())
		}
		again, err := restore(t, e, b, dir)
		if err != nil {
			t.Fatalf("restore: %v", err)
		}
		_, out := cell(t, again, "print(kept, random.random() != random.random())\nf.write('two'); f.flush(); f.seek(0); print(f.read())")
		if want := "['value', 42] True\nonetwo"; len(out.Stdout) < len(want) || out.Stdout[:len(want)] != want {
			t.Errorf("the next cell says %v, want %q", out, want)
		}
		wantOutput(t, sh(t, again, "cat color; kill -0 $(cat pid) && echo lives"), "blue\nlives\n")
		b = again
	}
	if err := b.Alive(t.Context()); err != nil {
		t.Error(err)
	}
}

func snapshotRefused(t *testing.T, e *Env) {
	if !e.Capabilities.Snapshot {
		return
	}
	b := start(t, e)
	cell(t, b, "x = 1")
	dir := snapshotFolder(t)
	if err := b.Checkpoint(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(t, e, b, dir, attack.Memory(512*attack.MiB)); !errors.Is(err, sandbox.ErrSnapshot) {
		t.Errorf("with other limits: %v, want ErrSnapshot", err)
	}
	for _, spoil := range []func(*testing.T, *os.File){flipByte, cutShort} {
		spoilLargest(t, dir, spoil)
		if _, err := restore(t, e, b, dir); !errors.Is(err, sandbox.ErrSnapshot) {
			t.Errorf("of a broken image: %v, want ErrSnapshot", err)
		}
	}
	if _, err := restore(t, e, b, snapshotFolder(t)); !errors.Is(err, sandbox.ErrSnapshot) {
		t.Errorf("of an empty folder: %v, want ErrSnapshot", err)
	}
	cold, err := e.Restart(t.Context(), b)
	if err != nil {
		t.Fatalf("a cold start after that: %v", err)
	}
	if err := cold.Alive(t.Context()); err != nil {
		t.Error(err)
	}
}

// spoilLargest changes the largest file of a snapshot, which holds the memory.
func spoilLargest(t *testing.T, dir string, spoil func(*testing.T, *os.File)) {
	t.Helper()
	largest, size := "", int64(0)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	})
	if err != nil || largest == "" {
		t.Fatalf("the snapshot has no file, %v", err)
	}
	f, err := os.OpenFile(largest, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spoil(t, f)
}

func flipByte(t *testing.T, f *os.File) {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}

func cutShort(t *testing.T, f *os.File) {
	t.Helper()
	if err := f.Truncate(100); err != nil {
		t.Fatal(err)
	}
}

func snapshotPromise(t *testing.T, e *Env) {
	_, restorer := e.Driver.(sandbox.Restorer)
	if restorer != e.Capabilities.Snapshot {
		t.Errorf("the driver restores: %t, and promises: %t", restorer, e.Capabilities.Snapshot)
	}
	if restorer {
		return
	}
	b := start(t, e)
	if err := b.Checkpoint(t.Context(), snapshotFolder(t)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("checkpoint: %v, want ErrUnsupported", err)
	}
	if err := b.Alive(t.Context()); err != nil {
		t.Error(err)
	}
}
