package airlock_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The programs of examples/go, each run to its end as a command, against the gateway of these tests.
func TestProgramsInGo(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./examples/go/...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	uploaded, got := plain(200, file("file_in"), nil), plain(200, strings.ReplaceAll(file("file_out"), "a.txt", "out.csv"), nil)
	edited := says("end_turn", "container_1", made("srvtoolu_1", "file_out"), text("Edited."))
	for _, c := range []struct {
		name    string
		args    []string
		answers []answer
		// wantOut is in what it prints; want is token, scope and container of each request.
		wantOut string
		want    []string
	}{
		{"upload-and-edit", []string{"in.csv", "Edit."}, []answer{uploaded, edited}, `"FileIDs":["file_out"]`, []string{"user.jwt user", "user.jwt user"}},
		{"upload-and-edit", []string{"-plain", "in.csv", "Edit."}, []answer{uploaded, edited}, `"ContainerID":"container_1"`, []string{"user.jwt user", "user.jwt user"}},
		{
			"download",
			[]string{"file_out"},
			[]answer{got, plain(200, "total", map[string]string{"content-type": "text/csv"}), plain(200, `{"id":"file_out","type":"file_deleted"}`, nil)},
			"out.csv, 1 bytes\n",
			[]string{"user.jwt user", "user.jwt user", "user.jwt user"},
		},
		{
			"keep-sandbox",
			[]string{"Remember.", "Recall."},
			[]answer{says("end_turn", "container_1", text("ok")), says("end_turn", "container_1", text("recalled"))},
			"recalled",
			[]string{"user.jwt user", `user.jwt user "container_1"`},
		},
		{
			"callable-tool",
			[]string{"Compare."},
			[]answer{
				says("tool_use", "container_1", codeCall, calls("toolu_1", "lookup_deals", `{"quarter":"Q1"}`)),
				func(w http.ResponseWriter, r request) {
					if !strings.Contains(string(r.body), `{\"amounts\":[120,80],\"quarter\":\"Q1\"}`) {
						refuse(400, "the tool did not answer", "")(w, r)
						return
					}
					says("end_turn", "container_1", text("Compared."))(w, r)
				},
			},
			"Compared.",
			[]string{"user.jwt user", `user.jwt user "container_1"`},
		},
		{"app-scope-job", []string{"hand-in", "in.csv"}, []answer{uploaded}, "file_in\n", []string{"user.jwt app"}},
		{"app-scope-job", []string{"work", "file_in", "Edit."}, []answer{edited, got}, "out.csv\n", []string{"owner.jwt app", "owner.jwt app"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGateway(t, c.answers...)
			work := t.TempDir()
			if err := os.WriteFile(filepath.Join(work, "in.csv"), []byte("name,amount\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, c.name), c.args...)
			cmd.Dir = work
			cmd.Env = append(os.Environ(), "API_WORKER_URL="+g.url, "APP_OWNER_JWT=owner.jwt", "USER_JWT=user.jwt")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.wantOut) {
				t.Errorf("it printed %s, %v", out, err)
			}
			var seen []string
			for _, r := range g.requests(t, len(c.want)) {
				one := r.header.Get("x-auth-token") + " " + r.header.Get("x-deepspace-sandbox-scope")
				if strings.HasSuffix(r.uri, "/messages") {
					one = strings.TrimSpace(one + " " + r.json(t, "container"))
				}
				seen = append(seen, one)
			}
			if !slices.Equal(seen, c.want) {
				t.Errorf("requests were %q, want %q", seen, c.want)
			}
			if b, err := os.ReadFile(filepath.Join(work, "out.csv")); c.name == "download" && (err != nil || string(b) != "total") {
				t.Errorf("downloaded %q, %v", b, err)
			}
		})
	}
}
