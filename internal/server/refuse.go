package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// isLoopback reports whether only this machine can reach an address to listen on.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// minToolWait is the shortest time in which a client can be expected to answer.
const minToolWait = 10 * time.Second

// Validate refuses settings that contradict each other or would serve unsafely.
func (c *Config) Validate() error {
	for key, address := range map[string]string{"listen": c.Listen, "admin_listen": c.AdminListen} {
		if key == "admin_listen" && address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("%s: %q is not an address like 127.0.0.1:8787", key, address)
		}
		if err := c.checkExposure(key, address); err != nil {
			return err
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return fmt.Errorf("tls.cert and tls.key belong together: one of them is missing")
	}
	if c.TLS.BehindProxy != "" {
		if _, err := netip.ParsePrefix(c.TLS.BehindProxy); err != nil {
			return fmt.Errorf("tls.behind_proxy: %q is not a network like 10.0.0.0/8", c.TLS.BehindProxy)
		}
	}
	if err := c.checkRoom(); err != nil {
		return err
	}
	if w := c.Messages.ToolWait; w != 0 && (w < minToolWait || w > codeexec.DefaultToolWait) {
		return fmt.Errorf("messages.tool_wait: %s is outside %s to %s", w, minToolWait, codeexec.DefaultToolWait)
	}
	if err := c.checkIdentity(); err != nil {
		return err
	}
	if c.Sandbox.Pool < 0 || c.Sandbox.Pool > 100 {
		return fmt.Errorf("sandbox.pool: %d is outside 0 to 100", c.Sandbox.Pool)
	}
	if err := sandbox.ValidPreload(c.Sandbox.preload()); err != nil {
		return fmt.Errorf("sandbox.preload: %w", err)
	}
	switch c.LogLevel {
	case "", "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("log_level: %q is not debug, info, warn or error", c.LogLevel)
	}
	switch c.LogFormat {
	case "", "text", "json":
	default:
		return fmt.Errorf("log_format: %q is not text or json", c.LogFormat)
	}
	return nil
}

// checkIdentity refuses settings of identity, limits and audit that cannot be meant.
func (c *Config) checkIdentity() error {
	for key, n := range map[string]int{
		"limits.app_messages": c.Limits.AppMessages, "limits.user_messages": c.Limits.UserMessages, "limits.app_requests": c.Limits.AppRequests,
		"limits.user_requests": c.Limits.UserRequests, "limits.misses": c.Limits.Misses, "audit.max": c.Audit.Max,
		"users.max": c.Users.Max,
	} {
		if n < 0 {
			return fmt.Errorf("%s: %d is below 0", key, n)
		}
	}
	for key, d := range map[string]time.Duration{
		"identity.overlap": c.Identity.Overlap, "identity.signing_overlap": c.Identity.SigningOverlap, "audit.keep": c.Audit.Keep,
		"users.keep": c.Users.Keep,
	} {
		if d < 0 {
			return fmt.Errorf("%s: %s is below 0", key, d)
		}
	}
	if v := c.Users.OnDelete; v != "" && v != deleteCuts && v != deleteWaits {
		return fmt.Errorf("users.on_delete: %q is not %s or %s", v, deleteCuts, deleteWaits)
	}
	if u, err := url.Parse(c.Identity.PublicURL); err != nil || (c.Identity.PublicURL != "" && (u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"))) {
		return fmt.Errorf("identity.public_url: %q is not an address like https://airlock.example.com", c.Identity.PublicURL)
	}
	return nil
}

// checkRoom refuses levels of memory and disk that cannot be meant.
func (c *Config) checkRoom() error {
	crowded, full := c.Disk.Levels()
	if crowded <= 0 || crowded > full || full > 1 {
		return fmt.Errorf("disk.crowded_percent, disk.full_percent: %g and %g are not two shares of a disk in this order, above 0 and at most 100",
			crowded*100, full*100)
	}
	switch {
	case c.Disk.SnapshotBytes < 0:
		return fmt.Errorf("disk.snapshot_bytes: %d bytes is below 0", c.Disk.SnapshotBytes)
	case c.Sandbox.MaxPressure < 0:
		return fmt.Errorf("sandbox.max_pressure: %g percent is below 0", c.Sandbox.MaxPressure)
	case c.Sandbox.QueueWait < 0:
		return fmt.Errorf("sandbox.queue_wait: %s is below 0", c.Sandbox.QueueWait)
	case c.Sandbox.MemoryReserve < 0:
		return fmt.Errorf("sandbox.memory_reserve: %d bytes is below 0", c.Sandbox.MemoryReserve)
	}
	return nil
}

// checkExposure: keys travel in headers, so nothing beyond this machine may be served in the clear.
func (c *Config) checkExposure(key, address string) error {
	if isLoopback(address) || c.TLS.Cert != "" || c.TLS.BehindProxy != "" {
		return nil
	}
	return fmt.Errorf("%s: %s can be reached from other machines without TLS; set tls.cert and tls.key, or "+
		"tls.behind_proxy to the network of a proxy that ends TLS, or listen on 127.0.0.1", key, address)
}

const sharedKernelSetting = "sandbox.allow_shared_kernel"

// checkSharedKernel: a sandbox of the native driver shares the host's kernel, so a kernel bug lets one tenant at the
// others. Serving several of them is the operator's explicit choice.
func (c *Config) checkSharedKernel(driver string, appsWithKeys int) error {
	why := c.strangers(appsWithKeys)
	if driver != "native" || c.Sandbox.AllowSharedKernel || why == "" {
		return nil
	}
	return fmt.Errorf("the native driver's sandboxes share this host's kernel, and %s; set %s: true (%s=true, serve --allow-shared-kernel) to accept "+
		"that, which SECURITY.md explains, or give each a kernel of its own with gVisor (make runsc)",
		why, sharedKernelSetting, envPrefix+strings.ToUpper(strings.ReplaceAll(sharedKernelSetting, ".", "_")))
}

// strangers says why code of people who do not know each other may run here; empty if there is no reason to think so.
func (c *Config) strangers(appsWithKeys int) string {
	switch {
	case !isLoopback(c.Listen):
		return "the server listens beyond this machine (" + c.Listen + ")"
	case c.TLS.BehindProxy != "":
		return "a proxy serves it to other machines (tls.behind_proxy)"
	case c.Identity.PlatformSecret != "":
		return "whoever has the platform secret may use every app (identity.platform_secret)"
	case appsWithKeys > 1:
		return fmt.Sprintf("%d apps have keys or tokens", appsWithKeys)
	}
	return ""
}

// sayKernel logs what stands between tenants. Consent to a shared kernel may be older than the kernels of their own that
// tenants have had since: where auto takes those away again, consent holds, and an operator must look. It is said at each
// start until sandbox.driver names the one or the other.
func (p *parts) sayKernel(ctx context.Context, cfg *Config, apps int, log *slog.Logger) error {
	kernel := "the host's"
	if p.caps.Kernel {
		kernel = "its own"
	}
	log.InfoContext(ctx, "sandbox driver", "driver", p.caps.Driver, "kernel", kernel, "cgroups", p.caps.CgroupMode, "disk_limit", p.caps.DiskLimit)
	before, err := p.data.lastDriver()
	if err != nil {
		return err
	}
	if p.caps.Kernel || cmp.Or(cfg.Sandbox.Driver, "auto") != "auto" || before != "gvisor" {
		return p.data.noteDriver(p.caps.Driver)
	}
	level, who := slog.LevelWarn, "one app on this machine"
	if why := cfg.strangers(apps); why != "" {
		level, who = slog.LevelError, why
	}
	log.Log(ctx, level, "sandboxes had kernels of their own before and share the host's now: make gVisor work again, "+
		"or set sandbox.driver to gvisor to be refused or to native to be content", "served_to", who)
	return nil
}

// mayAddApp answers before a second app gets its first key.
func (c *Config) mayAddApp(driver string) func() error {
	return func() error { return c.checkSharedKernel(driver, 2) }
}

// adminAddress is where the admin routes answer; empty = on the API's own listener. A proxy forwards what strangers send,
// so what it reaches is no place for them, even on loopback.
func (c *Config) adminAddress() string {
	if c.AdminListen != "" || isLoopback(c.Listen) && c.TLS.BehindProxy == "" {
		return c.AdminListen
	}
	return "127.0.0.1:8788"
}
