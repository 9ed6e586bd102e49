package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// sdkFixture serves the routes behind real authentication and gives the official client for one app.
func sdkFixture(t *testing.T, d *db.DB) (anthropic.Client, *file.Service, tenant.Caller) {
	t.Helper()
	tenants := &tenant.Service{DB: d, CursorKey: wire.NewCursorKey()}
	app, err := tenants.CreateApp(t.Context(), "sdk")
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := tenants.CreateKey(t.Context(), tenant.NewKey{App: app.ID})
	if err != nil {
		t.Fatal(err)
	}
	s := &file.Service{DB: d, Blobs: blobtest.Folder(t), Log: quietLog, CursorKey: wire.NewCursorKey()}
	mux := &wire.Mux{Log: quietLog}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, tenant.Caller) error{
		"POST /v1/files": s.ServeUpload, "GET /v1/files": s.ServeList, "GET /v1/files/{id}": s.ServeGet,
		"GET /v1/files/{id}/content": s.ServeDownload, "DELETE /v1/files/{id}": s.ServeDelete,
	} {
		mux.Handle(pattern, wire.Handler(quietLog, func(w http.ResponseWriter, r *http.Request) error {
			c, err := tenants.Authenticate(r, tenant.KindAPIKey)
			if err != nil {
				return err
			}
			return h(w, r, c)
		}))
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	client := anthropic.NewClient(option.WithBaseURL(srv.URL), option.WithAPIKey(key), option.WithMaxRetries(0))
	return client, s, tenant.Caller{AppID: app.ID}
}

func TestOfficialClientDoesEveryFileCall(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) {
		client, s, c := sdkFixture(t, d)
		ctx := t.Context()
		_, err := client.Files.Upload(ctx, anthropic.FileUploadParams{
			File: anthropic.File(strings.NewReader("a,b\n"), `reports/größe "x".csv`, "text/csv"), ExpiresInSeconds: anthropic.Int(3600),
		})
		if err == nil {
			t.Error("a name with quotes was accepted")
		}
		up, err := client.Files.Upload(ctx, anthropic.FileUploadParams{
			File: anthropic.File(strings.NewReader("a,b\n"), "reports/größe 组.csv", "text/csv"), ExpiresInSeconds: anthropic.Int(3600),
		})
		if err != nil || up.Filename != "größe 组.csv" || up.MimeType != "text/csv" || up.SizeBytes != 4 || up.Downloadable || up.ExpiresAt.IsZero() {
			t.Fatalf("%+v, %v", up, err)
		}
		bare, err := client.Files.Upload(ctx, anthropic.FileUploadParams{File: bytes.NewReader([]byte("%PDF-1.7\n"))})
		if err != nil || bare.MimeType != "application/pdf" || bare.SizeBytes != 9 {
			t.Fatalf("a bare reader: %+v, %v", bare, err)
		}
		if got, err := client.Files.GetMetadata(ctx, up.ID, anthropic.FileGetMetadataParams{}); err != nil || got.Filename != up.Filename {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = client.Files.Download(ctx, up.ID, anthropic.FileDownloadParams{})
		wantAPIError(t, err, 400, "file_not_downloadable")
		out, err := s.CreateOutput(ctx, c.Owner(), file.OutputParams{Filename: "out.bin", Body: bytes.NewReader(randomBytes(100_000))})
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Files.Download(ctx, string(out.ID), anthropic.FileDownloadParams{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || !bytes.Equal(b, randomBytes(100_000)) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		page, err := client.Files.List(ctx, anthropic.FileListParams{IDs: []string{up.ID, "file_01none"}})
		if err != nil || len(page.Data) != 1 || page.Data[0].ID != up.ID {
			t.Errorf("ids: %+v, %v", page, err)
		}
		del, err := client.Files.Delete(ctx, up.ID, anthropic.FileDeleteParams{})
		if err != nil || del.ID != up.ID {
			t.Errorf("%+v, %v", del, err)
		}
		_, err = client.Files.Delete(ctx, up.ID, anthropic.FileDeleteParams{})
		wantAPIError(t, err, 404, "")
	})
}

func wantAPIError(t *testing.T, err error, status int, code string) {
	t.Helper()
	var e *anthropic.Error
	if !errors.As(err, &e) {
		t.Errorf("got %v, want an API error", err)
		return
	}
	if e.StatusCode != status || e.Details.ErrorCode != code || e.RequestID == "" {
		t.Errorf("%d %q request %q, want %d %q", e.StatusCode, e.Details.ErrorCode, e.RequestID, status, code)
	}
}

func TestOfficialPagerVisits2500FilesOnce(t *testing.T) {
	t.Parallel()
	client, s, c := sdkFixture(t, dbtest.SQLite(t))
	const n = 2500
	for i := range n {
		if _, err := s.CreateOutput(t.Context(), c.Owner(), file.OutputParams{Filename: fmt.Sprint(i), Body: strings.NewReader("")}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	pager := client.Files.ListAutoPaging(t.Context(), anthropic.FileListParams{Limit: anthropic.Int(100)})
	for pager.Next() {
		seen[pager.Current().ID] = true
	}
	if err := pager.Err(); err != nil || len(seen) != n {
		t.Errorf("%d files, %v", len(seen), err)
	}
}
