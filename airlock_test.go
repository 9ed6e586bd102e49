package airlock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock"
)

func TestRequestsHaveTheHeadersOfTheGatewayAndNoneOfAnthropics(t *testing.T) {
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-leak", "ANTHROPIC_AUTH_TOKEN": "leak", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
		"ANTHROPIC_CUSTOM_HEADERS": "x-app-id: app_evil\nanthropic-beta: leak", "ANTHROPIC_PROFILE": "none",
	} {
		t.Setenv(name, value)
	}
	g := newGateway(t, says("end_turn", "", text("hi")), says("end_turn", "", text("hi")), plain(200, file("file_1"), nil))
	options, err := airlock.RequestOptions(g.env(), airlock.WithAuthToken("user.jwt"), airlock.WithScope(airlock.ScopeApp))
	if err != nil {
		t.Fatal(err)
	}
	// What was forwarded from elsewhere must not get in beside ours.
	c := anthropic.NewClient(append(options, option.WithAPIKey("sk-leak"), option.WithHeader("x-app-id", "app_evil"),
		option.WithHeader("x-app-identity-token", "evil"), option.WithHeader("x-deepspace-sandbox-scope", "user"))...)
	if _, err := c.Messages.New(t.Context(), ask()); err != nil {
		t.Fatal(err)
	}
	stream := c.Messages.NewStreaming(t.Context(), ask())
	for stream.Next() {
		continue // only the request matters
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Files.GetMetadata(t.Context(), "../messages", anthropic.FileGetMetadataParams{}); err != nil {
		t.Fatal(err)
	}
	got := g.requests(t, 3)
	for i, uri := range []string{"/api/proxy/anthropic/v1/messages", "/api/proxy/anthropic/v1/messages", "/api/proxy/anthropic/v1/files/..%2Fmessages"} {
		if got[i].uri != uri {
			t.Errorf("request %d went to %s, want %s", i, got[i].uri, uri)
		}
		want := map[string]string{
			"x-auth-token": "user.jwt", "x-app-id": "app_01", "x-app-identity-token": "v1.identity",
			"x-deepspace-sandbox-scope": "app", "anthropic-version": "2026-10-21",
		}
		if diff := cmp.Diff(want, gatewayHeaders(got[i].header)); diff != "" {
			t.Errorf("headers of request %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestOwnerPaysAndScopeIsUserUnlessTold(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says("end_turn", "", text("hi")))
	env := g.env()
	env.AppIdentityToken = ""
	c, err := airlock.NewClient(env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Messages.New(t.Context(), ask()); err != nil {
		t.Fatal(err)
	}
	// Without the identity token the app is not named either.
	want := map[string]string{"x-auth-token": "owner.jwt", "x-deepspace-sandbox-scope": "user", "anthropic-version": "2026-10-21"}
	if diff := cmp.Diff(want, gatewayHeaders(g.requests(t, 1)[0].header)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestTokenSourceIsAskedOnEveryAttempt(t *testing.T) {
	t.Parallel()
	g := newGateway(t, refuse(529, "overloaded", ""), says("end_turn", "", text("hi")), says("end_turn", "", text("hi")))
	type key struct{}
	var asked atomic.Int32
	c := g.client(t, airlock.WithAuthToken("not this one"), airlock.WithTokenSource(func(ctx context.Context) (string, error) {
		if ctx.Value(key{}) != "mine" {
			t.Error("the source was not given the context of the request")
		}
		return fmt.Sprintf("token-%d", asked.Add(1)), nil
	}))
	ctx := context.WithValue(t.Context(), key{}, "mine")
	for range 2 {
		if _, err := c.Messages.New(ctx, ask()); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range g.requests(t, 3) {
		if got, want := r.header.Get("x-auth-token"), fmt.Sprintf("token-%d", i+1); got != want {
			t.Errorf("attempt %d was sent with %q, want %q", i, got, want)
		}
	}
}

func TestTokenSourceThatFailsEndsTheRequestAtOnce(t *testing.T) {
	t.Parallel()
	broken := errors.New("the login server is away")
	for name, source := range map[string]func() (string, error){
		"error": func() (string, error) { return "", broken },
		"empty": func() (string, error) { return "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			var asked atomic.Int32
			c := g.client(t, airlock.WithTokenSource(func(context.Context) (string, error) {
				asked.Add(1)
				return source()
			}))
			_, err := c.Messages.New(t.Context(), ask())
			if err == nil || !strings.Contains(err.Error(), "get a token") || name == "error" && !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("the source was asked %d times", n)
			}
			g.requests(t, 0)
		})
	}
}

func TestIncompleteEnvIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	whole := airlock.Env{BaseURL: "https://gateway.example", OwnerJWT: "jwt", AppID: "app_01", AppIdentityToken: "v1.x"}
	for name, c := range map[string]struct {
		change func(*airlock.Env)
		opts   []airlock.ClientOption
		want   string
	}{
		"no address":            {change: func(e *airlock.Env) { e.BaseURL = "" }, want: "address of the gateway"},
		"no scheme":             {change: func(e *airlock.Env) { e.BaseURL = "gateway.example:443" }, want: "http://"},
		"other scheme":          {change: func(e *airlock.Env) { e.BaseURL = "ftp://gateway.example" }, want: "http://"},
		"no token":              {change: func(e *airlock.Env) { e.OwnerJWT = "" }, want: "APP_OWNER_JWT"},
		"identity, no app":      {change: func(e *airlock.Env) { e.AppID = "" }, want: "DEEPSPACE_APP_ID"},
		"token of nobody":       {opts: []airlock.ClientOption{airlock.WithAuthToken("")}, want: "WithAuthToken"},
		"source of nothing":     {opts: []airlock.ClientOption{airlock.WithTokenSource(nil)}, want: "WithTokenSource"},
		"unknown scope":         {opts: []airlock.ClientOption{airlock.WithScope("team")}, want: `"team"`},
		"empty scope":           {opts: []airlock.ClientOption{airlock.WithScope("")}, want: "scope"},
		"no client":             {opts: []airlock.ClientOption{airlock.WithHTTPClient(nil)}, want: "WithHTTPClient"},
		"nothing is the matter": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := whole
			if c.change != nil {
				c.change(&env)
			}
			_, err := airlock.NewFiles(env, c.opts...)
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %s", err, c.want)
			}
		})
	}
}

func TestEnvFromOS(t *testing.T) {
	t.Setenv("API_WORKER_URL", "")
	if _, err := airlock.EnvFromOS(); err == nil || !strings.Contains(err.Error(), "API_WORKER_URL") {
		t.Errorf("without an address: %v", err)
	}
	want := airlock.Env{BaseURL: "http://g/", OwnerJWT: "o", AppID: "a", AppIdentityToken: "i"}
	for name, value := range map[string]string{"API_WORKER_URL": want.BaseURL, "APP_OWNER_JWT": "o", "DEEPSPACE_APP_ID": "a", "APP_IDENTITY_TOKEN": "i"} {
		t.Setenv(name, value)
	}
	if got, err := airlock.EnvFromOS(); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRedirectTakesNoTokenAlong(t *testing.T) {
	t.Parallel()
	elsewhere := newGateway(t)
	g := newGateway(t, func(w http.ResponseWriter, _ request) {
		w.Header().Set("location", elsewhere.url)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	client := g.client(t)
	_, err := client.Messages.New(t.Context(), ask())
	if err == nil || !strings.Contains(err.Error(), "redirects to "+elsewhere.url) {
		t.Errorf("got %v", err)
	}
	g.requests(t, 1)
	elsewhere.requests(t, 0)
}

func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	type told struct{ notFound, scope, credits bool }
	for name, c := range map[string]struct {
		answer answer
		want   told
	}{
		"unknown":        {refuse(404, "Not found", ""), told{notFound: true}},
		"expired":        {refuse(404, "gone", "file_expired"), told{notFound: true}},
		"mismatch":       {refuse(400, "scope", "scope_mismatch"), told{scope: true}},
		"no money":       {refuse(402, "Insufficient credits.", "insufficient_credits"), told{credits: true}},
		"something else": {refuse(400, "bad", ""), told{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, c.answer)
			_, err := g.files(t).Get(t.Context(), "file_1")
			err = fmt.Errorf("get: %w", err)
			got := told{airlock.IsNotFound(err), airlock.IsScopeMismatch(err), airlock.IsInsufficientCredits(err)}
			if got != c.want {
				t.Errorf("%v: got %+v, want %+v", err, got, c.want)
			}
		})
	}
	if err := errors.New("lost"); airlock.IsNotFound(err) || airlock.IsScopeMismatch(err) || airlock.IsInsufficientCredits(nil) {
		t.Error("an error that is none of the server's was taken for one")
	}
}
