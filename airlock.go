package airlock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

// Scope says who may use what a call creates: files and containers. It never reaches beyond the app, never changes who
// pays, and has no part in using what is there already.
type Scope string

const (
	// ScopeUser keeps what is created to the subject of the token. It is the default.
	ScopeUser Scope = "user"
	// ScopeApp opens what is created to every caller of the same app, such as a job that the app's owner pays for.
	ScopeApp Scope = "app"
)

const (
	gatewayPath    = "/api/proxy/anthropic/"
	userHeader     = "x-auth-token"
	appHeader      = "x-app-id"
	identityHeader = "x-app-identity-token"
	scopeHeader    = "x-deepspace-sandbox-scope"
)

// Env is what an app needs to reach its gateway; `airlock app env ID` prints it.
type Env struct {
	// BaseURL of the server, API_WORKER_URL. One trailing slash is removed.
	BaseURL string
	// OwnerJWT is the token of the app's owner, APP_OWNER_JWT, used by calls that are given no other token.
	OwnerJWT string
	// AppID, DEEPSPACE_APP_ID, and AppIdentityToken, APP_IDENTITY_TOKEN, prove the app. Without them the gateway takes plain
	// model calls only: no code execution, no files.
	AppID, AppIdentityToken string
}

// EnvFromOS reads API_WORKER_URL, which must be set, APP_OWNER_JWT, DEEPSPACE_APP_ID and APP_IDENTITY_TOKEN.
func EnvFromOS() (Env, error) {
	env := Env{
		BaseURL:          os.Getenv("API_WORKER_URL"),
		OwnerJWT:         os.Getenv("APP_OWNER_JWT"),
		AppID:            os.Getenv("DEEPSPACE_APP_ID"),
		AppIdentityToken: os.Getenv("APP_IDENTITY_TOKEN"),
	}
	if env.BaseURL == "" {
		return Env{}, errors.New("airlock: API_WORKER_URL is not set: it is the address of the gateway")
	}
	return env, nil
}

// ClientOption changes what [RequestOptions], [NewClient] and [NewFiles] set up. Of two that contradict each other the
// last one counts.
type ClientOption func(*config)

type config struct {
	env   Env
	token func(context.Context) (string, error)
	scope Scope
	http  option.HTTPClient
	err   error
}

// WithAuthToken acts as the subject of this JWT, and bills it. Without this option and [WithTokenSource] it is the owner
// of the app, [Env].OwnerJWT. An empty token is an error: a user who has none must not become the owner.
func WithAuthToken(jwt string) ClientOption {
	return func(c *config) {
		c.token = func(context.Context) (string, error) { return jwt, nil }
		if jwt == "" {
			c.err = errors.New("airlock: WithAuthToken was given an empty token")
		}
	}
}

// WithTokenSource asks for the token on every attempt of every request, so that tokens of a minute last through a turn of
// an hour. The source is given the context of the request, may be called by several goroutines at once, and caches what it
// likes. Its error ends the request, which is not tried again.
func WithTokenSource(source func(ctx context.Context) (string, error)) ClientOption {
	return func(c *config) {
		c.token = source
		if source == nil {
			c.err = errors.New("airlock: WithTokenSource was given no function")
		}
	}
}

// WithScope sets the scope of what the calls create.
func WithScope(s Scope) ClientOption {
	return func(c *config) { c.scope = s }
}

// WithHTTPClient sends requests through this client in place of one with the default transport that follows no redirect:
// a redirect would take the token along.
func WithHTTPClient(client option.HTTPClient) ClientOption {
	return func(c *config) {
		c.http = client
		if client == nil {
			c.err = errors.New("airlock: WithHTTPClient was given no client")
		}
	}
}

// RequestOptions makes a client of the official SDK one of the gateway: pass them to [anthropic.NewClient], before options
// of your own. They set the address, keep ANTHROPIC_* variables and profiles out, and put the gateway's headers on every
// attempt in place of any credential of Anthropic's. The error says what env or an option lacks; nothing is sent.
func RequestOptions(env Env, opts ...ClientOption) ([]option.RequestOption, error) {
	c, err := configure(env, opts)
	if err != nil {
		return nil, err
	}
	return []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithBaseURL(c.env.BaseURL + gatewayPath),
		option.WithHTTPClient(c.http),
		option.WithMiddleware(c.sign),
	}, nil
}

// NewClient is a client of the official SDK with [RequestOptions].
func NewClient(env Env, opts ...ClientOption) (anthropic.Client, error) {
	options, err := RequestOptions(env, opts...)
	if err != nil {
		return anthropic.Client{}, err
	}
	return anthropic.NewClient(options...), nil
}

func configure(env Env, opts []ClientOption) (*config, error) {
	c := &config{env: env, scope: ScopeUser, http: &http.Client{CheckRedirect: refuseRedirect}}
	for _, o := range opts {
		o(c)
	}
	if c.err != nil {
		return nil, c.err
	}
	c.env.BaseURL = strings.TrimSuffix(env.BaseURL, "/")
	if u, err := url.Parse(c.env.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("airlock: the address of the gateway is %q, not one that begins with http:// or https://", env.BaseURL)
	}
	if c.scope != ScopeUser && c.scope != ScopeApp {
		return nil, fmt.Errorf("airlock: the scope is %q, not user or app", c.scope)
	}
	if env.AppIdentityToken != "" && env.AppID == "" {
		return nil, errors.New("airlock: there is an app identity token and no app id (DEEPSPACE_APP_ID)")
	}
	if c.token == nil {
		if env.OwnerJWT == "" {
			return nil, errors.New("airlock: there is no token: use WithAuthToken, WithTokenSource or APP_OWNER_JWT")
		}
		c.token = func(context.Context) (string, error) { return env.OwnerJWT, nil }
	}
	return c, nil
}

// sign is a middleware: the SDK runs it on every attempt, with a copy of the request.
func (c *config) sign(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	token, err := c.token(req.Context())
	if err == nil && token == "" {
		err = errors.New("the token is empty")
	}
	if err != nil {
		// Without a response, if an empty one, the SDK would take the error for a lost connection and try again.
		final := &http.Response{Request: req, Header: http.Header{}, Body: http.NoBody}
		return final, fmt.Errorf("airlock: get a token: %w", err)
	}
	for _, name := range []string{"authorization", "x-api-key", userHeader, appHeader, identityHeader, scopeHeader} {
		req.Header.Del(name)
	}
	req.Header.Set(userHeader, token)
	req.Header.Set(scopeHeader, string(c.scope))
	if c.env.AppIdentityToken != "" {
		req.Header.Set(appHeader, c.env.AppID)
		req.Header.Set(identityHeader, c.env.AppIdentityToken)
	}
	return next(req)
}

// refuseRedirect: net/http takes headers of ours along to another host.
func refuseRedirect(req *http.Request, _ []*http.Request) error {
	return fmt.Errorf("airlock: the gateway redirects to %s://%s: set API_WORKER_URL to the address that answers", req.URL.Scheme, req.URL.Host)
}
