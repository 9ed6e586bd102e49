package sandboxtest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func fileRules() []rule {
	return []rule{
		{"FileComesBackAsItWent", fileRoundTrip},
		{"FileIsVisibleToTheNextCommand", fileVisible},
		{"InputsAreReadOnlyToTheCode", inputsReadOnly},
		{"FileErrorsAreTold", fileErrors},
		{"FoldersAreListedAndRemoved", folders},
		{"GuestWritesWithTheRightsAskedFor", fileRights},
	}
}

func put(t *testing.T, b *Box, path, content string, o guest.PutOptions) {
	t.Helper()
	if err := b.Put(t.Context(), path, strings.NewReader(content), o); err != nil {
		t.Fatalf("put %s: %v", path, err)
	}
}

func fileRoundTrip(t *testing.T, e *Env) {
	b := start(t, e)
	random := make([]byte, 8*attack.MiB+1)
	source := rand.NewChaCha8([32]byte{1})
	// This source never fails.
	_, _ = source.Read(random)
	for name, content := range map[string][]byte{"empty": {}, "one": {0}, "large": random, "all": attack.AllBytes()} {
		path := guest.Home + "/" + name
		if err := b.Put(t.Context(), path, bytes.NewReader(content), guest.PutOptions{AsCode: true}); err != nil {
			t.Fatalf("put %s: %v", name, err)
		}
		got, info, err := attack.ReadFile(t.Context(), b, path, guest.GetOptions{AsCode: true, NoSymlinks: true})
		if err != nil || !bytes.Equal(got, content) || info.Size != int64(len(content)) || info.Type != guest.TypeFile {
			t.Errorf("%s: %d of %d bytes, %+v, %v", name, len(got), len(content), info, err)
		}
	}
}

func fileVisible(t *testing.T, e *Env) {
	b := start(t, e)
	for _, content := range []string{"", "first", "second, longer"} {
		put(t, b, guest.Home+"/f", content, guest.PutOptions{AsCode: true})
		wantOutput(t, sh(t, b, "cat f"), content)
	}
	sh(t, b, "printf made > g; chmod 600 g")
	got, _, err := attack.ReadFile(t.Context(), b, guest.Home+"/g", guest.GetOptions{AsCode: true})
	if err != nil || string(got) != "made" {
		t.Errorf("a file of the code: %q, %v", got, err)
	}
}

func inputsReadOnly(t *testing.T, e *Env) {
	b := start(t, e)
	put(t, b, guest.InputDir+"/report.docx", "original", guest.PutOptions{MkdirAll: true})
	wantOutput(t, sh(t, b, "cat $INPUT_DIR/report.docx"), "original")
	out := sh(t, b, "cd $INPUT_DIR; echo x > report.docx; echo x > new; rm -f report.docx; mv report.docx gone; chmod 777 . report.docx; cat report.docx")
	if out.Stdout != "original" {
		t.Errorf("the input after attempts to change it: %v", out)
	}
}

func fileErrors(t *testing.T, e *Env) {
	b := start(t, e, attack.Disk(16*attack.MiB))
	sh(t, b, "mkdir d; head -c 2000 /dev/zero > big")
	for name, tt := range map[string]struct {
		path string
		o    guest.GetOptions
		want error
	}{
		"missing":   {guest.Home + "/nothing", guest.GetOptions{AsCode: true}, guest.ErrNotExist},
		"folder":    {guest.Home + "/d", guest.GetOptions{AsCode: true}, guest.ErrIsDir},
		"too large": {guest.Home + "/big", guest.GetOptions{AsCode: true, Max: 1999}, guest.ErrTooLarge},
		"no right":  {"/etc/shadow", guest.GetOptions{AsCode: true}, guest.ErrPermission},
		"nul":       {guest.Home + "/a\x00b", guest.GetOptions{AsCode: true}, guest.ErrInvalidPath},
	} {
		if _, _, err := attack.ReadFile(t.Context(), b, tt.path, tt.o); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
	}
	if _, _, err := attack.ReadFile(t.Context(), b, guest.Home+"/big", guest.GetOptions{AsCode: true, Max: 2000}); err != nil {
		t.Errorf("a file of exactly the limit: %v", err)
	}
	err := b.Put(t.Context(), guest.Home+"/full", io.LimitReader(attack.Zeros{}, 32*attack.MiB), guest.PutOptions{AsCode: true})
	if !errors.Is(err, guest.ErrNoSpace) {
		t.Errorf("put beyond the disk: %v, want ErrNoSpace", err)
	}
	out := sh(t, b, "ls -A")
	if strings.Contains(out.Stdout, "full") || strings.Count(out.Stdout, "\n") != 2 {
		t.Errorf("a put that failed left %q", out.Stdout)
	}
}

func folders(t *testing.T, e *Env) {
	b := start(t, e)
	put(t, b, guest.Home+"/a/b/c", "deep", guest.PutOptions{AsCode: true, MkdirAll: true})
	sh(t, b, "ln -s a/b/c link")
	listed, err := b.List(t.Context(), guest.Home, 5, 100)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]guest.FileType{}
	for _, info := range listed {
		have[info.Path] = info.Type
	}
	for path, want := range map[string]guest.FileType{"/a": guest.TypeDir, "/a/b": guest.TypeDir, "/a/b/c": guest.TypeFile, "/link": guest.TypeSymlink} {
		if have[guest.Home+path] != want {
			t.Errorf("%s is listed as %q, want %q", path, have[guest.Home+path], want)
		}
	}
	if err := b.Remove(t.Context(), guest.Home+"/a", guest.RemoveOptions{AsCode: true}); err == nil {
		t.Error("a full folder was removed without All")
	}
	if err := b.Remove(t.Context(), guest.Home+"/a", guest.RemoveOptions{AsCode: true, All: true}); err != nil {
		t.Errorf("remove a folder: %v", err)
	}
	wantOutput(t, sh(t, b, "ls -A"), "link\n")
}

func fileRights(t *testing.T, e *Env) {
	b := start(t, e)
	put(t, b, guest.Home+"/mine", "x", guest.PutOptions{AsCode: true, Mode: 0o755})
	put(t, b, guest.InputDir+"/theirs", "x", guest.PutOptions{MkdirAll: true})
	wantOutput(t, sh(t, b, "stat -c '%u %a' mine; stat -c %u $INPUT_DIR/theirs"), "1000 755\n0\n")
	if err := b.Put(t.Context(), "/etc/mine", strings.NewReader("x"), guest.PutOptions{AsCode: true}); err == nil {
		t.Error("the root file system was written")
	}
	err := b.Put(t.Context(), guest.InputDir+"/other", strings.NewReader("x"), guest.PutOptions{AsCode: true})
	if !errors.Is(err, guest.ErrPermission) {
		t.Errorf("the code's rights reach the inputs: %v, want ErrPermission", err)
	}
}
