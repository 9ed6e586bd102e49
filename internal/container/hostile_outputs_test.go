package container_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/file"
)

// The numbers in the names are those of the attempts in docs/scope-attempts.md and of what the gateway promises.

// zeros is n bytes of them.
func zeros(n int64) io.Reader { return io.LimitReader(endless{}, n) }

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// bombs are archives of a few hundred KiB with a file of n bytes inside.
func bombs(t *testing.T, n int64) map[string]string {
	t.Helper()
	var zipped, tarred bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("bomb")
	check(t, err)
	_, err = io.Copy(w, zeros(n))
	check(t, err)
	check(t, z.Close())
	g := gzip.NewWriter(&tarred)
	a := tar.NewWriter(g)
	check(t, a.WriteHeader(&tar.Header{Name: "bomb", Mode: 0o644, Size: n}))
	_, err = io.Copy(a, zeros(n))
	check(t, err)
	check(t, a.Close())
	check(t, g.Close())
	return map[string]string{"bomb.zip": zipped.String(), "bomb.tar.gz": tarred.String()}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestS72ArchiveBombsMeetTheQuotaOfTheirSandbox(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, e *containertest.Env) {
		e.Limits.DiskBytes = 16 << 20
		const bomb = 32 << 20
		var ids []file.ID
		for name, data := range bombs(t, bomb) {
			ids = append(ids, e.Upload(t, e.Caller, name, data).ID)
		}
		c, beside := create(t, e, container.CreateParams{Files: ids}), create(t, e, container.CreateParams{})
		out, _ := e.Sh(t, c.ID, `python3 - <<'END'
import lzma, os, shutil, tarfile, zipfile
with lzma.open('bomb.xz', 'wb') as f:
    for _ in range(32): f.write(bytes(1 << 20))
def xz():
    with lzma.open('bomb.xz') as i, open('made/bomb', 'wb') as o: shutil.copyfileobj(i, o)
for name, unpack in {'zip': lambda: zipfile.ZipFile('/files/input/bomb.zip').extractall('made'),
                     'tar': lambda: tarfile.open('/files/input/bomb.tar.gz').extractall('made', filter='data'), 'xz': xz}.items():
    shutil.rmtree('made', ignore_errors=True)
    os.mkdir('made')
    try: unpack(); print(name, 'was unpacked')
    except OSError as e: print(name, os.strerror(e.errno))
END`)
		for _, name := range []string{"zip", "tar", "xz"} {
			if !strings.Contains(out, name+" No space left on device\n") && !strings.Contains(out, name+" Disk quota exceeded\n") {
				t.Errorf("the %s: %s", name, out)
			}
		}
		// The last one lies there, as far as it came: others write, and the host holds no more than the quota.
		if out, res := e.Sh(t, beside.ID, "head -c 1M /dev/zero > f && wc -c < f"); res.Code != 0 || out != "1048576\n" {
			t.Errorf("another sandbox: %q, %+v", out, res)
		}
		if size := e.Workspaces.Size(string(c.ID)); size > e.Limits.DiskBytes+e.Limits.DiskBytes/4 {
			t.Errorf("the host holds %d bytes of it, its quota is %d", size, e.Limits.DiskBytes)
		}
		if err := e.Delete(t.Context(), e.Caller, c.ID); err != nil {
			t.Error(err)
		}
	})
}

// What the sandbox may leave in its output folder; each is named in the notes if it does not become a file.
func TestS73OnlyRegularFilesAreExportedAndOnlySoMany(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		dir, err := l.OutputDir(t.Context(), "call1")
		check(t, err)
		out := sh(t, l, nil, "cd "+dir+` && ln -s /etc/passwd link && ln -s /proc/1/environ host && printf plain > plain && ln plain hard && mkfifo pipe && mkdir folder &&
			mknod device c 1 3 2>/dev/null; truncate -s 1T sparse 2>/dev/null || truncate -s 600M sparse; ls`)
		if !strings.Contains(out, "sparse\n") || strings.Contains(out, "device") {
			t.Fatalf("the folder has %q", out)
		}
		files, notes, err := l.Export(t.Context(), "call1")
		check(t, err)
		for _, f := range files {
			if got := content(t, e, f); got != "plain" {
				t.Errorf("%s has %q", f.Filename, got)
			}
		}
		if len(files) != 2 {
			t.Errorf("%d files of two names for one file", len(files))
		}
		for _, name := range []string{"link", "host", "pipe", "folder", "sparse"} {
			if !strings.Contains(strings.Join(notes, "\n"), `"`+name+`"`) {
				t.Errorf("%s is not named in %q", name, notes)
			}
		}
		dir, err = l.OutputDir(t.Context(), "call2")
		check(t, err)
		made := sh(t, l, nil, `python3 - <<'END'
import os
os.chdir('`+dir+`')
n = 0
try:
    while n < 100_000: open(f'f{n:06}', 'w').close(); n += 1
except OSError: pass
print(n > 1000)
END`)
		files, notes, err = l.Export(t.Context(), "call2")
		if err != nil || made != "True\n" || len(files) != 100 || len(notes) == 0 {
			t.Errorf("of many files %d became outputs, %v; made %q, notes %q", len(files), err, made, notes)
		}
	})
}

// A process that the call left behind swaps the output for a link, all the time. The code may read what it leads to, so nothing but not
// following it keeps that out.
func TestS74OutputThatIsSwappedForALinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, e *containertest.Env) {
		c := create(t, e, container.CreateParams{})
		l := acquire(t, e, c.ID)
		dir, err := l.OutputDir(t.Context(), "call1")
		check(t, err)
		l.Release(t.Context())
		e.Sh(t, c.ID, `python3 -c "
import os
os.chdir('`+dir+`')
print('ready', flush=True)
os.close(1); os.close(2)
while True:
    os.symlink('/etc/passwd', '.link'); os.rename('.link', 'out')
    with open('.file', 'w') as f: f.write('plain')
    os.rename('.file', 'out')
" & sleep 0.2`)
		exported := 0
		for range 100 {
			l := acquire(t, e, c.ID)
			files, _, err := l.Export(t.Context(), "call1")
			check(t, err)
			for _, f := range files {
				exported++
				if got := content(t, e, f); got != "plain" && got != "" {
					t.Fatalf("%s has %q", f.Filename, got)
				}
			}
			l.Release(t.Context())
		}
		if exported == 0 {
			t.Error("it was a link whenever somebody looked")
		}
	})
}
