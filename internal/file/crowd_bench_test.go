package file

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// BenchmarkCrowd compares what one user does beside 20,000 others in 50 apps, with 200,000 files, with the same on an empty
// server.
func BenchmarkCrowd(b *testing.B) {
	for _, files := range []int{0, 200_000} {
		s := &Service{DB: dbtest.SQLite(b), Blobs: blobtest.Folder(b), CursorKey: wire.NewCursorKey()}
		fill(b, s.DB, files)
		c := tenant.Caller{AppID: "app_7", UserID: "airlock/me", Scope: tenant.ScopeUser, AppProven: true, Gateway: true}
		var id ID
		upload := func(b *testing.B) {
			f, err := s.Upload(b.Context(), c, UploadParams{Filename: "a.txt", MIME: "text/plain", Body: strings.NewReader("x")})
			if err != nil {
				b.Fatal(err)
			}
			id = f.ID
		}
		for range 25 {
			upload(b)
		}
		b.Run(fmt.Sprintf("list/%d", files), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.List(b.Context(), c, ListParams{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("get/%d", files), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Get(b.Context(), c, id); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("authorize/%d", files), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Authorize(b.Context(), c, []ID{id}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("upload/%d", files), func(b *testing.B) {
			for b.Loop() {
				upload(b)
			}
		})
	}
}

// fill makes 50 apps and so many files of 20,000 users; every fiftieth is open to its app.
func fill(b *testing.B, d *db.DB, files int) {
	b.Helper()
	for _, s := range []string{
		`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49)
			INSERT INTO apps (id, name, created_at) SELECT 'app_' || i, 'a' || i, 0 FROM n`,
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO files (id, owner_app, owner_user, owner_scope, filename, mime_type, size_bytes, sha256, blob_key, origin, container_id, call_id, created_at)
			SELECT 'file_' || i, 'app_' || (i %% 50), 'airlock/u' || (i %% 20000), CASE WHEN i / 50 %% 50 = 0 THEN 'app' ELSE 'user' END,
				'f', 'text/plain', 1, '', 'files/' || i, 'upload', '', '', i FROM n WHERE i <= %d`, files, files),
	} {
		if err := d.RunTx(b.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.ExecContext(ctx, s)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}
