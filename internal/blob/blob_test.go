package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
)

func TestBackends(t *testing.T) {
	t.Parallel()
	blobtest.Suite(t)
}

// tree lists the regular files below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var got []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func openFolder(t *testing.T, dir string) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestAbortedPutLeavesNoFileInTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openFolder(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := s.Put(ctx, "k", pr)
		done <- err
	}()
	if _, err := pw.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := pw.CloseWithError(io.ErrUnexpectedEOF); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("put worked")
	}
	if left := tree(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTemporaryFilesOfAKilledProcessGoOnceSilent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openFolder(t, dir)
	old, young := filepath.Join(dir, ".tmp", "old"), filepath.Join(dir, ".tmp", "young")
	for _, p := range []string{old, young} {
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-3 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	if err := s.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old file is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the file of a running upload is gone: %v", err)
	}
}

func TestFolderIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	s := openFolder(t, dir)
	if _, err := s.Put(t.Context(), "a/b", bytes.NewReader([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"", "a", "a/b"} {
		info, err := os.Stat(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v", p, info.Mode())
		}
	}
}

func TestSymlinkOutOfTheFolderIsNotFollowed(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openFolder(t, dir)
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), "link", 0, -1); err == nil {
		t.Error("a link out of the folder was opened")
	}
}

func TestBucketURLThatIsNotUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	for where, want := range map[string]string{
		"s3://":                                "names none",
		"s3://b?endpoint=127.0.0.1:9000":       "endpoint",
		"s3://b?endpoint=ftp://127.0.0.1":      "endpoint",
		"s3://b?usepathstyle=true":             `unknown parameter "usepathstyle"`,
		"s3://b?region=us-east-1&profile=work": `unknown parameter "profile"`,
		"s3://b?anonymous=yes":                 `anonymous: "yes"`,
		"s3://b?use_path_style=":               `use_path_style: ""`,
		"s3://b?endpoint=http://127.0.0.1/b":   "without a path",
	} {
		s, err := blob.Open(t.Context(), where)
		if err == nil {
			t.Errorf("%s: opened: %v", where, s.Close())
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", where, err, want)
		}
	}
}

// What a failed upload sent in parts would be paid for until somebody looks for it. Fails if the parts are not dropped.
func TestUploadThatFailsLeavesNoParts(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T, s *blob.Store) {
		_, err := s.Put(t.Context(), "half", io.MultiReader(bytes.NewReader(make([]byte, 9<<20)), iotest.ErrReader(io.ErrUnexpectedEOF)))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("put: %v", err)
		}
		if n, err := s.Unfinished(t.Context()); n != 0 || err != nil {
			t.Errorf("%d uploads are unfinished, %v", n, err)
		}
	})
}
