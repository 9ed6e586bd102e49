package server

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestS78AddressesInAMessageAreNotFetched(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, address := range []string{
		"http://127.0.0.1/", "http://169.254.169.254/latest", "http://[::1]/", "http://2130706433/", "https://rebind.example/", "file:///etc/passwd", "gopher://x", "https://example.com/a.png",
	} {
		source := `{"type":"url","url":"` + address + `"}`
		for _, body := range []string{
			message(`{"type":"image","source":`+source+`}`, ""), message(`{"type":"document","source":`+source+`}`, ""),
			message(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":`+source+`}]}}`, ""),
			message(textBlock, `,"system":[{"type":"text","text":"x","more":{"source":`+source+`}}]`),
		} {
			g.refused(address, g.say(u, body), 400, "")
		}
	}
	g.ok("as text and as input", g.say(u, conversation(`{"role":"user","content":"http://127.0.0.1/"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"x","input":{"source":{"type":"url","url":"http://127.0.0.1/"}}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}]}`, `,"tools":[{"name":"x","input_schema":{"type":"object"}}]`)))
}

func TestS79ServersOfToolsAreNotReached(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	g.refused("mcp_servers", g.say(u, message(textBlock, `,"mcp_servers":[{"type":"url","url":"http://10.0.0.1/","name":"x","authorization_token":"x"}]`)), 400, "")
	g.refused("mcp_toolset", g.say(u, message(textBlock, `,"tools":[{"type":"mcp_toolset","mcp_server_name":"x"}]`)), 400, "")
}

func TestS80NothingInARequestChoosesTheUpstream(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, model := range []string{"../x", "http://evil.example/", "m?x=1", "m#x", "//evil.example/m", `m\u0000`, "m\\r\\nHost: evil"} {
		for _, path := range []string{"/messages", "/messages?beta=true", "/messages?base_url=http://evil.example", "/messages/count_tokens"} {
			g.call(u, "POST", proxy+path, `{"model":"`+model+`","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, "x-forwarded-host", "evil.example", "x-upstream-url", "http://evil.example")
		}
	}
	body := message(textBlock, "")
	status, _ := g.raw(u, "POST "+proxy+"/messages HTTP/1.1", "Host: evil.example", "x-auth-token: TOKEN", "Content-Type: application/json",
		"Content-Length: "+strconv.Itoa(len(body)), "Connection: close", "", body)
	if !strings.HasPrefix(status, "200") {
		t.Errorf("another Host: %s", status)
	}
	for _, a := range g.up.requests() {
		if a.url != "http://model.invalid/v1/messages" && a.url != "http://model.invalid/v1/messages/count_tokens" {
			t.Errorf("the upstream was asked at %s", a.url)
		}
	}
	if len(g.up.requests()) == 0 {
		t.Error("the upstream was never asked")
	}
}

func TestS81RequestsAreReadInOneWay(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	g.put(u, "a.txt", "x")
	credentials := []string{"x-auth-token: TOKEN", "x-app-id: APP", "x-app-identity-token: IDENTITY"}
	type try struct {
		name  string
		lines []string
		want  string // prefix of the status
	}
	with := func(line string, more ...string) []string {
		return append(append([]string{line, "Host: x"}, credentials...), more...)
	}
	post := "POST " + proxy + "/files HTTP/1.1"
	for _, tt := range []try{
		{"both lengths", with(post, "Content-Length: 5", "Transfer-Encoding: chunked", "Connection: close", "", "0\r\n\r\n"), "4"},
		{"two lengths", with(post, "Content-Length: 5", "Content-Length: 6", "Connection: close", "", "aaaaa"), "400"},
		{"unknown transfer encoding", with(post, "Transfer-Encoding: x", "Connection: close", "", ""), "501"},
		{"chunked twice", with(post, "Transfer-Encoding: chunked, chunked", "Connection: close", "", ""), "501"},
		{"a header with a space", with("GET "+proxy+"/files HTTP/1.1", "x-user : v", "Connection: close", ""), "400"},
		{"a header folded", with("GET "+proxy+"/files HTTP/1.1", "x-a: b", " x-auth-token: c", "Connection: close", ""), ""},
		{"no host", append([]string{"GET " + proxy + "/files HTTP/1.1"}, append(credentials, "Connection: close", "")...), "400"},
		{"pseudo header", with("GET "+proxy+"/files HTTP/1.1", ":path: /v1/messages", "Connection: close", ""), "400"},
		{"HTTP/1.0", with("GET "+proxy+"/files HTTP/1.0", ""), "200"},
		{"Expect of something else", with(post, "Expect: x", "Content-Length: 0", "Connection: close", ""), "4"},
		{"token named hop by hop", with("GET "+proxy+"/files HTTP/1.1", "Connection: close, x-auth-token, x-app-id", ""), "200"},
		{"HTTP/3.0", with("GET "+proxy+"/files HTTP/3.0", ""), "505"},
		{"absolute address", with("GET http://evil.example"+proxy+"/files HTTP/1.1", "Connection: close", ""), "200"},
	} {
		status, rest := g.raw(u, tt.lines...)
		if !strings.HasPrefix(status, tt.want) {
			t.Errorf("%s: %s %.200s", tt.name, status, rest)
		}
		// One request has one answer: what came behind was not read as another.
		if strings.Count(rest, "HTTP/1.") > 0 {
			t.Errorf("%s: a second answer: %.300s", tt.name, rest)
		}
	}
	g.silent("hop by hop")
}

func TestS82NothingOfTheOperatorsAccountReachesAClient(t *testing.T) {
	t.Parallel()
	secrets := []string{"org-secret", "sk-upstream", "wrkspc_secret", "req_upstream", "plans and billing", "credit balance", "cookie-secret", "ratelimit-secret", "organization"}
	header := func() http.Header {
		h := http.Header{}
		h.Set("Anthropic-Organization-Id", "org-secret")
		h.Set("Request-Id", "req_upstream")
		h.Set("Set-Cookie", "cookie-secret")
		h.Set("Anthropic-Ratelimit-Requests-Limit", "ratelimit-secret")
		h.Set("Anthropic-Ratelimit-Tokens-Remaining", "ratelimit-secret")
		h.Set("Cf-Ray", "org-secret")
		return h
	}
	failure := func(kind, text string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + text + `"},"request_id":"req_upstream"}`
	}
	for name, tt := range map[string]struct {
		status     int
		kind, text string
		want       int
	}{
		"401":         {401, "authentication_error", "invalid x-api-key sk-upstream", 502},
		"403":         {403, "permission_error", "workspace wrkspc_secret may not", 502},
		"402":         {402, "billing_error", "org-secret", 502},
		"no credit":   {400, "invalid_request_error", "Your credit balance is too low. Please go to plans and billing.", 502},
		"rate limit":  {429, "rate_limit_error", "This request would exceed your organization's rate limit (org: org-secret)", 429},
		"not found":   {404, "not_found_error", "model: x is not enabled for workspace wrkspc_secret", 404},
		"too large":   {413, "request_too_large", "organization org-secret allows 1 MB", 413},
		"overloaded":  {529, "overloaded_error", "Overloaded for organization org-secret", 529},
		"server down": {500, "api_error", "backend of org-secret failed", 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			u := g.user(g.a, "u")
			g.up.answer = func(asked) (int, http.Header, string) {
				h := header()
				h.Set("X-Should-Retry", "false")
				return tt.status, h, failure(tt.kind, tt.text)
			}
			for _, body := range []string{message(textBlock, ""), message(textBlock, `,"stream":true`)} {
				a := g.say(u, body)
				if a.status != tt.want {
					t.Errorf("%d %s, want %d", a.status, a.body, tt.want)
				}
				all := strings.ToLower(a.body + fmt.Sprint(a.header))
				for _, s := range secrets {
					if strings.Contains(all, s) {
						t.Errorf("%q is told: %s %v", s, a.body, a.header)
					}
				}
			}
			// In the middle of a stream too.
			g.up.answer = func(asked) (int, http.Header, string) {
				return 200, header(), sse(frameStart, frameText, failure(tt.kind, tt.text))
			}
			a := g.say(u, message(textBlock, `,"stream":true`))
			for _, s := range secrets {
				if strings.Contains(strings.ToLower(a.body+fmt.Sprint(a.header)), s) {
					t.Errorf("in a stream %q is told: %s %v", s, a.body, a.header)
				}
			}
			// And headers of a success.
			g.up.answer = func(a asked) (int, http.Header, string) {
				_, _, body := saysOK(a)
				return 200, header(), body
			}
			a = g.say(u, message(textBlock, ""))
			for _, s := range secrets {
				if strings.Contains(strings.ToLower(fmt.Sprint(a.header)), s) {
					t.Errorf("of a success %q is told: %v", s, a.header)
				}
			}
		})
	}
}

// listener gives out the connections of a test.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// TestS91SilentClientsAreCutOff runs in a clock of its own, where a minute takes no time.
func TestS91SilentClientsAreCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{log: slog.New(slog.DiscardHandler)}
		srv := s.httpServer(t.Context(), wire.Handler(s.log, func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Path == "/ok" {
				return nil
			}
			_, err := wire.ReadBody(r, 1<<20)
			return err
		}))
		l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
		var running sync.WaitGroup
		running.Go(func() { _ = srv.Serve(l) })
		dial := func(text string) net.Conn {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			if _, err := io.WriteString(ours, text); err != nil {
				t.Error(err)
			}
			return ours
		}
		slow := map[string]net.Conn{
			"headers": dial("POST /x HTTP/1.1\r\nHost: x\r\nX-Slow: "),
			"body":    dial("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"),
			"unread":  dial("POST /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"),
		}
		// Others are served meanwhile.
		other := dial("GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if b, err := io.ReadAll(other); err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
			t.Errorf("another request beside slow ones: %s %v", b, err)
		}
		began := time.Now()
		for name, c := range slow {
			b, _ := io.ReadAll(c) // to the end, which is what is looked at
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("slow %s were cut off after %s", name, took)
			}
			if name == "body" && !bytes.HasPrefix(b, []byte("HTTP/1.1 408")) {
				t.Errorf("a slow body is told %.200s", b)
			}
			_ = c.Close()
		}
		_ = other.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

// keptLog is a log that can be looked through.
type keptLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (k *keptLog) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Write(p)
}

func (k *keptLog) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.String()
}

func TestS92LogsHoldNoSecretsAndNoContent(t *testing.T) {
	t.Parallel()
	kept := &keptLog{}
	g := startGateway(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(kept, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	const content = "CONTENT-OF-A-FILE"
	id := g.put(u, "a.txt", content)
	g.say(u, message(`{"type":"text","text":"`+content+`"}`, ""))
	g.say(u, fmt.Sprintf(everyPosition["document"], id))
	g.say(v, fmt.Sprintf(everyPosition["document"], id))
	g.call(v, "GET", proxy+"/files/"+id, nil)
	for _, w := range []who{{token: u.token + "x", app: g.a}, {token: u.token, app: application{g.a.id, g.a.identity + "0"}}, u.with(g.b), {token: g.key}} {
		g.call(w, "GET", proxy+"/files", nil)
		g.call(w, "GET", proxy+"/files?token="+w.token, nil)
	}
	g.up.answer = func(asked) (int, http.Header, string) {
		return 401, nil, `{"type":"error","error":{"type":"authentication_error","message":"sk-upstream-secret"}}`
	}
	g.say(u, message(textBlock, ""))
	g.up.answer = func(asked) (int, http.Header, string) {
		return 200, nil, "{" + content
	}
	g.say(u, message(textBlock, ""))
	text := kept.String()
	if !strings.Contains(text, "/files/"+id) {
		t.Error("the log does not tell of the requests")
	}
	for _, secret := range []string{u.token, v.token, g.a.identity, g.b.identity, g.key, g.AdminKey(), "sk-upstream-secret", content} {
		if strings.Contains(text, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

func TestS97NoBrowserOfAnotherSiteIsLetIn(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, path := range []string{"/messages", "/files", "/files/file_x", "/files/file_x/content"} {
		a := g.call(u, "OPTIONS", proxy+path, nil, "origin", "https://evil.example", "access-control-request-method", "POST", "access-control-request-headers", "x-auth-token")
		b := g.call(u, "GET", proxy+path, nil, "origin", "https://evil.example")
		for _, h := range []http.Header{a.header, b.header} {
			for name := range h {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s: %s", path, name, h.Get(name))
				}
			}
		}
		if a.status != 405 {
			t.Errorf("a preflight of %s: %d", path, a.status)
		}
	}
	g.silent("preflights")
}

func TestS98AClockSetBackBringsNothingBackAndDeletesNothingEarly(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	upload := func(seconds string) string {
		a := g.post(u, part{"file", "a.txt", "text/plain", "x"}, part{"expires_in_seconds", "", "", seconds})
		g.ok("upload", a)
		return a.member("id")
	}
	short, long := upload("3600"), upload("86400")
	box := g.space(u)
	look := func(when string) {
		t.Helper()
		g.refused(when, g.call(u, "GET", proxy+"/files/"+short, nil), 404, "file_expired")
		g.refused(when+", container", g.say(u, message(textBlock, `,"container":"`+box+`"`)), 404, "container_expired")
		g.ok(when, g.call(u, "GET", proxy+"/files/"+long, nil))
	}
	g.advance(61 * time.Minute)
	look("after an hour")
	g.advance(-time.Hour)
	look("an hour back")
	if err := g.parts.files.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	look("swept")
	g.advance(2 * time.Hour)
	look("forward")
	if _, _, err := g.parts.files.Open(t.Context(), tenant.Caller{AppID: g.a.id, UserID: jwt.OwnIssuer + "/u"}, fileID(long)); err != nil {
		t.Errorf("the other file lost its bytes: %v", err)
	}
}
