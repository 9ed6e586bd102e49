package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/audit"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/messages"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Config is every setting. The yaml name is the key in the file; the environment variable is AIRLOCK_ and the key in
// capitals with "." as "_" (sandbox.driver: AIRLOCK_SANDBOX_DRIVER). Lists come from the file only. A key that ends in
// _file names a file that holds the secret of that name.
type Config struct {
	Listen      string `yaml:"listen"`                // address of the API
	Data        string `yaml:"data"`                  // data folder
	Upstream    string `yaml:"upstream"`              // anthropic, a URL, script, or a name from upstreams; empty = anthropic if a key is set
	AdminListen string `yaml:"admin_listen"`          // address of the admin routes; empty = the API's own, on loopback and without a proxy; else 127.0.0.1:8788
	Database    string `yaml:"database" secret:"url"` // postgres:// URL; empty = SQLite in the data folder
	Blobs       string `yaml:"blobs" secret:"url"`    // s3:// URL or a folder; empty = in the data folder
	RootFS      string `yaml:"rootfs"`                // folder of root file systems, shared by all data folders

	DatabaseFile string `yaml:"database_file"`

	// UpstreamKey is sent to an upstream given by URL.
	UpstreamKey     string `yaml:"upstream_key" secret:"all"`
	UpstreamKeyFile string `yaml:"upstream_key_file"`

	Sandbox   Sandbox           `yaml:"sandbox"`
	TLS       TLS               `yaml:"tls"`
	Anthropic Anthropic         `yaml:"anthropic"`
	Upstreams []Upstream        `yaml:"upstreams"`
	Container ContainerSettings `yaml:"container"`
	Disk      DiskSettings      `yaml:"disk"`
	File      FileSettings      `yaml:"file"`
	Messages  MessagesSettings  `yaml:"messages"`
	Identity  IdentitySettings  `yaml:"identity"`
	Issuers   []jwt.Issuer      `yaml:"issuers"` // whose tokens are taken beside our own; id, issuer, audience, azp_patterns, alg, key or key_file or jwks, binds_apps
	Limits    LimitSettings     `yaml:"limits"`
	Audit     AuditSettings     `yaml:"audit"`
	Users     UserSettings      `yaml:"users"`

	ShutdownGrace    time.Duration `yaml:"shutdown_grace"`     // how long running turns may go on after SIGTERM
	StrictAPIVersion bool          `yaml:"strict_api_version"` // refuse what anthropic-version 2026-10-21 removed
	StrictBetas      bool          `yaml:"strict_betas"`       // refuse unknown anthropic-beta names
	LogLevel         string        `yaml:"log_level"`          // debug, info, warn, error
	LogFormat        string        `yaml:"log_format"`         // text, json

	// The rest cannot be set from outside the program.

	// Log receives everything; nil = made from LogLevel and LogFormat on stderr.
	Log *slog.Logger `yaml:"-"`
	// Now is the clock of expiries; nil = time.Now.
	Now func() time.Time `yaml:"-"`
	// UpstreamTransport replaces the network towards upstreams in tests; nil = the default.
	UpstreamTransport http.RoundTripper `yaml:"-"`
	// Version is shown by /version; empty = unknown.
	Version wire.Build `yaml:"-"`
}

// Sandbox settings; zero limits are those of sandbox.DefaultLimits.
type Sandbox struct {
	Driver            string        `yaml:"driver"`          // auto (gvisor if it is there and passes its self-test), native, gvisor
	Runsc             string        `yaml:"runsc"`           // gVisor's program; empty = beside airlock, else in PATH
	GVisorPlatform    string        `yaml:"gvisor_platform"` // systrap (default), kvm, auto (kvm if it passes its self-test)
	RootFS            string        `yaml:"rootfs"`          // image of containers that ask for none; empty = office, else the largest
	AllowSharedKernel bool          `yaml:"allow_shared_kernel"`
	MemoryBytes       int64         `yaml:"memory_bytes"`
	CPUs              float64       `yaml:"cpus"`
	Processes         int           `yaml:"processes"`
	DiskBytes         int64         `yaml:"disk_bytes"`
	Inodes            int64         `yaml:"inodes"`
	FileBytes         int64         `yaml:"file_bytes"`
	OpenFiles         int           `yaml:"open_files"`
	Wall              time.Duration `yaml:"wall"` // time limit of one command
	OutputBytes       int64         `yaml:"output_bytes"`
	// Pool is how many sandboxes are kept ready for fresh containers, of the default image and of each that was asked for
	// in the last ten minutes; 0 = none.
	Pool int `yaml:"pool"`
	// Preload names the Python modules, separated by commas, that a fork server inside each sandbox has imported before
	// the first cell asks; empty = no fork server.
	Preload string `yaml:"preload"`
	// CgroupParent is the cgroup below which sandboxes get theirs, from the root of each hierarchy, e.g. /airlock; empty =
	// the server's own, and on cgroup v2 a fresh group at the top where that is refused.
	CgroupParent string `yaml:"cgroup_parent"`
	// MemoryReserve is what sandboxes must leave to the host; 0 = the larger of 2 GiB and 10 %, at most a quarter.
	MemoryReserve int64 `yaml:"memory_reserve"`
	// MaxPressure is the share of time, in percent, that work on this machine may wait for memory (some avg10 of
	// /proc/pressure/memory); from there on no sandbox starts.
	MaxPressure float64 `yaml:"max_pressure"`
	// QueueWait is how long the start of a sandbox waits for memory before the answer is 529.
	QueueWait time.Duration `yaml:"queue_wait"`
}

// TLS of the API listener. Beyond loopback one of the two forms is required.
type TLS struct {
	Cert        string `yaml:"cert"`
	Key         string `yaml:"key"`
	BehindProxy string `yaml:"behind_proxy"` // CIDR from which a proxy that ends TLS connects
}

// Anthropic is the upstream of that name.
type Anthropic struct {
	APIKey     string `yaml:"api_key" secret:"all"` // empty = ANTHROPIC_API_KEY
	APIKeyFile string `yaml:"api_key_file"`
	BaseURL    string `yaml:"base_url"`
}

// Upstream is a named endpoint that serves POST /v1/messages.
type Upstream struct {
	Name       string   `yaml:"name"`
	URL        string   `yaml:"url" secret:"url"` // a base URL, anthropic or script
	APIKey     string   `yaml:"api_key" secret:"all"`
	APIKeyFile string   `yaml:"api_key_file"`
	Models     []string `yaml:"models"` // patterns of model names with *, for example "qwen-*"; empty = every model
}

// ContainerSettings are the life times of containers and their sandboxes.
type ContainerSettings struct {
	IdleTTL     time.Duration `yaml:"idle_ttl"`     // life after the last use
	MaxAge      time.Duration `yaml:"max_age"`      // life from creation
	IdleFreeze  time.Duration `yaml:"idle_freeze"`  // a sandbox without a turn is frozen
	IdleDestroy time.Duration `yaml:"idle_destroy"` // and destroyed; the workspace stays
	PackAfter   time.Duration `yaml:"pack_after"`   // an unused workspace is compressed into the blob store; negative = never
	BusyWait    time.Duration `yaml:"busy_wait"`    // a request waits for a busy container
	// FreezeParked stops a sandbox whose code waits for the client's answer to a call, until it comes.
	FreezeParked bool          `yaml:"freeze_parked"`
	SweepEvery   time.Duration `yaml:"sweep_every"`
	// PerApp and PerUser are how many containers of an app, and of one user in it, work at once; one more is answered 429.
	// 0 = no limit. API keys have the share of their app.
	PerApp  int `yaml:"per_app"`
	PerUser int `yaml:"per_user"`
}

// DiskSettings say how full the file system of the data folder may become.
type DiskSettings struct {
	CrowdedPercent float64 `yaml:"crowded_percent"` // from here on no uploads and no new containers
	FullPercent    float64 `yaml:"full_percent"`    // from here on reads and deletes only
	// SnapshotBytes is the space for the variables of interpreters whose sandbox was put away, which gVisor can keep; the
	// oldest make room, and from crowded_percent on there are none. 0 = they are never kept, nor is a sandbox of the pool.
	SnapshotBytes int64 `yaml:"snapshot_bytes"`
}

// Levels are the shares of the two settings.
func (d DiskSettings) Levels() (crowded, full float64) {
	return cmp.Or(d.CrowdedPercent, 85) / 100, cmp.Or(d.FullPercent, 95) / 100
}

// FileSettings of the Files API.
type FileSettings struct {
	MaxBytes            int64 `yaml:"max_bytes"`            // one file
	QuotaBytes          int64 `yaml:"quota_bytes"`          // all live files of one app; 0 = no limit
	UploadsDownloadable bool  `yaml:"uploads_downloadable"` // the hosted API gives out outputs only
}

// MessagesSettings of the turn loop.
type MessagesSettings struct {
	MaxIterations int           `yaml:"max_iterations"` // sampling rounds in one response
	FirstByte     time.Duration `yaml:"first_byte"`     // wait for the first upstream event before the status is sent
	Ping          time.Duration `yaml:"ping"`           // quiet time after which a stream gets a ping
	// ToolWait is how long code in a cell waits for the client's answer to a tool that it called, from the end of the
	// response on; 10s to 270s.
	ToolWait time.Duration `yaml:"tool_wait"`
	// PTCRaiseErrors raises a tool_result with is_error in the code that called; else the code gets its text, as from the
	// hosted service.
	PTCRaiseErrors bool `yaml:"ptc_raise_errors"`
	// CompactResume streams a response that has nothing but further calls of code in message_start, as the hosted service does.
	CompactResume bool `yaml:"compact_resume"`
}

// IdentitySettings are of our own tokens and of those by which applications prove themselves.
type IdentitySettings struct {
	Issuer         string        `yaml:"issuer"`          // the claim iss of our tokens; another value ends those made before
	PublicURL      string        `yaml:"public_url"`      // where applications reach this server, as app env says it; empty = the listening address
	Overlap        time.Duration `yaml:"overlap"`         // an app's identity token is taken so long after it was rotated
	SigningOverlap time.Duration `yaml:"signing_overlap"` // a signing key verifies so long after it was rotated
	// PlatformSecret lets in identity tokens that are the plain HMAC-SHA-256 of the app's id under it, in hex; empty = none.
	PlatformSecret     string `yaml:"platform_secret" secret:"all"`
	PlatformSecretFile string `yaml:"platform_secret_file"`
}

// LimitSettings bind every app and user for whom nothing else is set; 0 = no limit. Each server counts by itself.
type LimitSettings struct {
	AppMessages  int `yaml:"app_messages"`  // messages of an app in flight
	UserMessages int `yaml:"user_messages"` // messages of a user in flight
	AppRequests  int `yaml:"app_requests"`  // requests of an app in a minute
	UserRequests int `yaml:"user_requests"` // requests of a user in a minute
	Misses       int `yaml:"misses"`        // answers Not found to one user in a minute
}

// AuditSettings bound what is kept of refusals and changes.
type AuditSettings struct {
	Keep time.Duration `yaml:"keep"`
	Max  int           `yaml:"max"` // entries
}

// UserSettings bound what is remembered of users, and say what becomes of the requests of one who is deleted.
type UserSettings struct {
	Keep     time.Duration `yaml:"keep"`      // who owns nothing and is not blocked is forgotten so long after the last request
	Max      int           `yaml:"max"`       // users of one app that are remembered
	OnDelete string        `yaml:"on_delete"` // running requests of a deleted user: cut (default) or finish
}

// DefaultConfig is the configuration of `airlock serve` without any setting.
func DefaultConfig() Config {
	return Config{
		Listen:  "127.0.0.1:8787",
		Data:    defaultData(),
		RootFS:  defaultRootFS(),
		Sandbox: Sandbox{Driver: "auto", Pool: 2, MaxPressure: 25, QueueWait: 30 * time.Second, Preload: strings.Join(sandbox.DefaultPreload(), ",")},
		Disk:    DiskSettings{CrowdedPercent: 85, FullPercent: 95, SnapshotBytes: 8 << 30},
		Container: ContainerSettings{
			IdleTTL: time.Hour, MaxAge: 30 * 24 * time.Hour, IdleFreeze: 30 * time.Second, IdleDestroy: 10 * time.Minute,
			PackAfter: time.Hour, BusyWait: 30 * time.Second, SweepEvery: time.Second, PerApp: 32, PerUser: 8, FreezeParked: true,
		},
		File:          FileSettings{MaxBytes: file.DefaultMaxBytes},
		Identity:      IdentitySettings{Issuer: jwt.OwnIssuer, Overlap: tenant.DefaultIdentityOverlap, SigningOverlap: tenant.DefaultSigningOverlap},
		Limits:        LimitSettings{AppMessages: 64, UserMessages: 16, UserRequests: 1000, Misses: 60},
		Users:         UserSettings{Keep: tenant.DefaultKeepUsers, Max: tenant.DefaultMaxUsers, OnDelete: deleteCuts},
		Audit:         AuditSettings{Keep: audit.DefaultKeep, Max: audit.DefaultMax},
		Messages:      MessagesSettings{MaxIterations: messages.DefaultMaxIterations, FirstByte: messages.DefaultFirstEvent, Ping: messages.DefaultPingEvery, ToolWait: codeexec.DefaultToolWait},
		ShutdownGrace: 10 * time.Minute,
		LogLevel:      "info",
		LogFormat:     "text",
	}
}
