package container_test

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// e11 is longer than a sandbox idles.
const e11 = 11 * time.Minute

func addFile(t *testing.T, e *containertest.Env, l *container.Lease, f *file.File) string {
	t.Helper()
	p, err := l.AddFile(t.Context(), e.Caller, f)
	if err != nil {
		t.Fatalf("add %s: %v", f.Filename, err)
	}
	return p
}

func sh(t *testing.T, l *container.Lease, env map[string]string, command string) string {
	t.Helper()
	sb, err := l.Sandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := sb.Exec(t.Context(), sandbox.Command{Shell: command, Env: env, Stdout: &out, Stderr: &out}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestCase34BothFilesOfOneNameCanBeRead(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		a, b := e.Upload(t, e.Caller, "image.png", "first"), e.Upload(t, e.Caller, "image.png", "second")
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		got := []string{addFile(t, e, l, a), addFile(t, e, l, b), addFile(t, e, l, a)}
		want := []string{"/files/input/image.png", "/files/input/image (2).png", "/files/input/image.png"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("paths (-want +got):\n%s", d)
		}
		if out := sh(t, l, nil, `cat "$INPUT_DIR/image.png" "$INPUT_DIR/image (2).png"`); out != "firstsecond" {
			t.Errorf("content: %q", out)
		}
	})
}

func TestCase47FileIsVisibleWhenTheAnswerIsOut(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		for _, content := range []string{"", "x", strings.Repeat("0123456789abcdef", 200_000)} {
			p := addFile(t, e, l, e.Upload(t, e.Caller, "f", content))
			if out := sh(t, l, nil, `wc -c < "`+p+`"`); strings.TrimSpace(out) != strconv.Itoa(len(content)) {
				t.Errorf("%d bytes are seen as %q", len(content), out)
			}
		}
	})
}

func TestInputsAreReadOnlyToCodeAndSurviveTheSandbox(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		f := e.Upload(t, e.Caller, "in.txt", "original")
		c := create(t, e, container.CreateParams{Files: []file.ID{f.ID}})
		out, _ := e.Sh(t, c.ID, `cd "$INPUT_DIR"; echo x > in.txt; rm -f in.txt; mv in.txt y; touch new; chmod 777 .; cat in.txt; ls`)
		if !strings.HasSuffix(out, "originalin.txt\n") {
			t.Errorf("code changed an input:\n%s", out)
		}
		e.Clock.Add(e11)
		e.SweepIdle(t.Context())
		l := acquire(t, e, c.ID)
		defer l.Release(t.Context())
		addFile(t, e, l, f)
		if e.LiveCount() != 0 {
			t.Error("a file that is there already started a sandbox")
		}
		if got := sh(t, l, nil, `cat "$INPUT_DIR/in.txt"`); got != "original" {
			t.Errorf("after the sandbox was made again: %q", got)
		}
	})
}

func TestCase84FileNamesWithHostileCharactersAreHarmless(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		for name, want := range map[string]string{
			"a;id.txt":           "a;id.txt",
			"$(touch pwned).txt": "$(touch pwned).txt",
			"-rf.txt":            "-rf.txt",
			"第1组.txt":            "第1组.txt",
			"x\u202etxt.exe":     "x_txt.exe",
		} {
			f, err := e.Files.Upload(t.Context(), e.Caller, file.UploadParams{Filename: name, Body: strings.NewReader(name)})
			if err != nil {
				t.Logf("%q is refused at upload: %v", name, err)
				continue
			}
			p := addFile(t, e, l, f)
			if p != "/files/input/"+want {
				t.Errorf("%q became %q", name, p)
			}
		}
		if out := sh(t, l, nil, `ls /workspace; ls "$INPUT_DIR" | wc -l`); strings.Contains(out, "pwned") {
			t.Errorf("a name was run: %q", out)
		}
	})
}

func TestForeignFileIsNotLoaded(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		f := e.Upload(t, e.Other, "secret.txt", "secret")
		_, err := e.Create(t.Context(), e.Caller, container.CreateParams{Files: []file.ID{f.ID}})
		wantError(t, err, 404, "")
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		_, err = l.AddFile(t.Context(), e.Caller, f)
		wantError(t, err, 404, "")
	})
}

func TestOutputsBecomeFilesOfTheContainersOwner(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		dir, err := l.OutputDir(t.Context(), "srvtoolu_01a")
		if err != nil {
			t.Fatal(err)
		}
		out := sh(t, l, map[string]string{"OUTPUT_DIR": dir}, `cd "$OUTPUT_DIR" && printf data > b.csv && : > empty && mkdir d && echo x > d/deep &&
			ln -s /etc/passwd link && mkfifo pipe && truncate -s 600M big && ln b.csv hard; stat -c '%u %a' .; ls -A | wc -l`)
		if !strings.HasPrefix(out, "1000 755\n") {
			t.Errorf("output folder: %q", out)
		}
		files, notes, err := l.Export(t.Context(), "srvtoolu_01a")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range files {
			if f.Owner != l.Container().Owner || f.ContainerID != string(l.Container().ID) || f.Origin != file.OriginOutput {
				t.Errorf("%+v", f)
			}
			got[f.Filename] = content(t, e, f)
		}
		if d := cmp.Diff(map[string]string{"b.csv": "data", "empty": "", "hard": "data"}, got); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
		all := strings.Join(notes, "\n")
		for _, name := range []string{`"d"`, `"link"`, `"pipe"`, `"big"`} {
			if !strings.Contains(all, name) {
				t.Errorf("%s is not named in\n%s", name, all)
			}
		}
		if again, _, err := l.Export(t.Context(), "srvtoolu_01b"); err != nil || len(again) != 0 {
			t.Errorf("a call without a folder exports %d, %v", len(again), err)
		}
	})
}

func TestOutputFolderIsFreshForEachCall(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		for range 2 {
			dir, err := l.OutputDir(t.Context(), "call1")
			if err != nil {
				t.Fatal(err)
			}
			if out := sh(t, l, nil, "ls -A "+dir+"; mkdir "+dir+"/d; touch "+dir+"/d/f"); out != "" {
				t.Errorf("folder was not empty: %q", out)
			}
		}
	})
}

// Code that swaps its folder for a link exports nothing that it could not read anyway.
func TestOutputFolderThatBecameALinkExportsNothing(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		dir, err := l.OutputDir(t.Context(), "call1")
		if err != nil {
			t.Fatal(err)
		}
		sh(t, l, nil, "rmdir "+dir+"; ln -s /etc "+dir)
		files, _, err := l.Export(t.Context(), "call1")
		if err != nil || len(files) != 0 {
			t.Errorf("exported %d files, %v", len(files), err)
		}
	})
}

func content(t *testing.T, e *containertest.Env, f *file.File) string {
	t.Helper()
	_, body, err := e.Files.Open(t.Context(), e.Caller, f.ID)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What the code did to its output folder, or how full the storage is, never costs the call its result.
func TestExportKeepsWhatItCanAndNamesTheRest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make  string
		quota int64
		files int
		note  string
	}{
		"too many entries":   {`cd "$OUTPUT_DIR" && touch f{1..10001}`, 0, 100, "more than 10000 entries"},
		"folder is a file":   {`rmdir "$OUTPUT_DIR" && echo x > "$OUTPUT_DIR"`, 0, 0, "not a readable folder"},
		"quota of the app":   {`cd "$OUTPUT_DIR" && printf 12345 > a && printf 12345 > b && printf 1 > c`, 8, 1, `"c": the storage quota`},
		"quota is used up":   {`echo 0123456789 > "$OUTPUT_DIR/a"`, 8, 0, `"a": the storage quota`},
		"folder is no place": {`rmdir "$OUTPUT_DIR"`, 0, 0, "not a readable folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, e *containertest.Env) {
				e.Limits.Inodes = 20_000
				e.Files.QuotaBytes = tt.quota
				l := acquire(t, e, "")
				defer l.Release(t.Context())
				dir, err := l.OutputDir(t.Context(), "call")
				if err != nil {
					t.Fatal(err)
				}
				sh(t, l, map[string]string{"OUTPUT_DIR": dir}, tt.make)
				files, notes, err := l.Export(t.Context(), "call")
				if err != nil || len(files) != tt.files || !strings.Contains(strings.Join(notes, "\n"), tt.note) {
					t.Errorf("%d files, %v, notes %q", len(files), err, notes)
				}
			})
		})
	}
}

func TestInputsOfOneContainerAreLimitedInSum(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		a, b := e.Upload(t, e.Caller, "a", "a"), e.Upload(t, e.Caller, "b", "b")
		a.Size, b.Size = 3<<30, 3<<30 // as if they were
		c := create(t, e, container.CreateParams{})
		l := acquire(t, e, c.ID)
		addFile(t, e, l, a)
		l.Release(t.Context())
		// The sum is remembered with the container.
		l = acquire(t, e, c.ID)
		defer l.Release(t.Context())
		_, err := l.AddFile(t.Context(), e.Caller, b)
		if got := wireError(t, err, 400, ""); !strings.Contains(got.Message, "5 GiB") {
			t.Errorf("got %+v", got)
		}
		addFile(t, e, l, a)
	})
}

// A store of files that fails takes neither the result of a command nor the word about what is missing.
func TestExportToAStoreThatFailsNamesTheFilesAndKeepsTheResult(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		l := acquire(t, e, "")
		defer l.Release(t.Context())
		dir, err := l.OutputDir(t.Context(), "call_1")
		if err != nil {
			t.Fatal(err)
		}
		sb, err := l.Sandbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sb.Exec(t.Context(), sandbox.Command{Shell: "echo a > " + dir + "/a; echo b > " + dir + "/b"}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(e.Dir, "blobs")); err != nil {
			t.Fatal(err)
		}
		files, notes, err := l.Export(t.Context(), "call_1")
		text := strings.Join(notes, "\n")
		if err != nil || len(files) != 0 || !strings.Contains(text, `"a": it could not be stored`) || !strings.Contains(text, `"b": it could not be stored`) {
			t.Errorf("files %v, notes %q, %v", files, text, err)
		}
	})
}
