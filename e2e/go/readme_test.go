package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const primePrompt = "Which prime follows 10000?"

// primeScript is a script as it stands inside a JSON or Go string.
const primeScript = "```bash\\necho 10007\\n```\\nIt is done."

// snippet is the first block of the README in that language, with the address of the server and another prompt.
func snippet(t *testing.T, language, prompt, with string) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n([^`]*" + regexp.QuoteMeta(prompt) + ".*?)```").FindSubmatch(readme)
	if m == nil {
		t.Fatalf("the README has no %s snippet with %q", language, prompt)
	}
	return strings.NewReplacer("http://127.0.0.1:8787", server.url, prompt, with, "bin/airlock", server.bin).Replace(string(m[1]))
}

// The snippets of the README do what they are there for, as they are but for the address and the prompt. Those in
// TypeScript run in ../ts.
func TestREADMESnippetForGo(t *testing.T) {
	t.Parallel()
	code := snippet(t, "go", primePrompt, primeScript)
	// Below this folder, so that the imports are those of go.mod.
	dir, err := os.MkdirTemp(".", ".readme-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "main.go")
	program := `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func main() {
` + code + `
	if err != nil {
		panic(err)
	}
	fmt.Println(message.RawJSON())
}
`
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", file)
	cmd.Env = append(os.Environ(), "AIRLOCK_KEY="+server.key)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `10007\n`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Here the prompts are scripts themselves, so that whoever tries it without a model sees something run.
func TestREADMESnippetForTheShell(t *testing.T) {
	t.Parallel()
	commands := snippet(t, "sh", primePrompt, primePrompt)
	dir := t.TempDir()
	readme, err := os.ReadFile("../../README.md")
	for name, content := range map[string][]byte{"README.md": readme, "words.txt": []byte("mine")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AIRLOCK_KEY="+server.key, "HOME="+dir, "XDG_STATE_HOME="+dir, "AIRLOCK_URL=")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `10007: 10007\n`) {
		t.Errorf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{"words (2).txt": " the\n", "words.txt": "mine"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
}
