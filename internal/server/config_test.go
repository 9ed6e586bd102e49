package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	file := write(t, "listen: 127.0.0.1:1\nupstream: http://file\nsandbox:\n  driver: native\ncontainer:\n  idle_ttl: 2h\n")
	cfg, err := LoadConfig(LoadOptions{
		File:  file,
		Env:   []string{"AIRLOCK_LISTEN=127.0.0.1:2", "AIRLOCK_UPSTREAM=http://env", "AIRLOCK_SANDBOX_CPUS=0.5", "HOME=/x"},
		Flags: map[string]string{"listen": "127.0.0.1:3", "sandbox.allow_shared_kernel": "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "127.0.0.1:3" || cfg.Upstream != "http://env" || cfg.Container.IdleTTL != 2*time.Hour ||
		cfg.Sandbox.Driver != "native" || cfg.Sandbox.CPUs != 0.5 || !cfg.Sandbox.AllowSharedKernel ||
		cfg.Container.BusyWait != 30*time.Second {
		t.Errorf("got %+v", cfg)
	}
}

func TestUnknownKeysAreErrorsInEverySource(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]LoadOptions{
		"file":        {File: write(t, "sandbox:\n  drivre: native\n")},
		"environment": {Env: []string{"AIRLOCK_SANDBOX_DRIVRE=native"}},
		"flag":        {Flags: map[string]string{"drivre": "x"}},
	} {
		if _, err := LoadConfig(o); err == nil || !strings.Contains(strings.ToLower(err.Error()), "drivre") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValuesOfTheWrongKindAreErrors(t *testing.T) {
	t.Parallel()
	for _, kv := range []string{
		"AIRLOCK_SHUTDOWN_GRACE=10", "AIRLOCK_SANDBOX_CPUS=many", "AIRLOCK_SANDBOX_PROCESSES=1.5",
		"AIRLOCK_SANDBOX_ALLOW_SHARED_KERNEL=perhaps",
	} {
		if _, err := LoadConfig(LoadOptions{Env: []string{kv}}); err == nil {
			t.Errorf("%s was accepted", kv)
		}
	}
}

func TestClientAndTestVariablesAreNoSettings(t *testing.T) {
	t.Parallel()
	env := []string{"AIRLOCK_URL=x", "AIRLOCK_KEY=y", "AIRLOCK_TEST_POSTGRES_URL=z", "AIRLOCK_REQUIRE=root"}
	if _, err := LoadConfig(LoadOptions{Env: env}); err != nil {
		t.Error(err)
	}
}

func TestSecretsComeFromFilesAndAreMasked(t *testing.T) {
	t.Parallel()
	secret := write(t, "very-secret\n")
	cfg, err := LoadConfig(LoadOptions{Env: []string{
		"AIRLOCK_ANTHROPIC_API_KEY_FILE=" + secret,
		"AIRLOCK_UPSTREAM_KEY=very-secret",
		"AIRLOCK_DATABASE=postgres://me:very-secret@db/airlock?sslmode=disable&sslpassword=very-secret",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Anthropic.APIKey != "very-secret" {
		t.Errorf("key from file is %q", cfg.Anthropic.APIKey)
	}
	cfg.Upstreams = []Upstream{{Name: "a", URL: "http://u:very-secret@h", APIKey: "very-secret", Models: []string{"m-*"}}}
	var out bytes.Buffer
	if err := PrintConfig(&out, cfg); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "very-secret") || !strings.Contains(out.String(), masked) {
		t.Errorf("printed settings show a secret:\n%s", out.String())
	}
	if cfg.Upstreams[0].APIKey != "very-secret" {
		t.Error("printing changed the settings")
	}
	if _, err := LoadConfig(LoadOptions{File: write(t, out.String())}); err != nil {
		t.Errorf("printed settings cannot be loaded: %v", err)
	}
}

func TestSecretSetTwiceIsAnError(t *testing.T) {
	t.Parallel()
	env := []string{"AIRLOCK_UPSTREAM_KEY=a", "AIRLOCK_UPSTREAM_KEY_FILE=" + write(t, "b")}
	if _, err := LoadConfig(LoadOptions{Env: env}); err == nil {
		t.Error("accepted")
	}
}

func TestUpstreamsKeepTheirOrderAndTheChosenOneTakesTheRest(t *testing.T) {
	t.Parallel()
	named := []Upstream{
		{Name: "qwen", URL: "http://q", Models: []string{"qwen-*"}},
		{Name: "big", URL: "http://b"},
		{Name: "claude", URL: "anthropic", Models: []string{"claude-*"}},
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"nothing", Config{}, ""},
		{"key alone", Config{Anthropic: Anthropic{APIKey: "k"}}, "anthropic/k"},
		{"script", Config{Upstream: "script"}, "script/"},
		{"url with key", Config{Upstream: "http://h:1", UpstreamKey: "k"}, "h:1/k"},
		{"named", Config{Upstreams: named, Upstream: "big", Anthropic: Anthropic{APIKey: "k"}}, "qwen/ claude/k big/"},
		{"named with patterns", Config{Upstreams: named[:1], Upstream: "qwen"}, "qwen/ qwen (default)/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all, err := upstreamConfigs(&tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range all {
				got = append(got, c.Name+"/"+c.Key)
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got %q, want %q", g, tt.want)
			}
		})
	}
}
