package server

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// untouched fails the test unless the file is still there for its owner.
func (g *gatewayServer) untouched(w who, id, content string) {
	g.t.Helper()
	g.ok("the owner's own file", g.call(w, "GET", proxy+"/files/"+id, nil))
	if a := g.call(w, "GET", proxy+"/files/"+id+"/content", nil); a.status == 200 && a.body != content {
		g.t.Errorf("the content is %q now", a.body)
	}
}

// everyUse tries each route on a file.
func (g *gatewayServer) everyUse(what string, w who, id string) {
	g.t.Helper()
	for _, scope := range []string{"", "user", "app"} {
		w := w.scoped(scope)
		g.notFound(what+", get", g.call(w, "GET", proxy+"/files/"+id, nil))
		g.notFound(what+", content", g.call(w, "GET", proxy+"/files/"+id+"/content", nil))
		g.notFound(what+", delete", g.call(w, "DELETE", proxy+"/files/"+id, nil))
		g.notFound(what+", message", g.say(w, message(uploadBlock(id), `,"tools":[`+codeTool+`]`)))
	}
}

func TestS33AUserCannotReachAnothersFile(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	upload, output := g.put(u, "a.txt", "secret"), g.made(g.a, "u", "user", "b.txt", "secret")
	for _, id := range []string{upload, output} {
		g.everyUse("V", v, id)
		g.untouched(u, id, "secret")
	}
}

func TestS34TheOwnersTokenOpensNoPrivateFile(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, o := g.user(g.a, "u"), g.owner(g.a)
	id := g.made(g.a, "u", "user", "b.txt", "secret")
	g.everyUse("the owner", o, id)
	g.untouched(u, id, "secret")
	g.notFound("and none does by an API key", g.call(who{}, "GET", "/v1/files/"+id, nil, "x-api-key", g.newKey(g.a.id)))
}

func TestS35AnAppCannotReachWhatIsOpenToAnother(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	id := g.made(g.a, "u", "app", "b.txt", "secret")
	g.everyUse("the same subject in B", g.user(g.b, "u"), id)
	g.everyUse("the owner of B", g.owner(g.b), id)
	// The token of A in the other app is refused as a token: it names its app.
	g.refused("the token of A with the identity of B", g.call(g.user(g.a, "u").with(g.b), "GET", proxy+"/files/"+id, nil), 401, "")
	g.untouched(g.user(g.a, "u"), id, "secret")
}

func TestS36IDsCannotBeGuessedOrTold(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	id := g.put(u, "a.txt", "x")
	var headers http.Header
	try := func(id string) {
		a := g.call(v, "GET", proxy+"/files/"+id, nil)
		g.notFound(id, a)
		h := a.header.Clone()
		for _, name := range []string{"Request-Id", "Date", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"} {
			h.Del(name)
		}
		if headers != nil && !maps.EqualFunc(headers, h, slices.Equal) {
			t.Errorf("headers of %s: %v, of another %v", id, h, headers)
		}
		headers = h
	}
	try(id) // there, and of another
	for range 1000 {
		try(wire.NewID("file"))
	}
	for i := len("file_"); i < len(id); i++ {
		other := id[:i] + map[bool]string{true: "1", false: "2"}[id[i] == '2'] + id[i+1:]
		try(other)
	}
	gone := g.put(v, "b.txt", "x")
	g.ok("delete", g.call(v, "DELETE", proxy+"/files/"+gone, nil))
	try(gone)
	try("container_01A")
	try("file_")
}

func TestS37ListsAndCursorsAreOnesOwn(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v, b := g.user(g.a, "u"), g.user(g.a, "v"), g.user(g.b, "u")
	var us, vs []string
	for i := range 3 {
		g.advance(time.Second)
		us = append(us, g.put(u, fmt.Sprintf("u%d.txt", i), "x"))
		g.advance(time.Second)
		vs = append(vs, g.put(v, fmt.Sprintf("v%d.txt", i), "x"))
		g.put(b, "b.txt", "x")
	}
	g.advance(time.Second)
	shared := g.put(u.scoped("app"), "shared.txt", "x")
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
		NextPage *string `json:"next_page"`
		HasMore  *bool   `json:"has_more"`
		FirstID  string  `json:"first_id"`
		LastID   string  `json:"last_id"`
	}
	get := func(w who, query string) []string {
		list.Data, list.NextPage, list.HasMore = nil, nil, nil
		a := g.call(w, "GET", proxy+"/files?"+query, nil)
		g.ok(query, a)
		a.decode(t, &list)
		ids := make([]string, len(list.Data))
		for i, d := range list.Data {
			ids[i] = d.ID
		}
		if list.HasMore == nil || !strings.Contains(a.body, `"next_page"`) || len(ids) > 0 && (list.FirstID != ids[0] || list.LastID != ids[len(ids)-1]) {
			t.Errorf("%s is not the superset of both lists: %s", query, a.body)
		}
		return ids
	}
	want := []string{shared, vs[2], vs[1], vs[0]}
	if got := get(v, "limit=1000"); !slices.Equal(got, want) {
		t.Errorf("V sees %v, want %v", got, want)
	}
	for _, scope := range []string{"user", "app"} { // the scope plays no part in reading
		if got := get(v.scoped(scope), "limit=1000"); !slices.Equal(got, want) {
			t.Errorf("V with scope %s sees %v, want %v", scope, got, want)
		}
	}
	if got := get(v, "limit=2"); !slices.Equal(got, want[:2]) || list.NextPage == nil || !*list.HasMore {
		t.Fatalf("first page %v, next %v", got, list.NextPage)
	}
	page := url.QueryEscape(*list.NextPage)
	if got := get(v, "limit=2&page="+page); !slices.Equal(got, want[2:]) || list.NextPage != nil || *list.HasMore {
		t.Errorf("second page %v", got)
	}
	if got := get(v, "limit=2&after_id="+vs[2]); !slices.Equal(got, want[2:]) {
		t.Errorf("after an id: %v", got)
	}
	if got := get(v, "before_id="+vs[2]); !slices.Equal(got, want[:1]) {
		t.Errorf("before an id: %v", got)
	}
	for name, tt := range map[string]struct {
		w     who
		query string
	}{
		"the page token of V, by U":      {u, "page=" + page},
		"the page token of V, by owner":  {g.owner(g.a), "page=" + page},
		"the page token of V, from B":    {b, "page=" + page},
		"a forged token":                 {v, "page=page_AAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"a token of another form":        {v, "page=" + vs[0]},
		"one character changed":          {v, "page=" + page[:len(page)-2] + map[bool]string{true: "B", false: "A"}[page[len(page)-2] == 'A'] + page[len(page)-1:]},
		"after the private file of U":    {v, "after_id=" + us[0]},
		"before the private file of U":   {v, "before_id=" + us[0]},
		"after a file that is not there": {v, "after_id=file_01none"},
	} {
		a := g.call(tt.w, "GET", proxy+"/files?"+tt.query, nil)
		g.refused(name, a, 400, "")
		if !strings.HasSuffix(a.failure().Error.Message, "invalid page token.") {
			t.Errorf("%s: told %q", name, a.failure().Error.Message)
		}
	}
	for _, q := range []string{"limit=0", "limit=1001", "limit=x", "limit=1&limit=2"} {
		g.refused(q, g.call(v, "GET", proxy+"/files?"+q, nil), 400, "")
	}
}

func TestS38IDsThatAreNotOnesOwnAreLeftOut(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	theirs, mine := g.put(u, "u.txt", "x"), g.put(v, "v.txt", "x")
	for _, q := range []string{"ids[]=%s&ids[]=%s&ids[]=file_none", "ids=%s&ids=%s&ids=file_none"} {
		a := g.call(v, "GET", proxy+"/files?"+fmt.Sprintf(q, theirs, mine), nil)
		if strings.Contains(a.body, theirs) || !strings.Contains(a.body, mine) || strings.Contains(a.body, "file_none") {
			t.Errorf("answered %s", a.body)
		}
		g.ok(q, a)
	}
}

// containerForms are the ways to name a container.
var containerForms = []string{`,"container":"%s"`, `,"container":{"id":"%s"}`, `,"container":{"id":"%s","skills":[]}`}

func (g *gatewayServer) everyForm(what string, w who, id string) {
	g.t.Helper()
	for _, f := range containerForms {
		for _, tools := range []string{`,"tools":[` + codeTool + `]`, ""} {
			g.notFound(what, g.say(w, message(textBlock, fmt.Sprintf(f, id)+tools)))
		}
		g.notFound(what+", counted", g.call(w, "POST", proxy+"/messages/count_tokens", message(textBlock, fmt.Sprintf(f, id))))
	}
	for _, path := range []string{"", "/files/x"} {
		g.notFound(what+", by the direct door", g.call(who{}, "GET", "/airlock/v1/containers/"+id+path, nil, "authorization", "Bearer "+w.token))
	}
	g.notFound(what+", deleted", g.call(who{}, "DELETE", "/airlock/v1/containers/"+id, nil, "authorization", "Bearer "+w.token))
	g.notFound(what+", forked", g.call(who{}, "POST", "/airlock/v1/containers/"+id+"/fork", nil, "authorization", "Bearer "+w.token))
}

func TestS39AUserCannotNameAnothersContainer(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	id := g.space(u)
	g.everyForm("V", v, id)
	g.everyForm("the owner", g.owner(g.a), id)
	g.ok("U", g.say(u, message(textBlock, `,"container":"`+id+`"`)))
}

func TestS40AnAppCannotNameAnothersContainer(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	id := g.space(g.user(g.a, "u").scoped("app"))
	g.everyForm("the same subject in B", g.user(g.b, "u"), id)
	g.everyForm("the owner of B", g.owner(g.b), id)
	g.ok("V of A", g.say(g.user(g.a, "v"), message(textBlock, `,"container":"`+id+`"`)))
}

func TestS41AnOwnContainerIsNotMadeTheApps(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	id := g.space(u)
	for _, f := range containerForms {
		g.refused(f, g.say(u.scoped("app"), message(textBlock, fmt.Sprintf(f, id)+`,"tools":[`+codeTool+`]`)), 400, "scope_mismatch")
	}
	g.refused("a fork", g.call(who{scope: "app"}, "POST", "/airlock/v1/containers/"+id+"/fork", nil, "authorization", "Bearer "+u.token), 400, "scope_mismatch")
}

func TestS42AnOwnFileDoesNotFlowIntoAContainerOfTheApp(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	file, id := g.put(u, "a.txt", "x"), g.space(u.scoped("app"))
	image := `{"type":"document","source":{"type":"file","file_id":"` + file + `"}}`
	for _, block := range []string{uploadBlock(file), image} {
		a := g.say(u, message(block, `,"container":"`+id+`","tools":[`+codeTool+`]`))
		g.refused("into a container of the app", a, 400, "scope_mismatch")
		if !strings.Contains(a.failure().Error.Message, file) || !strings.Contains(a.failure().Error.Message, "app scope") {
			t.Errorf("told %q", a.failure().Error.Message)
		}
		g.refused("into a new one", g.say(u.scoped("app"), message(block, `,"tools":[`+codeTool+`]`)), 400, "scope_mismatch")
	}
	a := g.call(who{scope: "app"}, "POST", "/airlock/v1/containers", `{"files":["`+file+`"]}`, "authorization", "Bearer "+u.token)
	g.refused("by the direct door", a, 400, "scope_mismatch")
}

// TestS43TableOverHTTP is the table of scopes where no code has to run; the rest of its rows are in package tenant.
func TestS43TableOverHTTP(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v, o := g.user(g.a, "u"), g.user(g.a, "v"), g.owner(g.a)
	code := `,"tools":[` + codeTool + `]`
	quoted := func(id string) string {
		return `{"model":"m","max_tokens":9,"messages":[` + `{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"x"}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"` + id + `"}]}}]},{"role":"user","content":"on"}]` + code + `}`
	}
	private, shared := g.made(g.a, "u", "user", "p.txt", "x"), g.made(g.a, "u", "app", "s.txt", "x")
	ownBox, appBox := g.space(u), g.space(u.scoped("app"))
	in := func(box string) string { return message(textBlock, `,"container":"`+box+`"`+code) }
	g.ok("row 1", g.say(u, quoted(private)))
	g.ok("row 1, container", g.say(u, in(ownBox)))
	g.refused("row 2", g.say(u.scoped("app"), in(ownBox)), 400, "scope_mismatch")
	g.ok("row 2, quoted only", g.say(u.scoped("app"), quoted(private)))
	for _, scope := range []string{"user", "app"} {
		g.notFound("row 3", g.say(v.scoped(scope), quoted(private)))
		g.notFound("row 3, container", g.say(v.scoped(scope), in(ownBox)))
		g.notFound("row 4", g.say(o.scoped(scope), quoted(private)))
		g.notFound("row 4, container", g.say(o.scoped(scope), in(ownBox)))
		g.notFound("row 11", g.say(g.user(g.b, "u").scoped(scope), quoted(shared)))
		g.notFound("row 11, container", g.say(g.user(g.b, "u").scoped(scope), in(appBox)))
		g.refused("row 13", g.say(u.with(g.b).scoped(scope), quoted(shared)), 401, "")
		g.refused("row 14", g.say(u.with(application{}).scoped(scope), quoted(shared)), 401, "app_identity_missing")
	}
	g.ok("row 5", g.say(v.scoped("app"), quoted(shared)))
	g.ok("row 5, container", g.say(v.scoped("app"), in(appBox)))
	g.ok("row 6", g.say(v, quoted(shared)))
	g.ok("row 7", g.say(v, in(appBox)))
	g.ok("row 9", g.say(o.scoped("app"), in(appBox)))
	g.ok("row 10", g.say(o, in(g.space(o))))
	g.ok("row 12, get", g.call(v, "GET", proxy+"/files/"+shared, nil))
	g.ok("row 12, download", g.call(v, "GET", proxy+"/files/"+shared+"/content", nil))
	g.ok("row 12, delete", g.call(v, "DELETE", proxy+"/files/"+shared, nil))
	private = g.put(u, "up.txt", "x")
	for _, scope := range []string{"user", "app"} {
		g.notFound("row 15", g.say(o.scoped(scope), message(uploadBlock(private), code)))
	}
	g.notFound("row 16", g.say(u, in(g.space(o))))
}

func TestS44BadScopesAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, h := range [][]string{{"App"}, {"user,app"}, {"admin"}, {""}, {" app x"}, {"user", "user"}, {"user", "app"}} {
		var all []string
		for _, v := range h {
			all = append(all, "x-deepspace-sandbox-scope", v)
		}
		g.refused(strings.Join(h, "|"), g.call(u, "POST", proxy+"/messages", message(textBlock, ""), all...), 400, "")
		g.refused(strings.Join(h, "|"), g.call(u, "GET", proxy+"/files", nil, all...), 400, "")
	}
}

func TestS61IDsOfOtherThingsAreUnknown(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	file, box := g.put(u, "a.txt", "x"), g.space(u)
	for _, id := range []string{file, "msg_01Up", "container_01OnlyUpstream", "srvtoolu_01x"} {
		g.notFound("container "+id, g.say(u, message(textBlock, `,"container":"`+id+`"`)))
	}
	for _, id := range []string{box, "msg_01Up", "file_011CNha8iCJcU1wXNR6q4V8w"} {
		g.notFound("file "+id, g.say(u, message(uploadBlock(id), `,"tools":[`+codeTool+`]`)))
		g.notFound("get "+id, g.call(u, "GET", proxy+"/files/"+id, nil))
	}
}

func TestS93NothingOfAnAppShowsInTheAnswersOfAnother(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *Config) { c.File.QuotaBytes = 1000 })
	b := g.user(g.b, "u")
	look := func() []string {
		var all []string
		for _, r := range []struct{ method, path string }{{"GET", "/files"}, {"GET", "/files?limit=1"}, {"GET", "/files/file_01x"}, {"DELETE", "/files/file_01x"}} {
			a := g.call(b, r.method, proxy+r.path, nil)
			all = append(all, fmt.Sprint(a.status, strings.ReplaceAll(a.body, a.header.Get("request-id"), "")))
		}
		a := g.post(b, part{"file", "b.txt", "text/plain", strings.Repeat("x", 1001)})
		return append(all, fmt.Sprint(a.status, strings.ReplaceAll(a.body, a.header.Get("request-id"), "")))
	}
	before := look()
	for range 3 {
		g.put(g.user(g.a, "u").scoped("app"), "a.txt", strings.Repeat("x", 300))
	}
	if a := g.post(g.user(g.a, "v"), part{"file", "a.txt", "text/plain", strings.Repeat("x", 300)}); a.code() != "storage_quota_exceeded" {
		t.Errorf("A is not full: %d %s", a.status, a.body)
	}
	if after := look(); !slices.Equal(before, after) {
		t.Errorf("B sees %q, before A had files %q", after, before)
	}
	g.put(b, "b.txt", strings.Repeat("x", 900)) // the quota of B is its own
}

func TestS103ANewAppOfTheSameOwnerReachesNothingOfTheOldOne(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u").scoped("app")
	file, box := g.put(u, "a.txt", "x"), g.space(u)
	off := true
	if _, err := g.parts.tenants.UpdateApp(t.Context(), g.a.id, tenant.AppChange{Disabled: &off}); err != nil {
		t.Fatal(err)
	}
	if a := g.call(u, "GET", proxy+"/files/"+file, nil); a.status != 403 && a.status != 401 {
		t.Errorf("the old app still answers: %d", a.status)
	}
	next := g.newApp("a again")
	if next.id == g.a.id {
		t.Fatal("an id was given twice")
	}
	for _, w := range []who{g.user(next, "u"), g.owner(next)} {
		g.everyUse("the new app", w, file)
		g.everyForm("the new app", w, box)
	}
}

// What V makes in a container that U opened to the app is V's, and open to the app: the rule by which outputs are owned.
func TestForkOfAContainerOfTheAppBelongsToWhoForksIt(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	box := g.space(u.scoped("app"))
	a := g.call(who{}, "POST", "/airlock/v1/containers/"+box+"/fork", nil, "authorization", "Bearer "+v.token)
	g.ok("fork", a)
	c, err := g.parts.containers.Get(t.Context(), tenant.Caller{AppID: g.a.id, UserID: jwt.OwnIssuer + "/v"}, containerID(a.member("id")))
	if err != nil || c.Owner != (tenant.Owner{AppID: g.a.id, UserID: jwt.OwnIssuer + "/v", Scope: tenant.ScopeApp}) {
		t.Errorf("the fork belongs to %+v (%v)", c, err)
	}
}
