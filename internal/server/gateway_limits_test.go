package server

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestS36ProbingIsLimitedAndWrittenDown(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *Config) { c.Limits.Misses = 60 })
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	mine := g.put(v, "a.txt", "x")
	theirs := g.put(u, "a.txt", "x")
	for i := range 60 {
		id := wire.NewID("file")
		if i == 0 {
			id = theirs
		}
		g.notFound(id, g.call(v, "GET", proxy+"/files/"+id, nil))
	}
	for _, id := range []string{theirs, wire.NewID("file"), mine} {
		a := g.call(v, "GET", proxy+"/files/"+id, nil)
		g.refused("the 61st", a, 429, "")
		if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
			t.Errorf("retry-after %q", a.header.Get("Retry-After"))
		}
	}
	g.ok("another user", g.call(u, "GET", proxy+"/files/"+theirs, nil))
	g.advance(time.Minute)
	g.ok("a minute later", g.call(v, "GET", proxy+"/files/"+mine, nil))
	g.notFound("a minute later", g.call(v, "GET", proxy+"/files/"+theirs, nil))
	a := g.call(who{}, "GET", "/airlock/v1/audit?limit=100", nil, "x-api-key", g.AdminKey())
	if a.status != 200 || !strings.Contains(a.body, "access.refused") || !strings.Contains(a.body, theirs) || strings.Contains(a.body, v.token) {
		t.Errorf("the audit: %d %.500s", a.status, a.body)
	}
}

func TestRequestLimitsAreToldAndKept(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *Config) { c.Limits.UserRequests = 3 })
	u := g.user(g.a, "u")
	for left := 2; left >= 0; left-- {
		a := g.call(u, "GET", proxy+"/files", nil)
		h := a.header
		if a.status != 200 || h.Get("Anthropic-Ratelimit-Requests-Limit") != "3" || h.Get("Anthropic-Ratelimit-Requests-Remaining") != strconv.Itoa(left) || h.Get("Anthropic-Ratelimit-Requests-Reset") == "" {
			t.Errorf("%d with %v", a.status, h)
		}
	}
	a := g.say(u, message(textBlock, ""))
	g.refused("the 4th", a, 429, "")
	if a.header.Get("Retry-After") == "" || a.header.Get("Anthropic-Ratelimit-Requests-Remaining") != "0" {
		t.Errorf("refused with %v", a.header)
	}
	g.ok("another user", g.call(g.user(g.a, "v"), "GET", proxy+"/files", nil))
	g.ok("the same subject in another app", g.call(g.user(g.b, "u"), "GET", proxy+"/files", nil))
	g.advance(time.Minute)
	g.ok("a minute later", g.call(u, "GET", proxy+"/files", nil))
}

func TestMessagesInFlightAreLimited(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *Config) { c.Limits.UserMessages = 1 })
	u := g.user(g.a, "u")
	began, goOn := make(chan struct{}), make(chan struct{})
	g.up.answer = func(a asked) (int, http.Header, string) {
		if strings.Contains(a.body, "wait") {
			close(began)
			<-goOn
		}
		return saysOK(a)
	}
	first := make(chan answer, 1)
	go func() { first <- g.say(u, message(`{"type":"text","text":"wait"}`, "")) }()
	<-began
	if a := g.say(u, message(textBlock, "")); a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("a second message: %d %s", a.status, a.body)
	}
	if a := g.call(u, "GET", proxy+"/files", nil); a.status != 200 {
		t.Errorf("what is no message: %d", a.status)
	}
	if a := g.say(g.user(g.a, "v"), message(textBlock, "")); a.status != 200 {
		t.Errorf("another user: %d %s", a.status, a.body)
	}
	close(goOn)
	g.ok("the first", <-first)
	g.ok("the next", g.say(u, message(textBlock, "")))
}
