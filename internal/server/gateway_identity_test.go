package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// fileRoutes are the calls of the files client.
var fileRoutes = []struct{ method, path string }{
	{"POST", proxy + "/files"},
	{"GET", proxy + "/files"},
	{"GET", proxy + "/files/file_x"},
	{"GET", proxy + "/files/file_x/content"},
	{"DELETE", proxy + "/files/file_x"},
}

func TestS23FilesNeedTheIdentityOfAnApp(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u").with(application{})
	for _, r := range fileRoutes {
		a := g.call(u, r.method, r.path, nil)
		g.refused(r.method+" "+r.path, a, 401, "app_identity_missing")
		if a.failure().Error.Message != "missing app identity" {
			t.Errorf("told %q", a.failure().Error.Message)
		}
	}
}

func TestS24MessagesThatUseASandboxNeedTheIdentityOfAnApp(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u").with(application{})
	for name, body := range map[string]string{
		"code execution tool":      message(textBlock, `,"tools":[`+codeTool+`]`),
		"unknown version of it":    message(textBlock, `,"tools":[{"type":"code_execution_20990101","name":"code_execution"}]`),
		"container":                message(textBlock, `,"container":"container_01A"`),
		"container object":         message(textBlock, `,"container":{"skills":[{"type":"anthropic","skill_id":"xlsx"}]}`),
		"container of a bad type":  message(textBlock, `,"container":7`),
		"upload":                   message(uploadBlock("file_x"), ""),
		"image":                    message(`{"type":"image","source":{"type":"file","file_id":"file_x"}}`, ""),
		"output in the history":    message(`{"type":"unknown","content":[{"type":"bash_code_execution_output","file_id":"file_x"}]}`, ""),
		"file id of a bad type":    message(`{"type":"container_upload","file_id":7}`, ""),
		"allowed callers":          message(textBlock, `,"tools":[{"name":"x","input_schema":{"type":"object"},"allowed_callers":["code_execution_20260120"]}]`),
		"direct callers":           message(textBlock, `,"tools":[{"name":"x","input_schema":{"type":"object"},"allowed_callers":["direct"]}]`),
		"web search with a filter": message(textBlock, `,"tools":[{"type":"web_search_20260209","name":"web_search"}]`),
		"web fetch, a later one":   message(textBlock, `,"tools":[{"type":"web_fetch_20270101","name":"web_fetch"}]`),
	} {
		for _, path := range []string{"/messages", "/messages/count_tokens"} {
			g.refused(name, g.call(u, "POST", proxy+path, body), 401, "app_identity_missing")
		}
	}
}

func TestS25PlainMessageNeedsNoIdentity(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u").with(application{})
	for name, body := range map[string]string{
		"text":              message(textBlock, ""),
		"an own tool":       message(textBlock, `,"tools":[{"name":"x","input_schema":{"type":"object"}}]`),
		"plain web search":  message(textBlock, `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`),
		"container of null": message(textBlock, `,"container":null`),
	} {
		a := g.say(u, body)
		if n := len(g.up.requests()); n != 1 {
			t.Errorf("%s: the upstream was asked %d times", name, n)
		}
		g.ok(name, a)
	}
}

func TestS26HalfAPairIsMissingAndAWrongPairInvalid(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	plain, code := message(textBlock, ""), message(textBlock, `,"tools":[`+codeTool+`]`)
	g.refused("id alone", g.say(u.with(application{id: g.a.id}), code), 401, "app_identity_missing")
	g.refused("token alone", g.say(u.with(application{identity: g.a.identity}), code), 401, "app_identity_missing")
	for name, a := range map[string]application{
		"placeholder undefined": {g.a.id, "undefined"},
		"placeholder null":      {g.a.id, "null"},
		"id undefined":          {"undefined", g.a.identity},
		"id of B, token of A":   {g.b.id, g.a.identity},
		"id of A, token of B":   {g.a.id, g.b.identity},
	} {
		// Also for what needs none, so that a broken deployment shows at once.
		for _, body := range []string{plain, code} {
			g.refused(name, g.say(u.with(a), body), 401, "app_identity_invalid")
		}
		g.refused(name+", files", g.call(u.with(a), "GET", proxy+"/files", nil), 401, "app_identity_invalid")
	}
}

func TestS27IdentityIsTakenAsItIsOrNotAtAll(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	id := g.a.identity
	for name, token := range map[string]string{
		"upper case":       strings.ToUpper(id),
		"one letter upper": strings.Replace(id, "v", "V", 1),
		"space inside":     id[:10] + " " + id[10:],
		"truncated":        id[:len(id)-1],
		"extended":         id + "0",
		"twice":            id + "," + id,
		"one digit off":    id[:len(id)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(id, "0")],
		"without its form": id[strings.Index(id, ".")+1:],
		"another form":     "v0" + id[1:],
	} {
		g.refused(name, g.call(u.with(application{g.a.id, token}), "GET", proxy+"/files", nil), 401, "app_identity_invalid")
	}
	g.refused("id in small letters", g.call(u.with(application{strings.ToLower(g.a.id), id}), "GET", proxy+"/files", nil), 401, "app_identity_invalid")
	g.ok("as it is", g.call(u, "GET", proxy+"/files", nil))
}

func TestS31HeadersThatNameSomebodyElseChangeNothing(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	own := g.put(u, "a.txt", "x")
	spoofed := []string{
		"x-user-id", "v", "x-deepspace-owner", "v", "x-airlock-payer", "v", "x-forwarded-for", "10.0.0.1", "x-forwarded-user", "v",
		"anthropic-workspace-id", "wrkspc_spoofed", "anthropic-user-profile-id", "spoofed", "cookie", "session=spoofed",
		"x-auth-user", "spoofed", "x-app-owner", "spoofed", "anthropic-beta", "files-api-2025-04-14,interleaved-thinking-2025-05-14",
	}
	for _, body := range []string{message(textBlock, ""), message(textBlock, `,"stream":true`), message(textBlock, `,"tools":[`+codeTool+`]`)} {
		a := g.call(u, "POST", proxy+"/messages", body, spoofed...)
		sent := g.up.requests()
		if len(sent) != 1 {
			t.Fatalf("asked %d times: %s", len(sent), a.body)
		}
		for name := range sent[0].header {
			switch name {
			case "Accept", "Anthropic-Version", "User-Agent", "Content-Type", "X-Api-Key", "Anthropic-Beta":
			default:
				t.Errorf("the upstream was sent %s: %q", name, sent[0].header[name])
			}
		}
		if k, b := sent[0].header.Get("X-Api-Key"), sent[0].header.Get("Anthropic-Beta"); k != "sk-upstream-secret" || b != "interleaved-thinking-2025-05-14" {
			t.Errorf("key %q, betas %q", k, b)
		}
		g.ok("spoofed headers", a)
	}
	if a := g.call(u, "GET", proxy+"/files", nil, spoofed...); !strings.Contains(a.body, own) {
		t.Errorf("another user's files are listed: %s", a.body)
	}
}

func TestS32MembersThatNameSomebodyElseStayHere(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	told := map[string]string{}
	for name, w := range map[string]who{"u": g.user(g.a, "u"), "v": g.user(g.a, "v"), "owner": g.owner(g.a), "u of b": g.user(g.b, "u")} {
		for range 2 {
			g.ok(name, g.say(w, message(textBlock, "")))
			a := g.say(w, message(textBlock, `,"billing_policy":{"to":"v"},"fallback_credit_token":"tok","metadata":{"user_id":"somebody"},"diagnostics":{"previous_message_id":"msg_1","other":1}`))
			sent := g.up.requests()
			if len(sent) != 1 {
				t.Fatalf("asked %d times: %s", len(sent), a.body)
			}
			var body struct {
				Metadata struct {
					UserID string `json:"user_id"`
				} `json:"metadata"`
				Diagnostics map[string]any `json:"diagnostics"`
			}
			if err := json.Unmarshal([]byte(sent[0].body), &body); err != nil {
				t.Fatal(err)
			}
			for _, gone := range []string{"billing_policy", "fallback_credit_token", "somebody", "previous_message_id"} {
				if strings.Contains(sent[0].body, gone) {
					t.Errorf("%s: the upstream was sent %s: %s", name, gone, sent[0].body)
				}
			}
			if body.Diagnostics["other"] == nil {
				t.Errorf("what else diagnostics hold was lost: %s", sent[0].body)
			}
			id := body.Metadata.UserID
			if id == "" || told[name] != "" && told[name] != id || strings.Contains(id, "owner") {
				t.Errorf("%s is %q for the upstream, was %q", name, id, told[name])
			}
			told[name] = id
			g.ok(name, a)
		}
	}
	seen := map[string]string{}
	for name, id := range told {
		if seen[id] != "" {
			t.Errorf("%s and %s are one for the upstream", name, seen[id])
		}
		seen[id] = name
	}
	if a := g.say(g.user(g.a, "u"), message(textBlock, `,"metadata":"x"`)); a.status != 400 {
		t.Errorf("metadata that is no object: %d %s", a.status, a.body)
	}
}

func TestS96KeysStayOutOfTheGatewayAndUnboundTokensOutOfV1(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	body := message(textBlock, "")
	for _, key := range []string{g.key, g.AdminKey()} {
		for _, h := range [][]string{{"x-api-key", key}, {"authorization", "Bearer " + key}, {"x-auth-token", key}} {
			for _, app := range []application{{}, g.a} {
				w := who{app: app}
				g.refused(h[0], g.call(w, "POST", proxy+"/messages", body, h...), 401, "")
				g.refused(h[0]+", files", g.call(w, "GET", proxy+"/files", nil, h...), 401, "")
			}
		}
	}
	u := g.user(g.a, "u")
	for _, h := range [][]string{{"authorization", "Bearer " + u.token}, {"x-auth-token", u.token}} {
		g.ok("a bound token on /v1", g.call(who{}, "POST", "/v1/messages", body, h...))
		g.ok("files of /v1", g.call(who{}, "GET", "/v1/files", nil, h...))
		g.ok("containers", g.call(who{}, "GET", "/airlock/v1/containers", nil, h...))
	}
	// On /v1 the token alone decides: an identity of another app beside it opens nothing there.
	file := g.put(g.user(g.b, "u"), "b.txt", "x")
	g.notFound("identity on /v1", g.call(u.with(g.b), "GET", "/v1/files/"+file, nil))
}

// The hex alone, as another platform makes it, is nothing here unless it was configured.
func TestIdentityInAnotherPlatformsFormIsRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	m := hmac.New(sha256.New, []byte(""))
	m.Write([]byte(g.a.id))
	forged := application{g.a.id, hex.EncodeToString(m.Sum(nil))}
	g.refused("empty secret", g.call(g.user(g.a, "u").with(forged), "GET", proxy+"/files", nil), 401, "app_identity_invalid")
}

// pausing is an upstream that does something in the middle of its answer.
type pausing struct {
	*recorder
	pause func()
}

func (p *pausing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.recorder.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	whole, err := io.ReadAll(resp.Body)
	half := len(whole) / 2
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(whole[:half])), readerFunc(p.pause), strings.NewReader(string(whole[half:]))))
	return resp, err
}

// readerFunc is called when it is read, and has nothing.
type readerFunc func()

func (f readerFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func TestS22AStreamOutlivesItsTokenAndNoOtherRequestDoes(t *testing.T) {
	t.Parallel()
	up := &pausing{recorder: &recorder{}}
	g := startGateway(t, func(c *Config) { c.UpstreamTransport = up })
	u := who{token: g.mint(tenant.NewToken{App: g.a.id, User: "u", TTL: time.Minute}), app: g.a}
	replays := 0
	up.pause = func() {
		g.advance(2 * time.Minute)
		for _, stream := range []string{"", `,"stream":true`} {
			replays++
			if a := g.say(u, message(textBlock, stream)); a.status != 401 || a.failure().Error.Message != "invalid auth token" {
				t.Errorf("the captured token, used again: %d %s", a.status, a.body)
			}
		}
	}
	a := g.say(u, message(textBlock, `,"stream":true`))
	if a.status != 200 || !strings.Contains(a.body, "event: message_stop") || strings.Contains(a.body, "event: error") {
		t.Errorf("the stream whose token expired: %d %s", a.status, a.body)
	}
	if replays != 2 || len(up.requests()) != 1 {
		t.Errorf("%d replays while it ran, %d requests went to the model", replays, len(up.requests()))
	}
}
