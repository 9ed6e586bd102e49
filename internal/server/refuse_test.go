package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

func TestServingBeyondLoopbackNeedsTLSOrAProxy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"loopback", Config{Listen: "127.0.0.1:0"}, true},
		{"loopback v6", Config{Listen: "[::1]:0"}, true},
		{"localhost", Config{Listen: "localhost:1"}, true},
		{"everywhere", Config{Listen: "0.0.0.0:1"}, false},
		{"everywhere, short", Config{Listen: ":1"}, false},
		{"everywhere v6", Config{Listen: "[::]:1"}, false},
		{"a name", Config{Listen: "example.com:1"}, false},
		{"with TLS", Config{Listen: ":1", TLS: TLS{Cert: "c", Key: "k"}}, true},
		{"behind a proxy", Config{Listen: ":1", TLS: TLS{BehindProxy: "10.0.0.0/8"}}, true},
		{"behind nonsense", Config{Listen: ":1", TLS: TLS{BehindProxy: "proxy"}}, false},
		{"half a TLS", Config{Listen: "127.0.0.1:1", TLS: TLS{Cert: "c"}}, false},
		{"admin beyond", Config{Listen: "127.0.0.1:1", AdminListen: "0.0.0.0:2"}, false},
		{"no port", Config{Listen: "127.0.0.1"}, false},
		{"no pool", Config{Listen: "127.0.0.1:1", Sandbox: Sandbox{Pool: 0}}, true},
		{"less than no pool", Config{Listen: "127.0.0.1:1", Sandbox: Sandbox{Pool: -1}}, false},
		{"modules to preload", Config{Listen: "127.0.0.1:1", Sandbox: Sandbox{Preload: "numpy, os.path"}}, true},
		{"no modules to preload", Config{Listen: "127.0.0.1:1", Sandbox: Sandbox{Preload: "numpy;x"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.cfg.Validate(); (err == nil) != tt.ok {
				t.Errorf("Validate: %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func TestSharedKernelNeedsConsent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		listen string
		driver string
		apps   int
		allow  bool
		ok     bool
	}{
		{"one app on loopback", "127.0.0.1:1", "native", 1, false, true},
		{"two apps", "127.0.0.1:1", "native", 2, false, false},
		{"beyond loopback", "10.0.0.1:1", "native", 0, false, false},
		{"two apps allowed", "127.0.0.1:1", "native", 2, true, true},
		{"beyond loopback allowed", "10.0.0.1:1", "native", 0, true, true},
		{"own kernel", "10.0.0.1:1", "gvisor", 9, false, true},
		{"behind a proxy", "127.0.0.1:1", "native", 0, false, false},
		{"behind a proxy allowed", "127.0.0.1:1", "native", 0, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Listen: tt.listen, Sandbox: Sandbox{AllowSharedKernel: tt.allow}}
			if strings.HasPrefix(tt.name, "behind a proxy") {
				cfg.TLS.BehindProxy = "127.0.0.0/8"
			}
			err := cfg.checkSharedKernel(tt.driver, tt.apps)
			if (err == nil) != tt.ok {
				t.Fatalf("got %v, want ok %v", err, tt.ok)
			}
			if err != nil && (!strings.Contains(err.Error(), "sandbox.allow_shared_kernel") ||
				!strings.Contains(err.Error(), "AIRLOCK_SANDBOX_ALLOW_SHARED_KERNEL")) {
				t.Errorf("the refusal does not name the setting: %v", err)
			}
		})
	}
}

// The consent may be withdrawn after the second app got its key; then the start is what refuses.
func TestStartWithTwoAppsOnASharedKernelNeedsConsent(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Sandbox.Driver = "native"
	func() {
		r, stop := open(t, cfg)
		defer stop()
		r.newKey("default")
		r.json("POST", "/airlock/v1/apps", r.AdminKey(), map[string]any{"name": "second"}, 200, nil)
		r.newKey("second")
	}()
	cfg.Sandbox.AllowSharedKernel = false
	s, err := Open(t.Context(), cfg)
	if err == nil {
		t.Fatal("two apps with keys are served without consent", s.Close())
	}
	for _, want := range []string{"2 apps have keys or tokens", "sandbox.allow_shared_kernel: true", "AIRLOCK_SANDBOX_ALLOW_SHARED_KERNEL=true"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not say %q: %v", want, err)
		}
	}
	// It keeps nothing: the lock is free, and with consent the same folder is served again.
	cfg.Sandbox.AllowSharedKernel = true
	_, stop := open(t, cfg)
	stop()
}

// Only auto can take away a kernel of their own that sandboxes had: that consent to a shared one is there must not hide it.
func TestKernelThatAutoTakesAwayIsSaidLoudly(t *testing.T) {
	t.Parallel()
	own, shared := sandbox.Capabilities{Driver: "gvisor", Kernel: true}, sandbox.Capabilities{Driver: "native"}
	for _, tt := range []struct {
		name    string
		before  string
		setting string
		caps    sandbox.Capabilities
		apps    int
		want    string // level
		after   string // noted
	}{
		{"two apps lose it", "gvisor", "auto", shared, 2, "level=ERROR", "gvisor"},
		{"one app loses it", "gvisor", "", shared, 1, "level=WARN", "gvisor"},
		{"the operator wants native", "gvisor", "native", shared, 2, "", "native"},
		{"never had it", "native", "auto", shared, 2, "", "native"},
		{"a new folder", "", "auto", shared, 2, "", "native"},
		{"has it", "native", "auto", own, 2, "", "gvisor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := &parts{data: &dataDir{path: t.TempDir()}, caps: tt.caps}
			if tt.before != "" {
				if err := p.data.noteDriver(tt.before); err != nil {
					t.Fatal(err)
				}
			}
			cfg := &Config{Listen: "127.0.0.1:1", Sandbox: Sandbox{Driver: tt.setting, AllowSharedKernel: true}}
			if err := p.sayKernel(t.Context(), cfg, tt.apps, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(log.String(), "share the host's now"); got != (tt.want != "") || !strings.Contains(log.String(), tt.want) {
				t.Errorf("the log is %s", log.String())
			}
			if !strings.Contains(log.String(), `msg="sandbox driver" driver=`+tt.caps.Driver+" kernel=") {
				t.Errorf("the start does not say what the driver is: %s", log.String())
			}
			if got, err := p.data.lastDriver(); err != nil || got != tt.after {
				t.Errorf("noted %q, %v, want %q", got, err, tt.after)
			}
		})
	}
}

func TestAdminAddressIsLoopbackUnlessSet(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{"127.0.0.1:1": "", "0.0.0.0:1": "127.0.0.1:8788"} {
		if got := (&Config{Listen: listen}).adminAddress(); got != want {
			t.Errorf("listen %s: admin at %q, want %q", listen, got, want)
		}
	}
	if got := (&Config{Listen: "127.0.0.1:1", AdminListen: "127.0.0.1:2"}).adminAddress(); got != "127.0.0.1:2" {
		t.Errorf("admin at %q", got)
	}
	// A proxy on this machine would hand the admin routes to everybody.
	behind := Config{Listen: "127.0.0.1:1", TLS: TLS{BehindProxy: "127.0.0.0/8"}}
	if got := behind.adminAddress(); got != "127.0.0.1:8788" {
		t.Errorf("behind a proxy: admin at %q", got)
	}
}
