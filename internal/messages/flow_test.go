package messages

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// The files and containers below are of the caller, who is the user u of app_1.
func flowBench(t *testing.T, scope tenant.Scope, container tenant.Scope) *bench {
	t.Helper()
	b := newBench(t, says("end_turn", evText(0, "ok")))
	b.caller = tenant.Caller{AppID: "app_1", AppProven: true, UserID: "u", Scope: scope}
	b.boxes.owner = &tenant.Owner{AppID: "app_1", UserID: "u", Scope: container}
	own := tenant.Owner{AppID: "app_1", UserID: "u", Scope: tenant.ScopeUser}
	gone := time.Now()
	b.store = shelf{
		"file_mine":   {ID: "file_mine", Filename: "a.png", MIME: "image/png", Owner: own},
		"file_shared": {ID: "file_shared", Filename: "b.png", MIME: "image/png", Owner: tenant.Owner{AppID: "app_1", UserID: "v", Scope: tenant.ScopeApp}},
		"file_gone":   {ID: "file_gone", Owner: own, DeletedAt: &gone},
	}
	return b
}

// places where a file id can stand, with the id as %s.
const (
	asUpload   = `[{"role":"user","content":[{"type":"container_upload","file_id":"%s"}]}]`
	asImage    = `[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"%s"}}]}]`
	asOutput   = `[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"x"}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"%s"}]}}]},{"role":"user","content":"on"}]`
	asCitation = `[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"char_location","file_id":"%s","cited_text":"x","document_index":0,"document_title":null,"start_char_index":0,"end_char_index":1}]}]},{"role":"user","content":"on"}]`
)

func TestFlowRuleOfMessages(t *testing.T) {
	t.Parallel()
	const user, app = tenant.ScopeUser, tenant.ScopeApp
	tests := []struct {
		name             string
		scope, container tenant.Scope // container "" = none is named
		messages, id     string
		holds            string
		noTool           bool
		status           int
		code             string
	}{
		{"own file in an own container", user, user, asUpload, "file_mine", "", false, 200, ""},
		{"own file in a new container of the app", app, "", asUpload, "file_mine", "", false, 400, "scope_mismatch"},
		{"own image where code may run for the app", app, "", asImage, "file_mine", "", false, 400, "scope_mismatch"},
		{"own image where nothing is created", app, "", asImage, "file_mine", "", true, 200, ""},
		{"own file in a container of the app", user, app, asUpload, "file_mine", "", false, 400, "scope_mismatch"},
		{"own image beside a container of the app", user, app, asImage, "file_mine", "", true, 400, "scope_mismatch"},
		{"own file that the container of the app holds", user, app, asUpload, "file_mine", "file_mine", false, 200, ""},
		{"own output quoted to a container of the app", user, app, asOutput, "file_mine", "", false, 200, ""},
		{"own file cited to a container of the app", user, app, asCitation, "file_mine", "", false, 200, ""},
		{"own container asked for as the app's", app, user, asUpload, "file_shared", "", false, 400, "scope_mismatch"},
		{"the app's file in an own container", user, "", asUpload, "file_shared", "", false, 200, ""},
		{"the app's file in a container of the app", app, app, asUpload, "file_shared", "", false, 200, ""},
		{"a deleted upload", user, "", asUpload, "file_gone", "", false, 404, ""},
		{"a deleted upload that another container holds", user, user, asUpload, "file_gone", "file_mine", false, 404, ""},
		{"a deleted upload that the container holds", user, user, asUpload, "file_gone", "file_gone", false, 200, ""},
		{"a deleted image that the container holds", user, user, asImage, "file_gone", "file_gone", false, 404, ""},
		{"a deleted output in the history", user, "", asOutput, "file_gone", "", false, 200, ""},
		{"a deleted file in a citation", user, "", asCitation, "file_gone", "", false, 200, ""},
		{"an unknown file", user, user, asUpload, "file_other", "file_other2", false, 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := flowBench(t, tt.scope, tt.container)
			b.boxes.holds = map[file.ID]bool{file.ID(tt.holds): true}
			tools, container := codeTool, ""
			if tt.noTool {
				tools = ""
			}
			if tt.container != "" {
				container = `,"container":"container_01A"`
			}
			w := b.post(t, `{"model":"m","max_tokens":9,"stream":true,"tools":[`+tools+`],"messages":`+fmt.Sprintf(tt.messages, tt.id)+container+`}`)
			if w.Code != tt.status {
				t.Fatalf("answered %d %s, want %d", w.Code, w.Body, tt.status)
			}
			if asked := len(b.model.bodies()); (asked > 0) != (tt.status == 200) {
				t.Errorf("the upstream was asked %d times", asked)
			}
			if tt.status == 200 {
				return
			}
			if _, e := fault(t, w); e.At("details", "error_code").Str() != tt.code {
				t.Errorf("answered %s, want the code %q", e.Text(), tt.code)
			} else if tt.code != "" && tt.container != user && !strings.Contains(e.Get("message").Str(), tt.id) {
				t.Errorf("%s does not name the file", e.Text())
			}
		})
	}
}

func TestCountingTokensChecksContainerAndFiles(t *testing.T) {
	t.Parallel()
	b := flowBench(t, tenant.ScopeUser, tenant.ScopeUser)
	b.caller.UserID = "v"
	for _, body := range []string{
		`{"model":"m","container":"container_01A","messages":[{"role":"user","content":"go"}]}`,
		`{"model":"m","messages":` + fmt.Sprintf(asImage, "file_mine") + `}`,
	} {
		if code, e := fault(t, b.postTo(t, "/v1/messages/count_tokens", body)); code != 404 || e.Get("message").Str() != "Not found" {
			t.Errorf("%s answered %d %s", body, code, e.Text())
		}
	}
	if n := len(b.model.bodies()); n != 0 {
		t.Errorf("the upstream was asked %d times", n)
	}
}
