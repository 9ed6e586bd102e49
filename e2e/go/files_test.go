package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"
)

func upload(t *testing.T, c anthropic.Client, name, text string) *anthropic.FileMetadata {
	t.Helper()
	f, err := c.Files.Upload(t.Context(), anthropic.FileUploadParams{File: anthropic.File(strings.NewReader(text), name, "text/plain")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFileListPagesThroughEverythingOnce(t *testing.T) {
	t.Parallel()
	c := newClient(newApp(t))
	var want []string
	for i := range 7 {
		want = append([]string{upload(t, c, fmt.Sprintf("f%d.txt", i), "x").ID}, want...)
	}
	var got []string
	pager := c.Files.ListAutoPaging(t.Context(), anthropic.FileListParams{Limit: anthropic.Int(3)})
	for pager.Next() {
		got = append(got, pager.Current().ID)
	}
	if err := pager.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("newest first (-want +got):\n%s", diff)
	}
}

func TestDeletedFileIsGone(t *testing.T) {
	t.Parallel()
	c := newClient(newApp(t))
	f := upload(t, c, "a.txt", "x")
	if d, err := c.Files.Delete(t.Context(), f.ID, anthropic.FileDeleteParams{}); err != nil || d.ID != f.ID {
		t.Fatalf("delete: %v, %v", d, err)
	}
	_, err := c.Files.GetMetadata(t.Context(), f.ID, anthropic.FileGetMetadataParams{})
	var e *anthropic.Error
	if !errors.As(err, &e) || e.StatusCode != 404 {
		t.Errorf("metadata of a deleted file: %v, want 404", err)
	}
	if _, err := c.Files.Delete(t.Context(), f.ID, anthropic.FileDeleteParams{}); !errors.As(err, &e) || e.StatusCode != 404 {
		t.Errorf("second delete: %v, want 404", err)
	}
}

func TestFileNamesComeBackAsSent(t *testing.T) {
	t.Parallel()
	c := newClient(newApp(t))
	for _, tt := range []struct{ sent, want string }{
		{"报告 größe.txt", "报告 größe.txt"},
		{"folder/../x.txt", "x.txt"},
		{"", "unnamed.txt"},
	} {
		if got := upload(t, c, tt.sent, "x").Filename; got != tt.want {
			t.Errorf("%q became %q, want %q", tt.sent, got, tt.want)
		}
	}
}

func TestExpiryIsShownAndChecked(t *testing.T) {
	t.Parallel()
	c := newClient(newApp(t))
	f, err := c.Files.Upload(t.Context(), anthropic.FileUploadParams{File: strings.NewReader("x"), ExpiresInSeconds: anthropic.Int(3600)})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.ExpiresAt.Sub(f.CreatedAt).Seconds(); got != 3600 {
		t.Errorf("expires %v s after its creation", got)
	}
	if _, err := c.Files.Upload(t.Context(), anthropic.FileUploadParams{File: strings.NewReader("x"), ExpiresInSeconds: anthropic.Int(3599)}); err == nil {
		t.Error("3599 s was accepted")
	}
}
