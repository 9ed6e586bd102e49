package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What serve refuses before it opens anything, and with which exit code.
func TestServeRefusesWithTheRightExitCode(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(bad, []byte("lisen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		code int
	}{
		{"beyond loopback without TLS", []string{"--listen", "0.0.0.0:0"}, 1},
		{"beyond loopback behind a proxy on a shared kernel", []string{"--listen", "0.0.0.0:0", "--config", proxyConfig(t)}, 1},
		{"unknown upstream", []string{"--listen", "127.0.0.1:0", "--upstream", "nonsense"}, 1},
		{"unknown flag", []string{"--lisen", "127.0.0.1:0"}, 2},
		{"unknown key in the file", []string{"--config", bad}, 2},
		{"missing file", []string{"--config", bad + ".none"}, 2},
		{"an argument", []string{"now"}, 2},
		{"print", []string{"--print-config"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := run(append([]string{"serve", "--data", filepath.Join(data, tt.name)}, tt.args...)); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
		})
	}
	if got := run([]string{"sevre"}); got != 2 {
		t.Errorf("unknown command: exit code %d", got)
	}
}

func proxyConfig(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(name, []byte("tls:\n  behind_proxy: 10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
