package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// packed makes a detached workspace with one file of these bytes and packs it.
func packed(t *testing.T, w *Workspaces, id string, l Limits, data []byte) []byte {
	t.Helper()
	ws := attached(t, w, id, l)
	if err := write(t, ws, "workspace/data", data); err != nil {
		t.Fatal(err)
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := w.Pack(t.Context(), id, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func noCheck() error { return nil }

func onDisk(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestPackedWorkspaceComesBackWithItsBytesAndHoles(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	stream := packed(t, w, "one", smallLimits(), data)
	if err := w.Unpack(t.Context(), "two", bytes.NewReader(stream), noCheck); err != nil {
		t.Fatal(err)
	}
	if before, after := onDisk(t, w.Path("one")), onDisk(t, w.Path("two")); after > before+1<<16 {
		t.Errorf("unpacked it has %d bytes on disk, before %d", after, before)
	}
	ws, err := w.Open("two")
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, ws, "workspace/data"), data) {
		t.Error("the file changed")
	}
	if err := ws.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The budget: what idle containers take is their content and 64 KiB each.
func TestPackedEmptyWorkspaceOfFullSizeIsTiny(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	stream := packed(t, w, "tiny", DefaultLimits(), []byte("hello"))
	if len(stream) > 32<<10 {
		t.Errorf("%d bytes for a workspace with five", len(stream))
	}
	t.Logf("%d bytes", len(stream))
}

func TestUnpackMakesNothingOfABrokenStream(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	good := packed(t, w, "good", smallLimits(), data)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	bad := errors.New("bad checksum")
	for name, tt := range map[string]struct {
		stream []byte
		check  error
		want   error
	}{
		"empty":     {nil, nil, ErrDamaged},
		"no zstd":   {[]byte("this is no stream of ours, whatever it is"), nil, ErrDamaged},
		"cut":       {good[:len(good)*2/3], nil, ErrDamaged},
		"bit error": {flipped, nil, ErrDamaged},
		"check":     {good, bad, bad},
	} {
		if err := w.Unpack(t.Context(), "new", bytes.NewReader(tt.stream), func() error { return tt.check }); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if w.Exists("new") {
			t.Fatalf("%s: there is an image", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Unpack(ctx, "new", bytes.NewReader(good), noCheck); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := w.Unpack(t.Context(), "good", bytes.NewReader(good), noCheck); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an image: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(w.Dir, newPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What breaks off on its way from a healthy store comes whole the next time.
func TestUnpackTellsASourceThatFailedFromDamage(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	good := packed(t, w, "good", smallLimits(), data)
	for _, broken := range []error{io.ErrUnexpectedEOF, unix.ECONNRESET} {
		for _, n := range []int{0, 7, len(good) / 2, len(good) - 1} {
			src := io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(broken))
			if err := w.Unpack(t.Context(), "new", src, noCheck); !errors.Is(err, broken) || errors.Is(err, ErrDamaged) {
				t.Errorf("%v after %d bytes: %v", broken, n, err)
			}
			if w.Exists("new") {
				t.Fatal("there is an image")
			}
		}
	}
	if err := w.Unpack(t.Context(), "new", bytes.NewReader(good), noCheck); err != nil {
		t.Fatal(err)
	}
}

func TestPackAndCloneKeepTheirHandsOffWhatIsAttached(t *testing.T) {
	t.Parallel()
	w := &Workspaces{Dir: t.TempDir()}
	ws := attached(t, w, "live", smallLimits())
	if err := w.Pack(t.Context(), "live", &bytes.Buffer{}); !errors.Is(err, ErrLocked) {
		t.Errorf("pack: %v", err)
	}
	if err := write(t, ws, "workspace/data", []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := ws.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Clone(t.Context(), "live", "copy"); err != nil {
		t.Fatal(err)
	}
	if err := write(t, ws, "workspace/data", []byte("after!")); err != nil {
		t.Fatal(err)
	}
	copied, err := w.Open("copy")
	if err != nil {
		t.Fatal(err)
	}
	if err := copied.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, copied, "workspace/data"); string(got) != "before" {
		t.Errorf("the copy says %q", got)
	}
	if err := copied.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Clone(t.Context(), "live", "copy"); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an image: %v", err)
	}
}
