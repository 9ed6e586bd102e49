package direct

import (
	"strings"
	"testing"
	"time"
)

func TestExecParamsAreStrict(t *testing.T) {
	t.Parallel()
	text, num := "x", 400.0
	for name, p := range map[string]ExecParams{
		"neither":      {},
		"both":         {Argv: []string{"a"}, Command: "b"},
		"empty":        {Argv: []string{""}},
		"two stdins":   {Command: "a", Stdin: &text, StdinBase64: &text},
		"relative cwd": {Command: "a", Cwd: "x"},
		"nul":          {Argv: []string{"a\x00"}},
		"bad env":      {Command: "a", Env: map[string]string{"A=B": "c"}},
		"too long":     {Command: "a", TimeoutSeconds: &num},
	} {
		if err := p.Validate(300 * time.Second); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, p := range map[string]ExecParams{
		"argv.1":  {Argv: []string{"a", "\x00"}},
		"command": {Command: "\x00"},
		"cwd":     {Command: "a", Cwd: "/\x00"},
	} {
		if err := p.Validate(time.Second); err == nil || !strings.Contains(err.Error(), " "+name+": ") {
			t.Errorf("NUL in %s gave %v", name, err)
		}
	}
	for seconds, want := range map[float64]time.Duration{1e-12: time.Nanosecond, 0.5: time.Second / 2} {
		if got := (&ExecParams{TimeoutSeconds: &seconds}).timeout(); got != want {
			t.Errorf("%g s became %s", seconds, got)
		}
	}
	ok := ExecParams{Argv: []string{"true"}, Cwd: "/tmp", Env: map[string]string{"A": "b=c"}}
	if err := ok.Validate(time.Second); err != nil {
		t.Errorf("good parameters: %v", err)
	}
}
