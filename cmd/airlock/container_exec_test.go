package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

func TestFlagsBehindTheContainerBelongToTheCommand(t *testing.T) {
	var got execRequest
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = execRequest{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte("event: exit\ndata: {\"code\":0}\n\n"))
	}))
	defer srv.Close()
	for _, tt := range []struct {
		name string
		args []string
		argv []string
		cwd  string
		code int
	}{
		{"flags of the command", []string{"container_1", "ls", "-l", "--cwd", "/x"}, []string{"ls", "-l", "--cwd", "/x"}, "", 0},
		{"with the dashes", []string{"container_1", "--", "ls", "-l"}, []string{"ls", "-l"}, "", 0},
		{"dashes in front of all", []string{"--", "container_1", "ls", "-l"}, []string{"ls", "-l"}, "", 0},
		{"dashes of the command", []string{"container_1", "grep", "--", "-x"}, []string{"grep", "--", "-x"}, "", 0},
		{"own flags in front", []string{"--cwd", "/tmp", "container_1", "ls", "-l"}, []string{"ls", "-l"}, "/tmp", 0},
		{"no command", []string{"container_1"}, nil, "", 2},
		{"nothing behind the dashes", []string{"container_1", "--"}, nil, "", 2},
	} {
		got = execRequest{}
		code := run(append([]string{"container", "exec", "--url", srv.URL, "--key", "sk-airlock-app"}, tt.args...))
		if code != tt.code || !slices.Equal(got.Argv, tt.argv) || got.Cwd != tt.cwd {
			t.Errorf("%s: exit code %d, ran %q in %q", tt.name, code, got.Argv, got.Cwd)
		}
	}
}
