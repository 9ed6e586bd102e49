package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
)

// crowdFactor is how much longer anything may take on a server with many users than on an empty one.
const crowdFactor = 1.5

// ownFiles are those of the user who is measured, on both servers: more than a page.
const ownFiles = 25

// crowdRows compare what one user does on a server with 20,000 others in 50 apps with the same on an empty one, in one loop.
func crowdRows(ctx context.Context, l *lab, o options) []result {
	alone, err := openCrowd(ctx, l, o, 0)
	if err != nil {
		return []result{failed("the rows of many users", err)}
	}
	among, err := openCrowd(ctx, l, o, o.crowd)
	if err != nil {
		return []result{failed("the rows of many users", errors.Join(err, alone.stop()))}
	}
	var rows []result
	for _, does := range []struct {
		what string
		once func(context.Context, *visitor) (time.Duration, error)
	}{
		{"list", listFiles}, {"get", getFile}, {"upload", uploadFile}, {"streamed turn with a file", turnWithFile},
	} {
		medians, err := interleave(5*o.rounds,
			candidate{"alone", func() (time.Duration, error) { return does.once(ctx, alone) }},
			candidate{"among", func() (time.Duration, error) { return does.once(ctx, among) }},
		)
		what := fmt.Sprintf("%s among %d files of 20,000 users in 50 apps", does.what, o.crowd)
		if err != nil {
			rows = append(rows, failed(what, err))
			continue
		}
		rows = append(rows, ratioAtMost(what, "ms", medians["among"], medians["alone"], crowdFactor, "the same on an empty server"))
	}
	if err := errors.Join(alone.stop(), among.stop()); err != nil {
		rows = append(rows, failed("stop a server", err))
	}
	return rows
}

// visitor is the user who is measured.
type visitor struct {
	*user
	container, file string
}

// openCrowd starts a server on whose database lie so many files of others.
func openCrowd(ctx context.Context, l *lab, o options, files int) (*visitor, error) {
	dir := filepath.Join(filepath.Dir(l.dir), fmt.Sprintf("crowd-%d", files))
	start := func() (*server, error) {
		return startServer(ctx, o, driverName, dir, l.rootfs, "AIRLOCK_SANDBOX_POOL=0")
	}
	s, err := start()
	if err != nil {
		return nil, err
	}
	u, err := s.newUser(ctx, "", "me")
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	if err := fillCrowd(ctx, filepath.Join(dir, "airlock.db"), u.app, files); err != nil {
		return nil, fmt.Errorf("fill %s: %w", dir, err)
	}
	if s, err = start(); err != nil {
		return nil, err
	}
	v := &visitor{}
	if v.user, err = s.newUser(ctx, u.app, "me"); err == nil {
		err = v.settle(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return v, nil
}

// settle gives the user files of his own and a container that runs.
func (v *visitor) settle(ctx context.Context) (err error) {
	for range ownFiles {
		if v.file, _, err = v.put(ctx); err != nil {
			return err
		}
	}
	first := turn("", "```bash must\ntrue\n```\n")
	delete(first, "container")
	answer, _, err := v.post(ctx, "/messages", first)
	m := containerOf.FindSubmatch(answer)
	if err == nil && m == nil {
		err = fmt.Errorf("no container in %s", answer)
	}
	if err != nil {
		return err
	}
	v.container = string(m[1])
	return nil
}

var containerOf = regexp.MustCompile(`"id":\s*"(container_[^"]+)"`)

func listFiles(ctx context.Context, v *visitor) (time.Duration, error) {
	answer, took, err := v.send(ctx, http.MethodGet, "/files", "", nil)
	var page struct{ Data []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(answer, &page)
	}
	if err == nil && len(page.Data) == 0 {
		err = errors.New("a user with files is shown none")
	}
	return took, err
}

func getFile(ctx context.Context, v *visitor) (time.Duration, error) {
	_, took, err := v.send(ctx, http.MethodGet, "/files/"+v.file, "", nil)
	return took, err
}

func uploadFile(ctx context.Context, v *visitor) (time.Duration, error) {
	_, took, err := v.put(ctx)
	return took, err
}

func turnWithFile(ctx context.Context, v *visitor) (time.Duration, error) {
	request := turn(v.container, "")
	request["stream"] = true
	request["messages"] = []any{map[string]any{"role": "user", "content": []any{
		map[string]any{"type": "container_upload", "file_id": v.file},
		map[string]any{"type": "text", "text": "```bash must\necho hi\n```\n"},
	}}}
	_, took, err := v.post(ctx, "/messages", request)
	return took, err
}

// fillCrowd gives the app and 49 others 20,000 users with files; every fiftieth is open to its app. Only rows are made:
// nobody asks for the content of others.
func fillCrowd(ctx context.Context, path, app string, files int) (err error) {
	if files == 0 {
		return nil
	}
	d, err := db.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	const appOf = `CASE WHEN i % 50 = 0 THEN ? ELSE 'app_crowd' || (i % 50) END`
	return d.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		for _, step := range []struct {
			sql  string
			args []any
		}{
			{`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 49)
				INSERT INTO apps (id, name, created_at) SELECT 'app_crowd' || i, 'crowd' || i, 0 FROM n`, nil},
			{`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999)
				INSERT INTO users (id, app_id, issuer, sub, first_seen)
				SELECT 'user_crowd' || i, ` + appOf + `, 'airlock', 'u' || i, i FROM n`, []any{app}},
			{`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
				INSERT INTO files (id, owner_app, owner_user, owner_scope, filename, mime_type, size_bytes, sha256, blob_key, origin, container_id, call_id, created_at)
				SELECT 'file_crowd' || i, ` + appOf + `, 'airlock/u' || (i % 20000), CASE WHEN i / 50 % 50 = 0 THEN 'app' ELSE 'user' END,
					'f', 'text/plain', 1, '', 'files/crowd' || i, 'upload', '', '', i FROM n`, []any{files, app}},
		} {
			if _, err := tx.ExecContext(ctx, step.sql, step.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
