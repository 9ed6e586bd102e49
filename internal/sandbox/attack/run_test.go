package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

func TestOutcomeIsThatOfTheWorstFinding(t *testing.T) {
	t.Parallel()
	documented, both := &findings{}, &findings{}
	for _, f := range []*findings{documented, both} {
		f.wantUnless(true, false, "the host's memory is readable")
	}
	both.want(false, "the guest is dead")
	undocumented := &findings{}
	undocumented.wantUnless(false, false, "the host's memory is readable")
	for name, tt := range map[string]struct {
		err  error
		want Outcome
	}{
		"nothing found":            {(&findings{}).err(), Held},
		"documented":               {documented.err(), Documented},
		"documented and something": {both.err(), NotHeld},
		"not for this driver":      {undocumented.err(), NotHeld},
		"not tried":                {fmt.Errorf("no process: %w", ErrNotTried), NotTried},
		"an unknown error":         {errors.New("x"), NotHeld},
	} {
		if got := outcome(tt.err); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestReportIsSafeOnlyIfAllWasTriedAndHeld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcomes []Outcome
		safe     bool
	}{
		"held and documented": {[]Outcome{Held, Documented}, true},
		"one not held":        {[]Outcome{Held, NotHeld}, false},
		"one not tried":       {[]Outcome{Held, NotTried}, false},
		"nothing":             {nil, false},
	} {
		r := Report{Driver: "native"}
		for n, o := range tt.outcomes {
			r.Results = append(r.Results, Result{Row: n + 1, Name: "Name", Outcome: o, Detail: "first\nsecond"})
		}
		if r.Safe() != tt.safe {
			t.Errorf("%s: safe %t", name, r.Safe())
		}
		text := r.Markdown()
		if strings.Contains(text, "cannot be run safely") == tt.safe || strings.Count(text, "\n    second") != len(tt.outcomes) {
			t.Errorf("%s: the page is\n%s", name, text)
		}
	}
}

func TestPartsOfAnotherProcessAreKnownByName(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"", "hold", "dance:test1:/nowhere"} {
		if err := PlayPart(context.Background(), Factory{}, part); err == nil {
			t.Errorf("part %q was played", part)
		}
	}
}

// What a failed start leaves, the next one and other users of the host would find.
func TestStartThatFailsLeavesNothing(t *testing.T) {
	tmp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv(SecretVariable, "")
	broken := errors.New("no driver")
	_, err := Open(t.Context(), Factory{New: func(sandbox.Host) (sandbox.Driver, error) {
		if os.Getenv(SecretVariable) == "" {
			t.Error("there is no secret to find")
		}
		return nil, broken
	}}, dir)
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	for _, folder := range []string{tmp, dir} {
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", folder, left, err)
		}
	}
	if secret := os.Getenv(SecretVariable); secret != "" {
		t.Errorf("the environment still has %q", secret)
	}
}

// As root, in a folder that everybody writes to, a name that can be guessed may be a link to a file of root.
func TestSecretFileIsNoNameThatCouldBeGuessed(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv(SecretVariable, "")
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := sequence.Load() + 1
	for n := next; n < next+100; n++ { // other tests of the package may count on
		if err := os.Symlink(precious, filepath.Join(tmp, fmt.Sprintf("airlock-test%dn%d.secret", os.Getpid(), n))); err != nil {
			t.Fatal(err)
		}
	}
	var secrets []string
	for range 2 {
		_, _ = Open(t.Context(), Factory{New: func(sandbox.Host) (sandbox.Driver, error) {
			secrets = append(secrets, os.Getenv(SecretVariable))
			files, err := filepath.Glob(filepath.Join(tmp, "airlock-*.secret"))
			if err != nil || len(files) != 101 {
				t.Errorf("%d files, %v", len(files), err)
			}
			for _, file := range files {
				if info, err := os.Lstat(file); err != nil || info.Mode().IsRegular() && info.Mode().Perm() != 0o644 {
					t.Errorf("%s: %v, %v", file, info.Mode(), err)
				}
			}
			return nil, errors.New("enough")
		}}, t.TempDir())
	}
	if content, err := os.ReadFile(precious); err != nil || string(content) != "keep" {
		t.Errorf("the file behind the link is %q, %v", content, err)
	}
	if len(secrets) != 2 || len(secrets[0]) < 20 || secrets[0] == secrets[1] {
		t.Errorf("the secrets are %q", secrets)
	}
}
