package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestKeyListLeavesOutEndedKeysOfCommands(t *testing.T) {
	const ended, future = `"2020-01-01T00:00:00Z"`, `"2999-01-01T00:00:00Z"`
	row := func(id, name, expires, revoked string) string {
		return `{"id":"` + id + `","name":"` + name + `","scopes":[],"expires_at":` + expires + `,"revoked_at":` + revoked + `}`
	}
	rows := []string{
		row("command_revoked", sessionKeyName, future, ended), row("command_expired", sessionKeyName, ended, "null"),
		row("command_at_work", sessionKeyName, future, "null"), row("own_revoked", "production", "null", ended),
		row("own_expired", "night", ended, "null"), row("own", "", "null", "null"), row("own_of_that_name", sessionKeyName, "null", ended),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[`+strings.Join(rows, ",")+`],"next_page":null}`)
	}))
	defer srv.Close()
	for _, tt := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{"command_at_work", "own_revoked", "own_expired", "own", "own_of_that_name"}},
		{[]string{"--all"}, []string{
			"command_revoked", "command_expired", "command_at_work", "own_revoked", "own_expired", "own", "own_of_that_name",
		}},
	} {
		var out bytes.Buffer
		cmd := newKeyListCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"--url", srv.URL, "--key", adminPrefix + "x"}, tt.flags...))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Fields(line)[0])
		}
		if got = got[1:]; !slices.Equal(got, tt.want) {
			t.Errorf("key list %v shows %v, want %v", tt.flags, got, tt.want)
		}
	}
}
