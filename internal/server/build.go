package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/direct"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/messages"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// parts is everything a server is made of, in the order in which it is opened.
type parts struct {
	data       *dataDir
	db         *db.DB
	blobs      *blob.Store
	driver     sandbox.Driver
	caps       sandbox.Capabilities // of the driver
	pool       *sandbox.Pool
	audit      *audit.Log
	tenants    *tenant.Service
	files      *file.Service
	usage      *usage.Log
	containers *container.Service
	direct     *direct.Service
	messages   *messages.Service
	guard      *guard
	adminKey   string
}

// build opens the parts. On an error it closes what it had opened.
func build(ctx context.Context, cfg *Config, log *slog.Logger) (p *parts, err error) {
	p = &parts{}
	defer func() {
		if err != nil {
			err = errors.Join(fullDisk(cfg.Data, err), p.close(ctx))
			p = nil
		}
	}()
	if p.data, err = openData(ctx, cfg.Data); err != nil {
		return p, err
	}
	if err = p.openStores(ctx, cfg, log); err != nil {
		return p, err
	}
	if err = p.openSandboxes(ctx, cfg, log); err != nil {
		return p, err
	}
	return p, p.openMessages(ctx, cfg, log)
}

// fullDisk says what to do if the disk is why there is no server.
func fullDisk(data string, err error) error {
	if wire.AsError(err).Code != wire.CodeDiskFull {
		return err
	}
	return fmt.Errorf("the disk of the data folder %s is full, and a start needs a few megabytes: make room on it and start again; "+
		"of the folder itself only bases and snapshots may be deleted, which costs variables of interpreters: %w", data, err)
}

func (p *parts) openStores(ctx context.Context, cfg *Config, log *slog.Logger) (err error) {
	if p.db, err = db.Open(ctx, cmp.Or(cfg.Database, p.data.file("airlock.db"))); err != nil {
		return err
	}
	if p.blobs, err = blob.Open(ctx, cmp.Or(cfg.Blobs, p.data.file("blobs"))); err != nil {
		return err
	}
	if err := p.blobs.Ping(ctx); err != nil { // it may come up later than this server
		log.WarnContext(ctx, "blob store cannot be used; uploads and packed workspaces wait for it", "error", err)
	}
	cursor, err := p.db.Secret(ctx, "cursor", 32)
	if err != nil {
		return err
	}
	if err = p.openTenants(ctx, cfg, cursor, log); err != nil {
		return err
	}
	p.files = &file.Service{
		DB: p.db, Blobs: p.blobs, Log: log, Now: cfg.Now, MaxBytes: cfg.File.MaxBytes, CursorKey: cursor,
		QuotaBytes: cfg.File.QuotaBytes, UploadsDownloadable: cfg.File.UploadsDownloadable,
	}
	p.usage = &usage.Log{DB: p.db, Log: log}
	p.containers = &container.Service{
		DB: p.db, Files: p.files, Usage: p.usage, Blobs: p.blobs, Instance: p.data.instance, CursorKey: cursor, Now: cfg.Now, Log: log,
		DefaultRootFS: cfg.Sandbox.RootFS, Limits: cfg.Sandbox.limits(), Preload: cfg.Sandbox.preload(), MaxFile: cfg.File.MaxBytes,
		IdleTTL: cfg.Container.IdleTTL, MaxAge: cfg.Container.MaxAge, IdleFreeze: cfg.Container.IdleFreeze,
		IdleDestroy: cfg.Container.IdleDestroy, PackAfter: cfg.Container.PackAfter, BusyWait: cfg.Container.BusyWait, SweepEvery: cfg.Container.SweepEvery,
		PerApp: cfg.Container.PerApp, PerUser: cfg.Container.PerUser, KeepParkedRunning: !cfg.Container.FreezeParked,
	}
	p.direct = &direct.Service{Containers: p.containers, Ping: cfg.Messages.Ping, MaxFile: cfg.File.MaxBytes}
	if p.adminKey, err = p.tenants.EnsureAdminKey(ctx, p.data.file("admin.key")); err != nil {
		return err
	}
	_, err = p.tenants.EnsureDefaultApp(ctx)
	return err
}

// openTenants prepares who may call.
func (p *parts) openTenants(ctx context.Context, cfg *Config, cursor []byte, log *slog.Logger) error {
	identity, err := p.db.Secret(ctx, "app-identity", 32)
	if err != nil {
		return err
	}
	p.audit = &audit.Log{DB: p.db, Now: cfg.Now, CursorKey: cursor, Log: log, Keep: cfg.Audit.Keep, Max: cfg.Audit.Max}
	p.tenants = &tenant.Service{
		DB: p.db, Now: cfg.Now, CursorKey: cursor, Log: log, Audit: p.audit, IdentitySecret: identity,
		PlatformSecret: cfg.Identity.PlatformSecret, IdentityOverlap: cfg.Identity.Overlap, SigningOverlap: cfg.Identity.SigningOverlap,
		TokenIssuer: cfg.Identity.Issuer, Issuers: cfg.Issuers, Limits: tenant.RateLimits(cfg.Limits), KeepUsers: cfg.Users.Keep, MaxUsers: cfg.Users.Max,
	}
	return p.tenants.ReadIssuers(ctx)
}

func (p *parts) openSandboxes(ctx context.Context, cfg *Config, log *slog.Logger) (err error) {
	host := sandbox.Host{ID: p.data.instance, RunDir: p.data.file("run"), CgroupParent: cfg.Sandbox.CgroupParent, Log: log}
	driver, err := drivers.New(ctx, cmp.Or(cfg.Sandbox.Driver, "auto"), drivers.Options{
		Host: host, Runsc: cfg.Sandbox.Runsc, Platform: cfg.Sandbox.GVisorPlatform,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSandbox, err) // the driver beside an error is not one to close
	}
	p.driver = driver
	apps, err := p.tenants.AppsWithKeys(ctx)
	if err != nil {
		return err
	}
	if err := cfg.checkSharedKernel(p.driver.Name(), apps); err != nil {
		return err
	}
	p.tenants.MayAddApp = cfg.mayAddApp(p.driver.Name())

	probe, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if p.caps, err = p.driver.Probe(probe); err != nil {
		return fmt.Errorf("%w: %w", ErrNoSandbox, err)
	}
	if err := p.sayKernel(ctx, cfg, apps, log); err != nil {
		return err
	}
	if err := p.driver.Sweep(ctx); err != nil {
		return fmt.Errorf("sweep what the run before left: %w", err)
	}
	p.guard = &guard{data: p.data.path, log: log}
	p.guard.crowded, p.guard.full = cfg.Disk.Levels()
	p.guard.ballast = &sandbox.Ballast{Path: p.data.file("ballast"), Log: log}
	p.guard.trimBallast(ctx)
	if p.containers.Admission, err = cfg.Sandbox.admission(host, p.caps); err != nil {
		return err
	}
	p.containers.Driver = p.driver
	p.containers.Workspaces = &sandbox.Workspaces{Dir: p.data.file("workspaces"), Log: log}
	p.containers.Snapshots = &sandbox.Snapshots{Dir: p.data.file("snapshots"), Max: cfg.Disk.SnapshotBytes}
	p.containers.RootFS = &rootfs.Store{Dir: cfg.RootFS}
	p.containers.Admit = p.guard.admitSandbox
	p.containers.AdmitNew = p.guard.admitNew
	p.containers.AdmitSnapshot = p.guard.admitSnapshot
	p.containers.DiskFull = p.guard.isFull
	p.containers.TrimBallast = p.guard.trimBallast
	if !p.caps.Freeze {
		p.containers.IdleFreeze = -1
	}
	if _, err := p.containers.FindRootFS(""); err != nil {
		log.WarnContext(ctx, "no root file system, so no code can run: airlock rootfs build", "error", err)
	}
	if err := p.containers.Workspaces.Sweep(); err != nil {
		return fmt.Errorf("sweep half-made workspaces: %w", err)
	}
	r, err := p.containers.Recover(ctx)
	if err != nil {
		return err
	}
	if err := p.openPool(cfg, log); err != nil {
		return err
	}
	log.InfoContext(ctx, "containers recovered", "kept", r.Kept, "lost", r.Lost, "deleted", r.Deleted, "orphans_removed", r.Orphaned)
	return nil
}

// openPool prepares the pool, which Start fills. A container that has no memory to start takes the pool's.
func (p *parts) openPool(cfg *Config, log *slog.Logger) error {
	p.pool = &sandbox.Pool{
		Driver: p.driver, Workspaces: p.containers.Workspaces, Size: cfg.Sandbox.Pool, Log: log,
		Default: func() (sandbox.Class, error) { return p.containers.Class("") },
		Admit: func(ctx context.Context) error {
			if err := p.containers.AdmitSpare(ctx); err != nil {
				return err
			}
			return p.guard.admitSandbox(ctx)
		},
		AdmitBase: p.guard.admitSnapshot,
	}
	if cfg.Disk.SnapshotBytes > 0 {
		p.pool.Bases = &sandbox.Snapshots{Dir: p.data.file("bases"), Max: cfg.Disk.SnapshotBytes}
		if err := p.pool.Bases.Sweep(); err != nil {
			return err
		}
	}
	p.containers.Pool = p.pool
	p.containers.Admission.Spares, p.containers.Admission.Drain = p.pool.Uses, p.pool.Yield
	return nil
}

func (p *parts) openMessages(ctx context.Context, cfg *Config, log *slog.Logger) error {
	configs, err := upstreamConfigs(cfg)
	if err != nil {
		return err
	}
	set, err := upstream.New(configs, upstream.Options{Transport: cfg.UpstreamTransport, Now: cfg.Now})
	if err != nil {
		return err
	}
	if len(configs) == 0 {
		log.WarnContext(ctx, "no model: set ANTHROPIC_API_KEY or --upstream")
	}
	lib, err := p.library()
	if err != nil {
		return err
	}
	userKey, err := p.db.Secret(ctx, "user-id", 32)
	if err != nil {
		return err
	}
	p.messages = &messages.Service{
		Files: p.files, Containers: p.containers, Upstreams: set, Library: lib, UserKey: userKey,
		MaxIterations: cfg.Messages.MaxIterations, FirstEvent: cfg.Messages.FirstByte, PingEvery: cfg.Messages.Ping,
		Limits: codeexec.LimitsFor(p.containers.Limits.Wall), StrictVersion: cfg.StrictAPIVersion, Log: log,
		Parked:        codeexec.Parked{Wait: cfg.Messages.ToolWait, RaiseErrors: cfg.Messages.PTCRaiseErrors},
		CompactResume: cfg.Messages.CompactResume,
	}
	return nil
}

// upstreamConfigs orders the upstreams: the named ones first, then the one for every model that no pattern of theirs takes.
func upstreamConfigs(cfg *Config) ([]upstream.Config, error) {
	var all []upstream.Config
	var rest *upstream.Config
	for i, u := range cfg.Upstreams {
		c, err := namedUpstream(cfg, u)
		if err != nil {
			return nil, fmt.Errorf("upstreams.%d.url: %w", i, err)
		}
		if cfg.Upstream != "" && u.Name == cfg.Upstream {
			def := c
			def.Models = nil
			if len(c.Models) > 0 {
				def.Name += " (default)"
			}
			rest = &def
			if len(c.Models) == 0 {
				continue
			}
		}
		all = append(all, c)
	}
	if rest == nil {
		value := cfg.Upstream
		if value == "" && len(all) == 0 && cfg.Anthropic.APIKey != "" {
			value = string(upstream.KindAnthropic)
		}
		if value == "" {
			return all, nil
		}
		c, err := namedUpstream(cfg, Upstream{URL: value, APIKey: cfg.UpstreamKey})
		if err != nil {
			return nil, err
		}
		rest = &c
	}
	return append(all, *rest), nil
}

func namedUpstream(cfg *Config, u Upstream) (upstream.Config, error) {
	c, err := upstream.ParseValue(u.URL)
	if err != nil {
		return c, err
	}
	c.Name, c.Key, c.Models = cmp.Or(u.Name, c.Name), u.APIKey, u.Models
	if c.Kind == upstream.KindAnthropic {
		c.BaseURL, c.Key = cfg.Anthropic.BaseURL, cmp.Or(c.Key, cfg.Anthropic.APIKey)
	}
	return c, nil
}

// library is what the tool description promises to the model: read from the default image. Without an image there is
// nothing to promise, and the first container says what is missing.
func (p *parts) library() (codeexec.Library, error) {
	img, err := p.containers.FindRootFS("")
	if errors.Is(err, rootfs.ErrNotFound) {
		return codeexec.Library{}, nil
	}
	if err != nil {
		return codeexec.Library{}, fmt.Errorf("root file system: %w", err)
	}
	return libraryOf(img), nil
}

func (s *Sandbox) limits() sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: s.MemoryBytes, CPUs: s.CPUs, Processes: s.Processes, DiskBytes: s.DiskBytes, Inodes: s.Inodes,
		FileBytes: s.FileBytes, OpenFiles: s.OpenFiles, Wall: s.Wall, OutputBytes: s.OutputBytes,
	}.WithDefaults()
}

// Reserve is what sandboxes leave to the machine, in bytes, of so many bytes of memory.
func (s *Sandbox) Reserve(total int64) int64 {
	return cmp.Or(s.MemoryReserve, admission.ReserveFor(total))
}

// admission lets sandboxes start as memory allows.
func (s *Sandbox) admission(host sandbox.Host, caps sandbox.Capabilities) (*admission.Queue, error) {
	memory, err := sandbox.NewMemory(host)
	if err != nil {
		return nil, err
	}
	return &admission.Queue{
		Memory: memory.Read, Pressure: memory.Pressure, MaxPressure: s.MaxPressure, Reserve: s.MemoryReserve,
		Share: caps.ShareBytes, Wait: s.QueueWait,
	}, nil
}

func (s *Sandbox) preload() []string {
	var modules []string
	for name := range strings.SplitSeq(s.Preload, ",") {
		if name = strings.TrimSpace(name); name != "" {
			modules = append(modules, name)
		}
	}
	return modules
}

// close gives everything back, the last opened first. A nil part was never opened.
func (p *parts) close(ctx context.Context) error {
	var errs []error
	// Each has a time of its own: what one of them takes is not missing for the next.
	limited := func(limit time.Duration, end func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		errs = append(errs, end(ctx))
	}
	if p.containers != nil && p.containers.Workspaces != nil {
		limited(time.Minute, p.containers.Close)
	}
	if p.pool != nil {
		limited(20*time.Second, p.pool.Stop)
	}
	if p.driver != nil {
		limited(20*time.Second, p.driver.Close)
	}
	if p.audit != nil {
		limited(10*time.Second, p.audit.Close)
	}
	if p.blobs != nil {
		errs = append(errs, p.blobs.Close())
	}
	if p.db != nil {
		errs = append(errs, p.db.Close())
	}
	if p.data != nil {
		errs = append(errs, p.data.close())
	}
	return errors.Join(errs...)
}

// newLog makes the log of a server: standard error, in the form the settings ask for.
func newLog(cfg *Config) *slog.Logger {
	if cfg.Log != nil {
		return cfg.Log
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(cfg.LogLevel, "info"))); err != nil {
		level = slog.LevelInfo // Validate has refused anything else
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
