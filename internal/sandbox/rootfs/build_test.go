package rootfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// needRoot skips where trees cannot be made; AIRLOCK_REQUIRE makes that a failure.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "root") {
		t.Fatal("root is required and not available")
	}
	t.Skip("root is not available")
}

// image is one that the machine has: `airlock rootfs build --profile PROFILE` makes it.
func image(t *testing.T, profile string) string {
	t.Helper()
	needRoot(t)
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	img, err := (&Store{Dir: filepath.Join(data, "airlock", "rootfs")}).Get(profile)
	if err != nil {
		t.Fatalf("%v: run airlock rootfs build --profile %s", err, profile)
	}
	return img.Path
}

func minTree(t *testing.T) string {
	t.Helper()
	return image(t, "min")
}

// treeCopy is a copy of the min image for the whole package: tests take it apart by hard links, which must never reach
// the image that sandboxes of this machine use.
var treeCopy struct {
	once sync.Once
	dir  string
	err  error
}

func copiedTree(t *testing.T) string {
	t.Helper()
	from := minTree(t)
	treeCopy.once.Do(func() {
		if treeCopy.dir, treeCopy.err = os.MkdirTemp("", "airlock-rootfs-test-"); treeCopy.err == nil {
			treeCopy.err = exec.CommandContext(t.Context(), "cp", "-a", from+"/.", treeCopy.dir).Run()
		}
	})
	if treeCopy.err != nil {
		t.Fatal(treeCopy.err)
	}
	return treeCopy.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if treeCopy.dir != "" {
		if err := os.RemoveAll(treeCopy.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// fakeMmdebstrap puts a program of that name first in PATH. In the script $tree is where the tree belongs.
func fakeMmdebstrap(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	text := "#!/bin/sh\nfor tree; do :; done\n" + script
	if err := os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// copyTree stands for the network: it gives the tree of a real build, and what a real build leaves behind. The links
// are hard ones where they can be, so files are replaced and never written to.
const copyTree = `
cp -al "$TREE/." "$tree/" 2>/dev/null || cp -a "$TREE/." "$tree/"
echo "I: running apt-get update..."
rm -f "$tree/etc/hosts" "$tree/etc/resolv.conf" "$tree/etc/hostname"
echo 10.0.0.1 buildhost >"$tree/etc/hosts"
echo nameserver 10.0.0.1 >"$tree/etc/resolv.conf"
echo buildhost >"$tree/etc/hostname"
mkdir -p "$tree/var/lib/apt/lists" "$tree/usr/share/man/man1" "$tree/home/user"
echo x >"$tree/var/lib/apt/lists/mirror.example_dists"
cp "$tree/bin/true" "$tree/usr/bin/setuid-true"; chmod 6755 "$tree/usr/bin/setuid-true"
mknod "$tree/dev/null" c 1 3
`

func listDir(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestBuildPublishesACheckedTree(t *testing.T) {
	t.Setenv("TREE", copiedTree(t))
	fakeMmdebstrap(t, copyTree)
	s := &Store{Dir: t.TempDir()}
	var phases []Phase
	built := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	img, err := s.Build(t.Context(), BuildOptions{
		Profile: "min", Now: func() time.Time { return built },
		Progress: func(p Progress) {
			if !slices.Contains(phases, p.Phase) {
				phases = append(phases, p.Phase)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(phases, []Phase{PhaseUpdate, PhaseCompile, PhaseFinish, PhaseCheck, PhasePublish}); d != "" {
		t.Error(d)
	}
	if img.Profile != "min" || img.Suite != "trixie" || img.Packages["python3"] == "" || img.Size < 50<<20 || !img.BuiltAt.Equal(built) {
		t.Errorf("manifest says %+v", img)
	}
	if d := cmp.Diff(listDir(t, s.Dir), []string{".lock", img.Name}); d != "" {
		t.Error(d)
	}
	checkTree(t, img.Path)
	if again, err := s.Get("min"); err != nil || cmp.Diff(again, img) != "" {
		t.Errorf("the manifest reads back as %+v, %v", again, err)
	}
}

// checkTree is what every published tree promises.
func checkTree(t *testing.T, tree string) {
	t.Helper()
	for _, dir := range []string{"workspace", "files", "skills", "mnt/session", "proc", "dev", "tmp", "sys"} {
		if left := listDir(t, filepath.Join(tree, dir)); len(left) > 0 {
			t.Errorf("/%s holds %v", dir, left)
		}
		if info, err := os.Lstat(filepath.Join(tree, dir)); err != nil || !info.IsDir() {
			t.Errorf("/%s: %v", dir, err)
		}
	}
	for name, want := range map[string]string{
		"etc/hostname": "sandbox\n", "etc/resolv.conf": "", "etc/hosts": "127.0.0.1\tlocalhost sandbox\n",
		"etc/passwd": "sandbox:x:1000:1000:sandbox:/workspace:/bin/bash\n", "etc/group": "sandbox:x:1000:\n",
	} {
		b, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil || !strings.Contains(string(b), want) || want == "" && len(b) > 0 || bytes.Contains(b, []byte("buildhost")) {
			t.Errorf("/%s is %q, %v", name, b, err)
		}
	}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 ||
			info.Mode().IsRegular() && info.Mode()&fs.ModeSetgid != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if left := listDir(t, filepath.Join(tree, "var/lib/apt/lists")); len(left) > 0 {
		t.Errorf("package lists are left: %v", left)
	}
}

func TestBuildRunsAgainOnlyForAChangedRecipeOrARefresh(t *testing.T) {
	count := filepath.Join(t.TempDir(), "runs")
	t.Setenv("TREE", copiedTree(t))
	t.Setenv("COUNT", count)
	fakeMmdebstrap(t, copyTree+"echo run >>\"$COUNT\"\n")
	s := &Store{Dir: t.TempDir()}
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	build := func(refresh bool) *Image {
		t.Helper()
		img, err := s.Build(t.Context(), BuildOptions{Profile: "min", Refresh: refresh, Now: func() time.Time { return day }})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	first := build(false)
	day = day.AddDate(0, 1, 0)
	if second := build(false); cmp.Diff(first, second) != "" {
		t.Errorf("an unchanged recipe made %+v", second)
	}
	release, err := first.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	// The archive has nothing new: the image in use stays, with a new date.
	if third := build(true); third.Name != first.Name || !third.BuiltAt.Equal(day) {
		t.Errorf("a refresh without news made %s of %s", third.Name, third.BuiltAt)
	}
	if err := s.Remove(first.Name); !errors.Is(err, ErrInUse) {
		t.Errorf("after a refresh the holder is forgotten: %v", err)
	}
	// It has an update: a new image stands beside the old one.
	fakeMmdebstrap(t, copyTree+"echo run >>\"$COUNT\"\nsed -i '/^Package: bash$/,/^$/s/^Version: .*/Version: 99/' \"$tree/var/lib/dpkg/status\"\n")
	if fourth := build(true); fourth.Name == first.Name || fourth.Packages["bash"] != "99" {
		t.Errorf("a refresh with news made %s", fourth.Name)
	}
	if images, err := s.List(); err != nil || len(images) != 2 {
		t.Errorf("images %v, %v", names(images), err)
	}
	if runs, err := os.ReadFile(count); err != nil || strings.Count(string(runs), "run") != 3 {
		t.Errorf("mmdebstrap ran %q, %v, want 3 times", runs, err)
	}
}

func TestAFailedBuildLeavesNothingAndShowsTheLastLines(t *testing.T) {
	tree := copiedTree(t)
	for _, tc := range []struct{ name, script, want string }{
		{"mmdebstrap fails", "echo 'E: no such suite' >&2; mkdir -p \"$tree/etc\"; exit 25", "E: no such suite"},
		{"python does not run", copyTree + "rm \"$tree\"/usr/bin/python3*", "compile python libraries"},
		{"the smoke check fails", copyTree + "rm \"$tree\"/usr/lib/python3.13/json/decoder.py*; rm -r \"$tree\"/usr/lib/python3.13/json/__pycache__", "smoke_min.py"},
	} {
		t.Setenv("TREE", tree)
		fakeMmdebstrap(t, tc.script)
		s := &Store{Dir: t.TempDir()}
		_, err := s.Build(t.Context(), BuildOptions{Profile: "min"})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", tc.name, err, tc.want)
		}
		if d := cmp.Diff(listDir(t, s.Dir), []string{".lock"}); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

func TestACancelledBuildEndsEveryProcessItStarted(t *testing.T) {
	needRoot(t)
	pipe := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ALIVE", pipe)
	// A grandchild in a session of its own holds the pipe open: its end is the end of the pipe.
	fakeMmdebstrap(t, "setsid sh -c 'echo up; exec sleep 1000' >\"$ALIVE\" &\nwait\nsleep 1000\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by the test")
	s := &Store{Dir: t.TempDir()}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Build(ctx, BuildOptions{Profile: "min"})
		ended <- err
	}()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	up := make([]byte, 3)
	if _, err := f.Read(up); err != nil {
		t.Fatal(err)
	}
	cancel(stopped)
	if err := <-ended; !errors.Is(err, stopped) {
		t.Errorf("build ended with %v", err)
	}
	if n, err := f.Read(up); n != 0 || err == nil {
		t.Errorf("the grandchild lives: %d bytes, %v", n, err)
	}
	if d := cmp.Diff(listDir(t, s.Dir), []string{".lock"}); d != "" {
		t.Error(d)
	}
}

func TestLeftoversOfAKilledBuildAreSweptByTheNext(t *testing.T) {
	t.Setenv("TREE", copiedTree(t))
	fakeMmdebstrap(t, copyTree)
	s := &Store{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(s.Dir, ".tmp-dead", treeDir, "usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := s.Build(t.Context(), BuildOptions{Profile: "min"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(listDir(t, s.Dir), []string{".lock", img.Name}); d != "" {
		t.Error(d)
	}
}

func TestAMissingProgramIsNamedWithItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := needTools("unshare")
	if !errors.Is(err, ErrNoTool) || !strings.Contains(err.Error(), "apt-get install util-linux") {
		t.Errorf("got %v", err)
	}
}

func TestExportAndImportKeepTheTree(t *testing.T) {
	tree := minTree(t)
	from := &Store{Dir: filepath.Dir(filepath.Dir(tree))}
	packed := filepath.Join(t.TempDir(), "Mine.tar.zst")
	var first, second bytes.Buffer
	if err := from.Export(t.Context(), filepath.Base(filepath.Dir(tree)), &first); err != nil {
		t.Fatal(err)
	}
	if err := from.Export(t.Context(), filepath.Base(filepath.Dir(tree)), &second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two exports differ")
	}
	if err := os.WriteFile(packed, first.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	to := &Store{Dir: t.TempDir()}
	var done, total int64
	img, err := to.Import(t.Context(), ImportOptions{Path: packed, Progress: func(p Progress) {
		if p.Phase == PhaseUnpack {
			done, total = p.Done, p.Total
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if done != total || total != int64(first.Len()) {
		t.Errorf("progress ended at %d of %d", done, total)
	}
	if img.Profile != "mine" || img.Packages["python3"] == "" || img.Suite != "" {
		t.Errorf("image is %+v", img)
	}
	checkTree(t, img.Path)
	out, err := exec.CommandContext(t.Context(), "diff", "-r", "--no-dereference", tree, img.Path).CombinedOutput()
	if err != nil {
		t.Errorf("trees differ: %s", out)
	}
}

func TestImportRefusesATreeWithoutAShell(t *testing.T) {
	needRoot(t)
	packed := filepath.Join(t.TempDir(), "bare.tar")
	if err := os.WriteFile(packed, archive(t, entry{name: "etc/motd", body: "hi"}), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &Store{Dir: t.TempDir()}
	if _, err := s.Import(t.Context(), ImportOptions{Path: packed}); err == nil || !strings.Contains(err.Error(), "bash does not run") {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff(listDir(t, s.Dir), []string{".lock"}); d != "" {
		t.Error(d)
	}
}
