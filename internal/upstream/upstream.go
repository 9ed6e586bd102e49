package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/upstream/script"
)

// Kind says how an upstream is reached.
type Kind string

// The kinds of upstream.
const (
	KindAnthropic Kind = "anthropic" // Anthropic's own endpoint or a stand-in for it
	KindURL       Kind = "url"       // any server of POST /v1/messages
	KindScript    Kind = "script"    // the scripted model in this process
)

// AnthropicURL is the base URL of KindAnthropic when none is set.
const AnthropicURL = "https://api.anthropic.com"

// Config is one upstream as the operator names it.
type Config struct {
	Name    string   // for logs and messages; "" = the kind
	Kind    Kind     // "" = url when BaseURL is set
	BaseURL string   // without /v1; required for url, optional for anthropic
	Key     string   // sent as x-api-key; optional for url, unused for script
	Models  []string // model-name patterns with *; empty = every model
}

// ParseValue reads the value of the upstream setting: "anthropic", "script" or
// a base URL.
func ParseValue(v string) (Config, error) {
	switch v {
	case "":
		return Config{}, errors.New("upstream is empty; use anthropic, script or a base URL")
	case string(KindAnthropic):
		return Config{Name: v, Kind: KindAnthropic}, nil
	case string(KindScript):
		return Config{Name: v, Kind: KindScript}, nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Config{}, fmt.Errorf("upstream %q is neither anthropic, script nor an http(s) base URL", v)
	}
	return Config{Name: u.Host, Kind: KindURL, BaseURL: v}, nil
}

// Set is every configured upstream, in the order of the settings. The zero Set
// has none and answers each request with the names of the settings.
type Set struct {
	Endpoints []*Endpoint
}

// Options are shared by the upstreams of a Set.
type Options struct {
	Transport http.RoundTripper // nil = http.DefaultTransport's clone with a dial limit
	Retry     Retry
	Now       func() time.Time // nil = time.Now
}

// New checks the configurations and builds the Set.
func New(configs []Config, o Options) (*Set, error) {
	s := &Set{}
	names := map[string]bool{}
	for _, c := range configs {
		e, err := newEndpoint(c, o)
		if err != nil {
			return nil, err
		}
		if names[e.Name] {
			return nil, fmt.Errorf("two upstreams are named %q", e.Name)
		}
		names[e.Name] = true
		s.Endpoints = append(s.Endpoints, e)
	}
	return s, nil
}

func newEndpoint(c Config, o Options) (*Endpoint, error) {
	if c.Kind == "" && c.BaseURL != "" {
		c.Kind = KindURL
	}
	e := &Endpoint{Name: c.Name, Kind: c.Kind, key: c.Key, models: c.Models, retry: o.Retry.withDefaults(), now: o.Now}
	if e.Name == "" {
		e.Name = string(c.Kind)
	}
	if e.now == nil {
		e.now = time.Now
	}
	transport := o.Transport
	switch c.Kind {
	case KindScript:
		transport = script.New()
		c.BaseURL = "http://script.invalid"
	case KindAnthropic:
		if c.BaseURL == "" {
			c.BaseURL = AnthropicURL
		}
		if c.Key == "" {
			return nil, fmt.Errorf("upstream %s needs a key: set ANTHROPIC_API_KEY or upstream_key", e.Name)
		}
	case KindURL:
		if c.BaseURL == "" {
			return nil, fmt.Errorf("upstream %s needs a base URL", e.Name)
		}
	default:
		return nil, fmt.Errorf("upstream %s has the unknown kind %q; use anthropic, url or script", e.Name, c.Kind)
	}
	u, err := url.Parse(strings.TrimRight(c.BaseURL, "/"))
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("upstream %s has a malformed base URL", e.Name)
	}
	// People paste the URL with or without the version.
	u.Path = strings.TrimSuffix(u.Path, "/v1")
	e.base = u
	if transport == nil {
		transport = defaultTransport()
	}
	e.http = &http.Client{Transport: transport, CheckRedirect: noRedirect}
	return e, nil
}

// noRedirect keeps the key on the configured host.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
