// Package containertest makes a container service for tests: a real driver, a real root file system, a database that the
// test chooses, and a clock that the test moves.
package containertest

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Env is a service with what stands around it.
type Env struct {
	*container.Service
	Tenants *tenant.Service
	Clock   *Clock
	// Caller and Other are the owners of two apps.
	Caller, Other tenant.Caller
	// Dir is the data folder; another Env on it is the same instance after a restart.
	Dir string

	driver string
}

// Clock is a time that only Add moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now is the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// New makes a service on d with the native driver. It fails the test where this host or the missing root file system makes
// sandboxes impossible.
func New(t testing.TB, d *db.DB) *Env {
	t.Helper()
	return NewOn(t, d, "native")
}

// Drivers are those that a test of both goes through.
func Drivers() []string { return []string{"native", "gvisor"} }

// NewOn is New with the driver of this name. It skips gvisor where that was not built, unless it is required.
func NewOn(t testing.TB, d *db.DB, driver string) *Env {
	t.Helper()
	e := &Env{Dir: t.TempDir(), Clock: &Clock{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}, driver: driver}
	key := wire.NewCursorKey()
	e.Tenants = &tenant.Service{DB: d, Now: e.Clock.Now, CursorKey: key}
	e.Caller, e.Other = e.app(t, "one"), e.app(t, "two")
	blobs, err := blob.Open(t.Context(), filepath.Join(e.Dir, "blobs"))
	must(t, err)
	t.Cleanup(func() { must(t, blobs.Close()) })
	files := &file.Service{DB: d, Blobs: blobs, Now: e.Clock.Now, CursorKey: key}
	e.Service = e.service(t, d, files, strings.ToLower(rand.Text()[:12]))
	return e
}

// Restart gives a second service on the same rows, images and instance, as after a start. Close the first one before,
// or leave it as a crash would.
func (e *Env) Restart(t testing.TB) *Env {
	t.Helper()
	next := *e
	next.Service = e.service(t, e.DB, e.Files, e.Instance)
	return &next
}

// Neighbour gives a service of another instance on the same database, with its own disk.
func (e *Env) Neighbour(t testing.TB) *Env {
	t.Helper()
	next := *e
	next.Dir = t.TempDir()
	next.Service = next.service(t, e.DB, e.Files, strings.ToLower(rand.Text()[:12]))
	return &next
}

func (e *Env) service(t testing.TB, d *db.DB, files *file.Service, instance string) *container.Service {
	t.Helper()
	store, image := Image(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	run := filepath.Join(e.Dir, "run")
	must(t, os.MkdirAll(run, 0o700))
	must(t, os.MkdirAll(filepath.Join(e.Dir, "workspaces"), 0o700))
	o := drivers.Options{Host: sandbox.Host{ID: instance, RunDir: run, Log: log}}
	if e.driver == "gvisor" {
		o.Runsc = runsc(t)
	}
	driver, err := drivers.New(t.Context(), e.driver, o)
	must(t, err)
	s := &container.Service{
		DB: d, Files: files, Blobs: files.Blobs, Driver: driver, Usage: &usage.Log{DB: d, Log: log}, Instance: instance, Now: e.Clock.Now, Log: log, CursorKey: files.CursorKey,
		Workspaces: &sandbox.Workspaces{Dir: filepath.Join(e.Dir, "workspaces"), Log: log},
		Snapshots:  &sandbox.Snapshots{Dir: filepath.Join(e.Dir, "snapshots"), Max: 1 << 30},
		RootFS:     store, DefaultRootFS: image.Name,
		Limits: sandbox.Limits{MemoryBytes: 256 << 20, DiskBytes: 64 << 20, Inodes: 5000}.WithDefaults(),
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		must(t, s.Close(ctx))
		must(t, driver.Close(ctx))
	})
	return s
}

// runsc is what make runsc builds, found from wherever in the tree a test runs.
func runsc(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "bin", "runsc")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "gvisor") {
		t.Fatal("gvisor is required: run make runsc")
	}
	t.Skip("gvisor is not built: run make runsc")
	return ""
}

func (e *Env) app(t testing.TB, name string) tenant.Caller {
	t.Helper()
	app, err := e.Tenants.CreateApp(t.Context(), name)
	must(t, err)
	return tenant.Caller{AppID: app.ID, AppProven: true, Scope: tenant.ScopeUser}
}

// Image finds the smallest root file system of this host: the folder AIRLOCK_TEST_ROOTFS, or min or base of the store.
func Image(t testing.TB) (*rootfs.Store, *rootfs.Image) {
	t.Helper()
	if tree := os.Getenv("AIRLOCK_TEST_ROOTFS"); tree != "" {
		folder := filepath.Dir(filepath.Clean(tree))
		store := &rootfs.Store{Dir: filepath.Dir(folder)}
		img, err := store.Get(filepath.Base(folder))
		must(t, err)
		return store, img
	}
	home := os.Getenv("XDG_DATA_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		must(t, err)
		home = filepath.Join(user, ".local", "share")
	}
	store := &rootfs.Store{Dir: filepath.Join(home, "airlock", "rootfs")}
	for _, profile := range []string{"min", "base", "office"} {
		if img, err := store.Get(profile); err == nil {
			return store, img
		}
	}
	t.Fatalf("there is no root file system in %s; make one with: bin/airlock rootfs build --profile min", store.Dir)
	return nil, nil
}

// Upload stores a file for a caller.
func (e *Env) Upload(t testing.TB, c tenant.Caller, name, content string) *file.File {
	t.Helper()
	f, err := e.Files.Upload(t.Context(), c, file.UploadParams{Filename: name, Body: strings.NewReader(content)})
	must(t, err)
	return f
}

// Exec runs a command in a turn of its own, as the direct door does: what it leaves behind lives on.
func (e *Env) Exec(ctx context.Context, caller tenant.Caller, id container.ID, c sandbox.Command, stdout, stderr io.Writer) (sandbox.Result, error) {
	c.Stdout, c.Stderr, c.Keep = stdout, stderr, true
	var res sandbox.Result
	err := e.Use(ctx, caller, id, false, func(ctx context.Context, m container.Metered) (err error) {
		res, err = m.Exec(ctx, c)
		return err
	})
	return res, err
}

// Sh runs a shell command in a container and returns its output and how it ended.
func (e *Env) Sh(t testing.TB, id container.ID, command string) (string, sandbox.Result) {
	t.Helper()
	var out strings.Builder
	res, err := e.Exec(t.Context(), e.Caller, id, sandbox.Command{Shell: command}, &out, &out)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out.String(), res
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
