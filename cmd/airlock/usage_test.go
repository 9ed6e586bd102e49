package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// execute runs the whole command tree as the binary does, against nothing that answers.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// wantUsage checks that a call is exit code 2 with these words, before anything was done.
func wantUsage(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := execute(t, args...)
	code, ok := errors.AsType[exitError](err)
	if !ok || code.code != 2 || !strings.Contains(err.Error(), want) || out != "" {
		t.Errorf("airlock %q: %v, want exit code 2 with %q; standard output %q", args, err, want, out)
	}
}

// A misspelt word must not be a success: a script would take the help text for the answer, and go on with a key that is good.
func TestUnknownCommandOfEveryGroupIsWrongUsage(t *testing.T) {
	groups := 0
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		if !c.HasSubCommands() {
			return
		}
		groups++
		for _, words := range [][]string{{"wrong-word"}, {"wrong-word", "x"}, {"wrong-word", "--app", "x"}} {
			args := append(append([]string{}, path...), words...)
			wantUsage(t, `unknown command "wrong-word" for "`+c.CommandPath()+`"; there are: `, args...)
			wantUsage(t, `unknown command "wrong-word" for "`+c.CommandPath()+`"; there are: `, append([]string{"help"}, args[:len(path)+1]...)...)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				wantUsage(t, sub.Name(), append(append([]string{}, path...), "wrong-word")...)
				walk(sub, append(append([]string{}, path...), sub.Name()))
			}
		}
	}
	walk(newRootCommand(), nil)
	if groups < 11 {
		t.Errorf("%d groups were looked at", groups)
	}
	for _, args := range [][]string{{"app"}, {"help"}, {"help", "key", "rotate"}, {"help", "app", "create"}, {"key", "rotate", "--help"}} {
		if out, err := execute(t, args...); err != nil || !strings.Contains(out, "Usage:") {
			t.Errorf("airlock %v: %v, %q", args, err, out)
		}
	}
	wantUsage(t, "has no commands", "help", "app", "create", "x")
	if out, err := execute(t, "issuer", "remove", "--help"); err != nil || !strings.Contains(out, "airlock issuer rm ID") {
		t.Errorf("the other name of rm: %v, %q", err, out)
	}
}

// An unset variable of a shell must not widen what a command acts on.
func TestEmptyFlagsOfClientCommandsAreRefused(t *testing.T) {
	t.Setenv("AIRLOCK_URL", "http://127.0.0.1:1")
	t.Setenv("AIRLOCK_KEY", adminPrefix+"x")
	for _, line := range []string{
		"user block zed --app=", "user list --app=", "user list --user=", "user get zed --app=", "user delete zed --app=", "token mint --user u --app=",
		"token mint --app a --user=", "token exchange x --app=", "limit set --app a --user= --requests 1", "limit rm --app a --user=", "limit list --app=",
		"key create --app=", "key create --role=", "key list --app=", "audit --app=", "audit --user=", "audit --event=", "app create a --owner=",
		"issuer add me --alg ES256 --jwks https://x.example --issuer=", "file list --app=", "file list --user=", "ask --app= hello", "ask --user= hello",
		"container list --app=", "app list --key=", "app list --url=", "app list --data=", "file list --key=",
		"issuer add me --alg ES256 --jwks https://x.example --issuer https://x.example --audience=",
	} {
		args := strings.Fields(line)
		name := ""
		for _, a := range args {
			if n, ok := strings.CutSuffix(a, "="); ok {
				name = n
			}
		}
		wantUsage(t, name+" is empty", args...)
	}
	wantUsage(t, "USER is empty", "user", "block", "")
	wantUsage(t, "APP is empty", "app", "disable", "")
	// These say that nothing is wanted; what fails is that nothing answers.
	for _, args := range [][]string{{"app", "set", "a", "--origin", ""}, {"app", "set", "a", "--models", ""}} {
		if _, err := execute(t, args...); err == nil || strings.Contains(err.Error(), "is empty") {
			t.Errorf("airlock %q: %v", args, err)
		}
	}
}

func TestWrongUsageIsSaidInTheWordsOfTheCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"app create":                "expected NAME\nusage: airlock app create NAME [flags]",
		"container cp x":            "expected DESTINATION",
		"file rm":                   "expected ID",
		"app get a b":               `unexpected argument "b"`,
		"user block alice invoices": `unexpected argument "invoices"; did you mean --app invoices?`,
		"limit set invoices --app a --requests 5": `did you mean --user invoices?`,
		"audit invoices":                         `did you mean --user invoices or --app invoices?`,
		"key create invoices":                    `did you mean --app invoices?`,
		"app create --name foo":                  "there is no flag --name: NAME is an argument",
		"app create --nonsense foo":              "unknown flag: --nonsense",
		"token mint --app a":                     "--user or --owner is needed",
		"token mint --user u":                    "--app is needed",
		"token mint --owner":                     "--app is needed",
		"token exchange x":                       "--app is needed",
		"limit set --requests 1":                 "--app is needed",
		"limit rm":                               "--app is needed",
		"limit set --app a":                      "--messages or --requests is needed",
		"token mint --app a --user u --owner":    "--user and --owner do not go together",
		"issuer add me --jwks https://x.example": "--alg and --issuer are needed",
		"app set a":                              "is needed",
		"token mint --app a --user u --ttl 30w":  `--ttl: "30w" is not a duration like 30s, 10m or 30d`,
		"key revoke prod":                        "expected the id (key_...) that 'airlock key list' shows, or the key itself",
	} {
		wantUsage(t, want, strings.Fields(line)...)
	}
}

func TestDurationsMayBeGivenInDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0, "90s": 90 * time.Second, "-1h": -time.Hour,
	} {
		var d time.Duration
		if err := (*span)(&d).Set(text); err != nil || d != want {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "1d-1h", "1dx", "30", "300000d", "106751d24h", "99999999999999999999d"} {
		var d time.Duration
		if err := (*span)(&d).Set(text); err == nil {
			t.Errorf("%q was taken for %v", text, d)
		}
	}
	for from, want := range map[string]string{
		"ttl_seconds: expected an integer from 10 to 2592000.":                     "--ttl: expected a duration from 10s to 30d.",
		"overlap_seconds: expected an integer from 0 to 7200.":                     "--overlap: expected a duration from 0s to 2h.",
		"requests_per_minute: expected an integer from 1 to 5, or nothing for it.": "--requests: expected an integer from 1 to 5, or nothing for it.",
		"app: there is no such app.":                                               "app: there is no such app.",
	} {
		if got := inFlags(from); got != want {
			t.Errorf("%q became %q", from, got)
		}
	}
}

// call runs a command against a server that answers each "METHOD path?query" with a text; what is not there is a 404.
func call(t *testing.T, answers map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.Method+" "+strings.TrimSuffix(strings.NewReplacer("&limit=100", "", "?limit=100", "").Replace(r.URL.String()), "?")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = `{"error":{"type":"not_found_error","message":"There is no such user."}}`
		}
		_, _ = io.WriteString(w, text)
	}))
	defer srv.Close()
	root := newRootCommand()
	var out, notes bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&notes)
	root.SetArgs(append(args, "--url", srv.URL, "--key", adminPrefix+"x"))
	err = root.ExecuteContext(t.Context())
	return out.String(), notes.String(), err
}

func TestBlocksSayWhomTheyMissAndWhatIsStillBlocked(t *testing.T) {
	const then, later = `"2026-01-01T00:00:00Z"`, `"2026-02-01T00:00:00Z"`
	user := func(name, app, first, blocked string) string {
		return `{"id":"user_1","user":"` + name + `","app_id":` + app + `,"first_seen_at":` + first + `,"blocked_at":` + blocked + `}`
	}
	list := func(rows ...string) string { return `{"data":[` + strings.Join(rows, ",") + `],"next_page":null}` }
	carol, alice := "/airlock/v1/users?user=airlock%2Fcarol", "/airlock/v1/users?user=airlock%2Falice"
	answers := map[string]string{
		"PATCH /airlock/v1/users/carol": user("airlock/carol", `"app_1"`, then, then), "GET " + carol: list(user("airlock/carol", `"app_1"`, then, then)),
		"GET /airlock/v1/issuers": list(`{"id":"me"}`, `{"id":"you"}`), "GET /airlock/v1/users?user=me%2Fcarol": list(user("me/carol", `"app_1"`, then, "null")),
		"GET /airlock/v1/users?user=you%2Fcarol": list(), "GET /airlock/v1/apps": list(`{"id":"app_1","name":"invoices"}`),
		"PUT /airlock/v1/limits":         `{"app_id":"app_1","user":"airlock/carol"}`,
		"GET /airlock/v1/users/alice":    user("airlock/alice", "null", then, "null"),
		"GET " + alice:                   list(user("airlock/alice", `"app_1"`, then, later), user("airlock/alice", "null", then, "null")),
		"PATCH /airlock/v1/users/alice":  user("airlock/alice", "null", then, "null"),
		"GET /airlock/v1/users?user=bob": list(user("airlock/bob", `"app_1"`, then, later), user("airlock/bob", `"app_2"`, then, "null")),
	}
	for line, want := range map[string]string{
		"user block carol --app invoices":             "note: airlock/carol was not seen in this app yet; seen was me/carol",
		"limit set --app a --user carol --requests 1": "note: airlock/carol was not seen in this app yet; seen was me/carol",
		"user block alice --undo":                     "note: airlock/alice is still blocked in: invoices",
		"user get alice":                              "note: airlock/alice is still blocked in: invoices",
	} {
		if out, notes, err := call(t, answers, strings.Fields(line)...); err != nil || strings.TrimSpace(notes) != want || strings.Contains(out, "note") {
			t.Errorf("%s: %v, %q, want %q", line, err, notes, want)
		}
	}
	// Who was seen is blocked without more words.
	answers["GET "+carol] = list(user("airlock/carol", `"app_1"`, then, later))
	if _, notes, err := call(t, answers, "user", "block", "carol", "--app", "invoices"); err != nil || notes != "" {
		t.Errorf("%v, %q", err, notes)
	}
	for _, args := range [][]string{{"user", "block", "bob", "--undo"}, {"user", "get", "bob"}} {
		_, _, err := call(t, answers, args...)
		if err == nil || !strings.Contains(err.Error(), "of airlock/bob there is no block in all apps; blocked in: invoices; seen in: app_2") {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, _, err := call(t, answers, "user", "get", "nobody"); err == nil || err.Error() != "There is no such user." {
		t.Errorf("nobody: %v", err)
	}
}

func TestAnswersSayWhatWasDone(t *testing.T) {
	const keys = `{"id":"key_1","type":"key_revoked"}`
	for line, tt := range map[string]struct{ request, answer, want string }{
		"token revoke tok_1":           {"POST /airlock/v1/tokens/revoke", `{"id":"tok_1"}`, "revoked tok_1; ids are not kept, so it is not known"},
		"token revoke a.b.c":           {"POST /airlock/v1/tokens/revoke", `{"id":"","user":"me/carol"}`, "revoked the token of me/carol"},
		"token revoke a.b.d":           {"POST /airlock/v1/tokens/revoke", `{"id":"7","user":"me/carol"}`, "revoked 7 of me/carol"},
		"key revoke key_1":             {"DELETE /airlock/v1/keys/key_1", keys, "revoked key_1"},
		"key revoke sk-airlock-secret": {"POST /airlock/v1/keys/revoke", keys, "revoked key_1"},
		"limit rm --app a":             {"DELETE /airlock/v1/limits?app=a", `{"existed":false}`, "there was none"},
		"limit rm --app b":             {"DELETE /airlock/v1/limits?app=b", `{"existed":true}`, "removed"},
		"app set a --origin x": {
			"PATCH /airlock/v1/apps/a",
			`{"id":"app_1","name":"a","owner":"airlock/owner","origin":"x","allowed_models":[],"require_token_app_binding":true}`,
			"app_1  a  owner airlock/owner  origin x  models all  binding required",
		},
		"key rotate signing --overlap 0s": {
			"POST /airlock/v1/keys/signing/rotate", `{"kid":"k","previous_end_at":"2020-01-01T00:00:00Z"}`,
			"signing key k; tokens of the one before are refused as of now: give applications a new environment",
		},
		"key rotate signing": {"POST /airlock/v1/keys/signing/rotate", `{"kid":"k","previous_end_at":"2999-01-01T00:00:00Z"}`, "are taken until 2999-01-01 00:00:00Z"},
		"issuer list":        {"GET /airlock/v1/issuers", `{"data":[{"id":"me","issuer":"i","alg":"ES256","audience":["files"],"binds_apps":true}],"next_page":null}`, "files"},
		"audit --user alice": {"GET /airlock/v1/audit?user=airlock%2Falice", `{"data":[],"next_page":null}`, "AT"},
	} {
		if out, _, err := call(t, map[string]string{tt.request: tt.answer}, strings.Fields(line)...); err != nil || !strings.Contains(out, tt.want) || strings.Contains(out, "secret") {
			t.Errorf("%s: %v, %q, want %q", line, err, out, tt.want)
		}
	}
	added := map[string]string{"POST /airlock/v1/issuers": `{"id":"me","issuer":"i","jwks_error":"connection refused"}`}
	out, notes, err := call(t, added, "issuer", "add", "me", "--issuer", "i", "--alg", "ES256", "--jwks", "https://x.example")
	if err != nil || out != "me  i\n" || !strings.Contains(notes, "its keys could not be fetched: connection refused") {
		t.Errorf("%v, %q, %q", err, out, notes)
	}
}
