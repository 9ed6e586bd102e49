package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// conversation is a body of these messages.
func conversation(messages, more string) string {
	return `{"model":"m","max_tokens":4000,"messages":[` + messages + `]` + more + `}`
}

// everyPosition is where a file id can stand; %s is the id.
var everyPosition = map[string]string{
	"upload":          message(uploadBlock("%s"), `,"tools":[`+codeTool+`]`),
	"image":           message(`{"type":"image","source":{"type":"file","file_id":"%s"}}`, ""),
	"document":        message(`{"type":"document","source":{"type":"file","file_id":"%s"}}`, ""),
	"tool result":     conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"image","source":{"type":"file","file_id":"%s"}}]}]}`, `,"tools":[{"name":"x","input_schema":{"type":"object"}}]`),
	"content source":  message(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"file","file_id":"%s"}}]}}`, ""),
	"search result":   message(`{"type":"search_result","source":"x","title":"x","content":[{"type":"text","text":"x","more":{"file_id":"%s"}}]}`, ""),
	"bash output":     conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"x"}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"%s"}]}}]},{"role":"user","content":"on"}`, `,"tools":[`+codeTool+`]`),
	"encrypted":       conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"code":"x"}},{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"encrypted_code_execution_result","encrypted_stdout":"x","stderr":"","return_code":0,"content":[{"type":"code_execution_output","file_id":"%s"}]}}]},{"role":"user","content":"on"}`, `,"tools":[`+codeTool+`]`),
	"char citation":   conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"char_location","file_id":"%s","cited_text":"x","document_index":0,"document_title":null,"start_char_index":0,"end_char_index":1}]}]},{"role":"user","content":"on"}`, ""),
	"page citation":   conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"page_location","file_id":"%s"}]}]},{"role":"user","content":"on"}`, ""),
	"block citation":  conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"content_block_location","file_id":"%s"}]}]},{"role":"user","content":"on"}`, ""),
	"system":          message(textBlock, `,"system":[{"type":"text","text":"x","more":{"type":"file","file_id":"%s"}}]`),
	"unknown, deep":   message(`{"type":"future_block","a":{"b":[{"c":{"d":{"file_id":"%s"}}}]}}`, ""),
	"container":       message(textBlock, `,"container":{"files":[{"file_id":"%s"}]}`),
	"escaped name":    message(`{"type":"future_block","file\u005fid":"%s"}`, ""),
	"another's input": message(`{"type":"future_block","input":{"file_id":"%s"}}`, ""),
}

func TestS45ForeignFileIsFoundWhereverItStands(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	id := g.put(u, "a.txt", "x")
	for name, body := range everyPosition {
		body = fmt.Sprintf(body, id)
		g.notFound(name, g.say(v, body))
		g.notFound(name+", streamed", g.say(v, strings.Replace(body, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)))
	}
}

func TestS46WhatIsNoReferenceIsNotOne(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	v := g.user(g.a, "v")
	id := g.put(g.user(g.a, "u"), "a.txt", "x")
	for name, body := range map[string]string{
		"text":          message(`{"type":"text","text":"file_id: `+id+`"}`, ""),
		"input":         conversation(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"x","input":{"file_id":"`+id+`"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"{\"file_id\":\"`+id+`\"}"}]}`, `,"tools":[{"name":"x","input_schema":{"type":"object"}}]`),
		"schema":        message(textBlock, `,"tools":[{"name":"x","input_schema":{"type":"object","properties":{"file_id":{"const":"`+id+`"}}},"input_examples":[{"file_id":"`+id+`"}]}]`),
		"output config": message(textBlock, `,"output_config":{"format":{"file_id":"`+id+`"}}`),
		"null":          message(`{"type":"text","text":"x","more":{"file_id":null}}`, ""),
	} {
		g.ok(name, g.say(v, body))
	}
}

func TestS47DuplicateMembersAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	own := g.put(u, "a.txt", "x")
	foreign := g.put(g.user(g.a, "v"), "b.txt", "x")
	code := `,"tools":[` + codeTool + `]`
	for name, body := range map[string]string{
		"file_id":         message(`{"type":"container_upload","file_id":"`+own+`","file_id":"`+foreign+`"}`, code),
		"file_id escaped": message(`{"type":"container_upload","file_id":"`+own+`","file\u005fid":"`+foreign+`"}`, code),
		"container":       message(textBlock, `,"container":null,"container":"container_01A"`),
		"messages":        message(textBlock, `,"messages":[]`),
		"content":         `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a","content":"b"}]}`,
		"deep":            message(`{"type":"text","text":"x","a":{"b":[{"c":1,"c":2}]}}`, ""),
	} {
		g.refused(name, g.say(u, body), 400, "")
	}
}

func TestS48OnlyTheExactNameIsAReference(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	v := g.user(g.a, "v")
	id := g.put(g.user(g.a, "u"), "a.txt", "x")
	g.notFound("escaped", g.say(v, message(`{"type":"container_upload","file\u005fid":"`+id+`"}`, `,"tools":[`+codeTool+`]`)))
	for _, name := range []string{"File_Id", "FILE_ID", "file_id ", " file_id", "fileId"} {
		a := g.say(v, message(`{"type":"future_block","`+name+`":"`+id+`"}`, ""))
		sent := g.up.requests()
		if len(sent) != 1 || !strings.Contains(sent[0].body, `{"type":"future_block","`+name+`":"`+id+`"}`) {
			t.Errorf("%q did not reach the upstream as it is: %v", name, sent)
		}
		g.ok(name, a)
	}
}

func TestS49FileIDsOfAnotherTypeAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for name, value := range map[string]string{
		"number": "7", "object": `{"id":"file_x"}`, "array": `["file_x"]`, "true": "true", "empty": `""`,
		"1 MiB": `"file_` + strings.Repeat("x", 1<<20) + `"`, "NUL": `"file_\u0000x"`, "line feed": `"file_x\n"`, "surrogate": `"file_\ud800"`,
	} {
		for _, block := range []string{`{"type":"container_upload","file_id":` + value + `}`, `{"type":"image","source":{"type":"file","file_id":` + value + `}}`} {
			g.refused(name, g.say(u, message(block, `,"tools":[`+codeTool+`]`)), 400, "")
		}
	}
}

func TestS50ContainersOfAnotherTypeAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for name, value := range map[string]string{
		"number": "7", "array": `["container_x"]`, "object in id": `{"id":{}}`, "empty": `""`, "empty id": `{"id":""}`, "true": "true",
		"10 KiB": `"container_` + strings.Repeat("x", 10<<10) + `"`, "path": `"container_../x"`, "NUL": `"container_\u0000"`,
	} {
		g.refused(name, g.say(u, message(textBlock, `,"container":`+value)), 400, "")
	}
}

func TestS51BatchesAreNotServedThroughTheGateway(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, r := range []struct{ method, path string }{
		{"POST", "/messages/batches"},
		{"GET", "/messages/batches"},
		{"GET", "/messages/batches/msgbatch_01"},
		{"GET", "/messages/batches/msgbatch_01/results"},
		{"POST", "/messages/batches/msgbatch_01/cancel"},
	} {
		if a := g.call(u, r.method, proxy+r.path, `{"requests":[]}`); a.status != 404 {
			t.Errorf("%s %s: %d %s", r.method, r.path, a.status, a.body)
		}
	}
	g.silent("batches")
}

func TestS53CountTokensChecksFiles(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	id := g.put(u, "a.txt", "x")
	for name, body := range everyPosition {
		g.notFound(name, g.call(v, "POST", proxy+"/messages/count_tokens", fmt.Sprintf(body, id)))
	}
	g.ok("U", g.call(u, "POST", proxy+"/messages/count_tokens", fmt.Sprintf(everyPosition["document"], id)))
}

func TestS62ThreadsAreRefusedInTheFormThatClientsFallBackOn(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	for _, thread := range []string{`{"previous_message_id":"msg_01Up"}`, `{"type":"create"}`} {
		g.refused(thread, g.say(g.user(g.a, "u"), message(textBlock, `,"thread":`+thread)), 400, "thread_unsupported_request")
	}
}

func TestS63SkillsStayOutOfTheGateway(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	custom := `{"type":"custom","skill_id":"skill_1","version":"latest"}`
	for name, skills := range map[string]string{"custom": custom, "mixed": `{"type":"anthropic","skill_id":"xlsx"},` + custom} {
		a := g.say(u, message(textBlock, `,"container":{"skills":[`+skills+`]},"tools":[`+codeTool+`]`))
		g.refused(name, a, 400, "")
		if !strings.Contains(a.failure().Error.Message, "Custom skills are not supported through this gateway") {
			t.Errorf("%s: told %q", name, a.failure().Error.Message)
		}
	}
	for _, path := range []string{"/skills", "/skills/skill_1", "/skills/skill_1/versions"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if a := g.call(u, method, proxy+path, nil); a.status != 404 {
				t.Errorf("%s %s: %d", method, path, a.status)
			}
		}
	}
}

// raw sends a request line as it is and gives the status of the answer and its body.
func (g *gatewayServer) raw(w who, lines ...string) (status, rest string) {
	g.t.Helper()
	conn, err := new(net.Dialer).DialContext(g.t.Context(), "tcp", strings.TrimPrefix(g.URL(), "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	text := strings.Join(lines, "\r\n") + "\r\n"
	text = strings.NewReplacer("TOKEN", w.token, "APP", w.app.id, "IDENTITY", w.app.identity).Replace(text)
	if _, err := io.WriteString(conn, text); err != nil {
		g.t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	status, err = r.ReadString('\n')
	if err != nil {
		return "closed", ""
	}
	body, _ := io.ReadAll(r) // the connection is closed behind the answer
	_, status, _ = strings.Cut(strings.TrimSpace(status), " ")
	return status, string(body)
}

func TestS64PathTricksReachNoOtherHandler(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	id := g.made(g.a, "u", "user", "b.txt", "content of the file")
	for _, path := range []string{
		"//api/proxy/anthropic/v1/files", "/api/proxy/anthropic//v1/files", proxy + "//files", proxy + "/./files", proxy + "/messages/../files",
		proxy + "/files/%2e%2e/messages", proxy + "/files/../messages", proxy + "/files/..%2Fmessages", proxy + "/files/" + id + "%2Fcontent", proxy + "/files/",
		proxy + "/files/" + id + "/", proxy + "/files/" + id + "/content/", proxy + "/files;x=1", proxy + "/files/" + id + ";x=1", proxy + "/files/" + id + "/content;x=1",
		proxy + "/files/" + id + "/%63ontent/x", proxy + "/files/%2F" + id, proxy + "/files/" + id + "%00", proxy + "/files/" + id + "%3Fx", proxy + "/files/file_a%3Fx%3D1%23y",
		"/api/proxy/openai/v1/files", "/api/proxy/anthropic/files", "/API/proxy/anthropic/v1/files", proxy + "/Files", proxy + "/files/..;/messages", proxy + `/files\` + id,
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			status, rest := g.raw(u, method+" "+path+" HTTP/1.1", "Host: x", "x-auth-token: TOKEN", "x-app-id: APP", "x-app-identity-token: IDENTITY", "Content-Length: 0", "Connection: close", "")
			if !strings.HasPrefix(status, "404") && !strings.HasPrefix(status, "400") && !strings.HasPrefix(status, "405") {
				t.Errorf("%s %s: %s %s", method, path, status, rest)
			}
			if strings.Contains(rest, "content of the file") || strings.Contains(rest, `"data"`) || strings.Contains(strings.ToLower(rest), "location:") {
				t.Errorf("%s %s: %s", method, path, rest)
			}
		}
	}
	g.silent("path tricks")
	g.untouched(u, id, "content of the file")
}

func TestS95HostileBodiesAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	var many strings.Builder
	for i := range 1_000_000 {
		if i > 0 {
			many.WriteByte(',')
		}
		fmt.Fprintf(&many, `{"file_id":"f%d"}`, i)
	}
	for name, body := range map[string]string{
		"depth 10,000":       message(`{"type":"text","text":"x","a":`+deep+`}`, ""),
		"32 MiB of brackets": strings.Repeat("[", 32<<20),
		"a million files":    message(`{"type":"future_block","a":[`+many.String()+`]}`, ""),
		"101 files":          message(`{"type":"future_block","a":[`+strings.Join(strings.SplitN(many.String(), ",", 102)[:101], ",")+`]}`, ""),
		"not UTF-8":          message(`{"type":"text","text":"`+"\xff"+`"}`, ""),
		"trailing data":      message(textBlock, "") + "{}",
		"no JSON":            "model=m",
		"more than 32 MiB":   message(`{"type":"text","text":"`+strings.Repeat("x", 32<<20)+`"}`, ""),
	} {
		a := g.say(u, body)
		if a.status != 400 && a.status != 413 {
			t.Errorf("%s: %d %.200s", name, a.status, a.body)
		}
		g.silent(name)
	}
}

func TestS101AnothersTranscriptCannotBeContinued(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	transcript := fmt.Sprintf(everyPosition["bash output"], g.made(g.a, "u", "user", "out.txt", "x"))
	g.notFound("V", g.say(v, transcript))
	g.notFound("the owner", g.say(g.owner(g.a), transcript))
	g.ok("U", g.say(u, transcript))
}

func TestS105AnOwnImageGoesToTheModelWhateverTheScope(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	id := g.put(u, "a.txt", "text of the file")
	body := fmt.Sprintf(everyPosition["document"], id)
	a := g.say(u.scoped("app"), body)
	if sent := g.up.requests(); len(sent) != 1 || !strings.Contains(sent[0].body, "text of the file") || strings.Contains(sent[0].body, id) {
		t.Errorf("the upstream was sent %v", sent)
	}
	g.ok("nothing shared is created", a)
	g.refused("where code can run", g.say(u.scoped("app"), strings.TrimSuffix(body, "}")+`,"tools":[`+codeTool+`]}`), 400, "scope_mismatch")
}

func TestS99AFileThatWasDeletedMayBeQuotedByItsOwner(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	id := g.made(g.a, "u", "user", "out.txt", "x")
	g.ok("delete", g.call(u, "DELETE", proxy+"/files/"+id, nil))
	quoted := fmt.Sprintf(everyPosition["bash output"], id)
	g.ok("U", g.say(u, quoted))
	g.notFound("V", g.say(v, quoted))
	g.notFound("the bytes are gone", g.say(u, fmt.Sprintf(everyPosition["document"], id)))
}
