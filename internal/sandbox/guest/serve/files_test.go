package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

var asCode = guest.GetOptions{AsCode: true}

func (g *guestProcess) put(tb testing.TB, path, content string) {
	tb.Helper()
	if err := g.Put(tb.Context(), path, strings.NewReader(content), guest.PutOptions{AsCode: true, MkdirAll: true}); err != nil {
		tb.Fatalf("put %q: %v", path, err)
	}
}

func (g *guestProcess) get(tb testing.TB, path string, opts guest.GetOptions) (string, error) {
	tb.Helper()
	r, info, err := g.Get(tb.Context(), path, opts)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err == nil && info.Size != int64(len(b)) {
		tb.Errorf("%q: size %d, read %d", path, info.Size, len(b))
	}
	return string(b), err
}

func TestFilesComeBackByteForByteWhateverTheirName(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	names := []string{
		"a", "-rf", "with space", "new\nline", "\xff\xfe\x80", "第1组.txt", `quote"'$(id);id`, "\x1b[31m", strings.Repeat("n", 255), "..a", "CON", "a\\b",
	}
	for _, name := range names {
		content := "content of " + name + "\x00\xff"
		g.put(t, "/workspace/d/"+name, content)
		if got, err := g.get(t, "/workspace/d/"+name, asCode); err != nil || got != content {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
		if got, err := g.get(t, "d/"+name, guest.GetOptions{AsCode: true, NoSymlinks: true}); err != nil || got != content {
			t.Errorf("%q relative: got %q, %v", name, got, err)
		}
	}
	list, err := g.List(t.Context(), "/workspace/d", 1, 100)
	if err != nil || len(list) != len(names) {
		t.Fatalf("list: %d entries, %v", len(list), err)
	}
	got := map[string]bool{}
	for _, e := range list {
		got[strings.TrimPrefix(e.Path, "/workspace/d/")] = e.Type == guest.TypeFile
	}
	for _, name := range names {
		if !got[name] {
			t.Errorf("%q is not listed", name)
		}
	}
	o := g.shell(t, "cd d; stat -c '%u %g %a' -- ./-rf; ls -A | wc -l; umask")
	if !strings.HasPrefix(o.out, "1000 1000 644\n") {
		t.Errorf("got %+v", o)
	}
}

func TestCase40And46SizesFromZeroToManyWindows(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	for _, size := range []int{0, 1, guest.MaxData - 1, guest.MaxData, guest.MaxData + 1, guest.Window, 9<<20 + 7} {
		content := strings.Repeat("PK\x03\x04\x00\xff\r\n", size/8+1)[:size]
		g.put(t, "/tmp/f", content)
		if got, err := g.get(t, "/tmp/f", asCode); err != nil || got != content {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
		// Visible to a command at once.
		if o := g.shell(t, "stat -c %s /tmp/f"); o.out != fmt.Sprintln(size) {
			t.Errorf("%d bytes: a command sees %q", size, o.out)
		}
	}
}

func TestPutReplacesAtOnceAndKeepsTheMode(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	g.shell(t, "echo old > f; chmod 750 f; ln f hard; mkdir dir; ln -s f link; ln -s /workspace/nowhere dangling")
	g.put(t, "f", "new")
	if o := g.shell(t, "cat f; stat -c ' %a' f; cat hard; ls -A | sort | tr '\\n' ' '"); o.out != "new 750\nold\ndangling dir f hard link " {
		t.Errorf("got %+v", o)
	}
	g.put(t, "link", "through")
	if o := g.shell(t, "cat f; readlink link"); o.out != "throughf\n" {
		t.Errorf("through a link: got %+v", o)
	}
	put := func(path string, opts guest.PutOptions) error {
		return g.Put(t.Context(), path, strings.NewReader("x"), opts)
	}
	for _, tt := range []struct {
		path string
		opts guest.PutOptions
		want error
	}{
		{"dir", guest.PutOptions{AsCode: true}, guest.ErrIsDir},
		{"dangling", guest.PutOptions{AsCode: true}, guest.ErrNotExist},
		{"no/parent", guest.PutOptions{AsCode: true}, guest.ErrNotExist},
		{"f/below", guest.PutOptions{AsCode: true, MkdirAll: true}, guest.ErrInvalidPath},
		{"/files/input/f", guest.PutOptions{AsCode: true}, guest.ErrPermission},
		{"/usr/bin/f", guest.PutOptions{AsCode: true}, guest.ErrPermission},
		{"/proc/self/f", guest.PutOptions{AsCode: true}, guest.ErrPermission},
		{"", guest.PutOptions{AsCode: true}, guest.ErrInvalidPath},
		{"a\x00b", guest.PutOptions{AsCode: true}, guest.ErrInvalidPath},
		{"..", guest.PutOptions{AsCode: true}, guest.ErrInvalidPath},
		{"/", guest.PutOptions{AsCode: true}, guest.ErrInvalidPath},
		{strings.Repeat("n", 256), guest.PutOptions{AsCode: true}, guest.ErrInvalidPath},
		{strings.Repeat("n/", 3000), guest.PutOptions{AsCode: true}, guest.ErrInvalidPath},
		{"/workspace/link/x", guest.PutOptions{}, guest.ErrPermission},
	} {
		if err := put(tt.path, tt.opts); !errors.Is(err, tt.want) {
			t.Errorf("put %.20q: got %v, want %v", tt.path, err, tt.want)
		}
	}
	// The guest's own writes: the code can read, but not change or remove them.
	if err := put("/files/input/data.csv", guest.PutOptions{}); err != nil {
		t.Error(err)
	}
	if o := g.shell(t, "cat /files/input/data.csv; stat -c ' %u %a' /files/input/data.csv; rm -f /files/input/data.csv; echo $?"); o.out != "x 0 644\n1\n" {
		t.Errorf("got %+v", o)
	}
}

func TestPutThatFailsLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	g.put(t, "/small/f", "old")
	err := g.Put(t.Context(), "/small/f", io.LimitReader(endless{}, 1<<20), guest.PutOptions{AsCode: true})
	if !errors.Is(err, guest.ErrNoSpace) {
		t.Errorf("full file system: got %v", err)
	}
	err = g.Put(t.Context(), "/small/f", io.MultiReader(strings.NewReader("half"), broken{}), guest.PutOptions{AsCode: true})
	if !errors.Is(err, errTest) {
		t.Errorf("broken source: got %v", err)
	}
	// A request body that ends early ends with this one.
	err = g.Put(t.Context(), "/small/f", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)), guest.PutOptions{AsCode: true})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("source that ends early: got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err = g.Put(ctx, "/small/f", io.MultiReader(strings.NewReader(strings.Repeat("x", guest.MaxData)), onRead(func() { cancel(errTest) }), endless{}), guest.PutOptions{AsCode: true})
	if !errors.Is(err, errTest) {
		t.Errorf("canceled: got %v", err)
	}
	if err := g.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := g.shell(t, "for i in $(seq 100); do [ $(ls -A /small | wc -l) = 1 ] && break; sleep 0.05; done; cat /small/f; ls -A /small")
	if o.out != "oldf\n" {
		t.Errorf("got %+v", o)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errTest }

type onRead func()

func (f onRead) Read([]byte) (int, error) { f(); return 0, io.EOF }

func TestGetRefusesEverythingButRegularFiles(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	g.shell(t, `mkfifo fifo; mkdir dir; ln -s /etc/passwd abs; ln -s dir dlink; echo in > dir/f; ln -s f dir/l; python3 -c "
import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock')"; echo secret > secret; chmod 000 secret; ln -s /proc/self/root/etc/passwd magic; ln -s loop loop`)
	for _, tt := range []struct {
		path   string
		strict bool
		want   error
	}{
		{"fifo", false, guest.ErrPermission},
		{"sock", false, guest.ErrPermission},
		{"dir", false, guest.ErrIsDir},
		{"/dev/zero", false, guest.ErrPermission},
		{"missing", false, guest.ErrNotExist},
		{"secret", false, guest.ErrPermission},
		{"loop", false, guest.ErrPermission},
		{"magic", false, guest.ErrPermission},
		{"/proc/self/root/etc/passwd", false, guest.ErrPermission},
		{"/proc/1/environ", false, guest.ErrPermission},
		{"dir/f/x", false, guest.ErrInvalidPath},
		{"\x00", false, guest.ErrInvalidPath},
		{"abs", true, guest.ErrPermission},
		{"dlink/f", true, guest.ErrPermission},
		{"dir/l", true, guest.ErrPermission},
		{"fifo", true, guest.ErrPermission},
		{"dir", true, guest.ErrIsDir},
	} {
		within(t, 10*time.Second, func() {
			if _, err := g.get(t, tt.path, guest.GetOptions{AsCode: true, NoSymlinks: tt.strict}); !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.path, err, tt.want)
			}
		})
	}
	// Threat T18: procfs shows the guest itself to whoever opens it there.
	g.shell(t, "for f in maps environ status mem cmdline fd/0; do ln -s /proc/self/$f p-${f%/*}; done; ln -s /proc proc; ln -s /proc/1 one")
	for _, path := range []string{"p-maps", "p-environ", "p-status", "p-mem", "p-cmdline", "p-fd", "proc/self/maps", "one/status", "/proc/self/maps", "/proc/cpuinfo", "/proc/thread-self/environ"} {
		if got, err := g.get(t, path, asCode); !errors.Is(err, guest.ErrPermission) {
			t.Errorf("%s: got %q, %v", path, got, err)
		}
		if _, err := g.Stat(t.Context(), path, guest.StatOptions{AsCode: true}); !errors.Is(err, guest.ErrPermission) {
			t.Errorf("stat %s: got %v", path, err)
		}
		if err := g.Put(t.Context(), path, strings.NewReader("0"), guest.PutOptions{AsCode: true}); !errors.Is(err, guest.ErrPermission) {
			t.Errorf("put %s: got %v", path, err)
		}
	}
	for _, path := range []string{"proc", "one", "/proc", "/proc/self/fd"} {
		if _, err := g.List(t.Context(), path, 1, 10000); !errors.Is(err, guest.ErrPermission) {
			t.Errorf("list %s: got %v", path, err)
		}
	}
	// Its own links are the code's affair, and lead nowhere it could not go.
	if got, err := g.get(t, "dlink/l", asCode); err != nil || got != "in\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := g.get(t, "/workspace/x/../dir/./f", guest.GetOptions{AsCode: true, NoSymlinks: true}); err != nil || got != "in\n" {
		t.Errorf("got %q, %v", got, err)
	}
	// The guest's own rights never follow a link of the code's.
	if _, err := g.get(t, "abs", guest.GetOptions{}); !errors.Is(err, guest.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func TestGetBoundsSizes(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	g.shell(t, "truncate -s 1E sparse 2>/dev/null || truncate -s 1T sparse; head -c 1000 /dev/zero > f")
	if _, err := g.get(t, "sparse", guest.GetOptions{AsCode: true, Max: 1 << 30}); !errors.Is(err, guest.ErrTooLarge) {
		t.Errorf("sparse: got %v", err)
	}
	info, err := g.Stat(t.Context(), "sparse", guest.StatOptions{AsCode: true})
	if err != nil || info.Size < 1<<40 || info.Blocks > 1<<20 {
		t.Errorf("sparse: got %+v, %v", info, err)
	}
	if _, err := g.get(t, "f", guest.GetOptions{AsCode: true, Max: 999}); !errors.Is(err, guest.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if got, err := g.get(t, "f", guest.GetOptions{AsCode: true, Max: 1000}); err != nil || len(got) != 1000 {
		t.Errorf("got %d, %v", len(got), err)
	}
	// A file that never stops to grow ends the read, not the server.
	go func() {
		_, _ = g.Exec(t.Context(), guest.Command{Shell: "while :; do head -c 100000 /dev/zero >> grow; done", Timeout: 20 * time.Second})
	}() // it ends with the test
	within(t, 30*time.Second, func() {
		for {
			r, _, err := g.Get(t.Context(), "grow", guest.GetOptions{AsCode: true, Max: 5 << 20})
			if errors.Is(err, guest.ErrTooLarge) {
				return
			}
			if err == nil {
				n, err := io.Copy(io.Discard, r)
				r.Close()
				if n > 5<<20 || err != nil && !errors.Is(err, guest.ErrTooLarge) {
					t.Errorf("read %d, %v", n, err)
				}
			} else if !errors.Is(err, guest.ErrNotExist) {
				t.Errorf("got %v", err)
				return
			}
		}
	})
	// Giving up in the middle of a file leaves the connection usable.
	r, _, err := g.Get(t.Context(), "sparse", asCode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, r, 3<<20); err != nil {
		t.Error(err)
	}
	r.Close()
	if err := g.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLinkRacesNeverShowWhatLiesBehind(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	if err := g.Put(t.Context(), "/files/secret", strings.NewReader("secret"), guest.PutOptions{Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if err := g.Mkdir(t.Context(), "/files/output/call", guest.MkdirOptions{Code: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	up := make(chan struct{})
	var once sync.Once
	wg.Go(func() {
		_, err := g.Exec(ctx, guest.Command{Stdout: onWrite(func() { once.Do(func() { close(up) }) }), Shell: `cd /files/output/call; mkdir d; echo good > d/f; echo good > f; ln -s / evil; ln -s /files/secret evilf
python3 -c "
import os, itertools
print('up', flush=True)
for i in itertools.count():
    for good, evil in (('d', 'evil'), ('f', 'evilf')):
        for a, b in ((good, 'tmp'), (evil, good), ('tmp', evil)) * 2:
            try: os.rename(a, b)
            except OSError: pass  # the host has removed it
"`})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-up
	read := 0
	for range 2000 {
		for _, path := range []string{"/files/output/call/d/f", "/files/output/call/f", "/files/output/call/d/files/secret"} {
			got, err := g.get(t, path, guest.GetOptions{NoSymlinks: true})
			if err == nil && got != "good\n" {
				t.Fatalf("%s: got %q", path, got)
			}
			if err == nil {
				read++
			}
		}
	}
	if read == 0 {
		t.Error("the race never let a read through: nothing was tested")
	}
	// Removing as the guest during the race takes only what is inside.
	for range 20 {
		if err := g.Remove(t.Context(), "/files/output/call/d", guest.RemoveOptions{All: true}); err != nil && !errors.Is(err, guest.ErrPermission) {
			t.Logf("remove during the race: %v", err)
		}
	}
	cancel()
	wg.Wait()
	if got, err := g.get(t, "/files/secret", guest.GetOptions{}); err != nil || got != "secret" {
		t.Errorf("the file behind: %q, %v", got, err)
	}
}

func TestStatTellsTypes(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	g.shell(t, "echo abc > f; chmod 640 f; touch -d @1700000000 f; mkdir d; ln -s f l; mkfifo p; ln -s missing m")
	for _, tt := range []struct {
		path     string
		noFollow bool
		want     guest.FileType
	}{
		{"f", false, guest.TypeFile},
		{"d", false, guest.TypeDir},
		{"l", false, guest.TypeFile},
		{"l", true, guest.TypeSymlink},
		{"p", false, guest.TypeOther},
		{"m", true, guest.TypeSymlink},
		{"/", false, guest.TypeDir},
		{"/dev/null", false, guest.TypeOther},
	} {
		info, err := g.Stat(t.Context(), tt.path, guest.StatOptions{AsCode: true, NoFollow: tt.noFollow})
		if err != nil || info.Type != tt.want {
			t.Errorf("%s: got %+v, %v, want %s", tt.path, info, err, tt.want)
		}
	}
	info, err := g.Stat(t.Context(), "f", guest.StatOptions{AsCode: true})
	want := guest.FileInfo{Path: "/workspace/f", Type: guest.TypeFile, Size: 4, Blocks: 4096, Mode: 0o640, ModTime: time.Unix(1700000000, 0).UTC()}
	if d := cmp.Diff(want, info); d != "" || err != nil {
		t.Errorf("(-want +got) %v:\n%s", err, d)
	}
	for _, opts := range []guest.StatOptions{{AsCode: true}, {}} {
		if _, err := g.Stat(t.Context(), "m", opts); err == nil {
			t.Errorf("%+v: a dangling link was found", opts)
		}
	}
	if info, err := g.Stat(t.Context(), "/workspace/l", guest.StatOptions{NoFollow: true}); err != nil || info.Type != guest.TypeSymlink {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestListIsBoundedAndDoesNotFollowLinks(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	g.shell(t, "mkdir -p t/a/b/c t/z; touch t/a/f t/a/b/g t/m; ln -s / t/link; mkdir t/closed; touch t/closed/x; chmod 0 t/closed; mkdir many; cd many; seq 3000 | xargs touch")
	paths := func(list []guest.FileInfo) (p []string) {
		for _, e := range list {
			p = append(p, strings.TrimPrefix(e.Path, "/workspace/t/"))
		}
		return p
	}
	for _, tt := range []struct {
		depth int
		want  []string
	}{
		{0, nil},
		{1, []string{"a", "closed", "link", "m", "z"}},
		{2, []string{"a", "a/b", "a/f", "closed", "link", "m", "z"}},
		{9, []string{"a", "a/b", "a/b/c", "a/b/g", "a/f", "closed", "link", "m", "z"}},
	} {
		list, err := g.List(t.Context(), "t", tt.depth, 100)
		if d := cmp.Diff(tt.want, paths(list)); d != "" || err != nil {
			t.Errorf("depth %d, %v (-want +got):\n%s", tt.depth, err, d)
		}
	}
	if list, err := g.List(t.Context(), "many", 1, 3000); err != nil || len(list) != 3000 {
		t.Errorf("got %d, %v", len(list), err)
	}
	if list, err := g.List(t.Context(), "many", 1, 2999); !errors.Is(err, guest.ErrTooLarge) || len(list) != 2999 {
		t.Errorf("got %d, %v", len(list), err)
	}
	if list, err := g.List(t.Context(), "t/link", 1, 100); err != nil || len(list) == 0 {
		t.Errorf("a link named by the host: got %d, %v", len(list), err)
	}
	for path, want := range map[string]error{"t/m": guest.ErrInvalidPath, "nope": guest.ErrNotExist, "t/closed": guest.ErrPermission} {
		if _, err := g.List(t.Context(), path, 1, 10); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
}

func TestMkdirGivesOwnerAndMode(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	for _, tt := range []struct {
		path  string
		opts  guest.MkdirOptions
		want  error
		twice bool
	}{
		{"/files/output/one", guest.MkdirOptions{Code: true, Mode: 0o700}, nil, false},
		{"/files/output/two/three", guest.MkdirOptions{All: true}, nil, false},
		{"/files/output/two/three", guest.MkdirOptions{All: true}, nil, false},
		{"/files/output/two/three", guest.MkdirOptions{}, nil, true},
		{"mine/deep", guest.MkdirOptions{AsCode: true, All: true}, nil, false},
		{"/files/output/no", guest.MkdirOptions{AsCode: true}, guest.ErrPermission, false},
		{"x/y", guest.MkdirOptions{AsCode: true}, guest.ErrNotExist, false},
	} {
		err := g.Mkdir(t.Context(), tt.path, tt.opts)
		if tt.twice && err == nil || !tt.twice && !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.path, err, tt.want)
		}
	}
	o := g.shell(t, "stat -c '%u %a' /files/output/one /files/output/two /files/output/two/three mine mine/deep | tr '\\n' ','")
	if o.out != "1000 700,0 755,0 755,1000 755,1000 755," {
		t.Errorf("got %+v", o)
	}
}

func TestRemoveTakesTreesOfAnyDepth(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	o := g.run(t, guest.Command{Argv: []string{"python3", "-c", `
import os
os.mkdir('deep'); os.chdir('deep')
for i in range(10000):
    os.mkdir('d'); open('f', 'w').close(); os.symlink('/etc', 'l'); os.chdir('d')
`}, Timeout: 60 * time.Second})
	if o.Code != 0 {
		t.Fatalf("got %+v", o)
	}
	g.shell(t, "mkdir -p e/f; echo x > file; ln -s /etc/passwd link; mkdir full; touch full/x")
	code := guest.RemoveOptions{AsCode: true}
	for _, tt := range []struct {
		path string
		opts guest.RemoveOptions
		want error
	}{
		{"file", code, nil},
		{"link", code, nil},
		{"e/f", code, nil},
		{"missing", code, guest.ErrNotExist},
		{"missing", guest.RemoveOptions{AsCode: true, All: true}, nil},
		{"/files/input", guest.RemoveOptions{AsCode: true, All: true}, guest.ErrPermission},
		{"/etc/passwd", code, guest.ErrPermission},
		{"full", guest.RemoveOptions{AsCode: true, All: true}, nil},
	} {
		if err := g.Remove(t.Context(), tt.path, tt.opts); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.path, err, tt.want)
		}
	}
	within(t, 60*time.Second, func() {
		if err := g.Remove(t.Context(), "deep", guest.RemoveOptions{AsCode: true, All: true}); err != nil {
			t.Error(err)
		}
	})
	if o := g.shell(t, "ls -A; test -e /etc/passwd && echo kept"); o.out != "e\nkept\n" {
		t.Errorf("got %+v", o)
	}
}

func TestFileOperationsAtOnce(t *testing.T) {
	t.Parallel()
	g := start(t, guest.Options{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			path := fmt.Sprintf("/workspace/f%d", i%4)
			content := bytes.Repeat([]byte{byte('a' + i)}, 200_000)
			if err := g.Put(t.Context(), path, bytes.NewReader(content), guest.PutOptions{AsCode: i%2 == 0}); err != nil {
				t.Error(err)
			}
			got, err := g.get(t, path, asCode)
			if err != nil || len(got) != len(content) || strings.Trim(got, got[:1]) != "" {
				t.Errorf("%s: torn or lost: %d bytes, %v", path, len(got), err)
			}
			if err := g.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if o := g.shell(t, "ls -A | wc -l"); o.out != "4\n" {
		t.Errorf("got %+v", o)
	}
}
