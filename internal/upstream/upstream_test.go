package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseValue(t *testing.T) {
	t.Parallel()
	tests := map[string]Config{
		"anthropic":                   {Name: "anthropic", Kind: KindAnthropic},
		"script":                      {Name: "script", Kind: KindScript},
		"https://models.example/base": {Name: "models.example", Kind: KindURL, BaseURL: "https://models.example/base"},
	}
	for in, want := range tests {
		got, err := ParseValue(in)
		if d := cmp.Diff(got, want); d != "" || err != nil {
			t.Errorf("%s: %v (-got +want):\n%s", in, err, d)
		}
	}
	for _, in := range []string{"", "Anthropic", "ftp://x", "localhost:8080", "http://"} {
		if _, err := ParseValue(in); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestNewRefusesIncompleteConfigs(t *testing.T) {
	t.Parallel()
	for want, c := range map[string][]Config{
		"needs a key":      {{Kind: KindAnthropic}},
		"needs a base URL": {{Kind: KindURL}},
		"unknown kind":     {{Kind: "other"}},
		"malformed":        {{Kind: KindURL, BaseURL: "nohost"}},
		"two upstreams":    {{Kind: KindScript}, {Kind: KindScript}},
	} {
		if _, err := New(c, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v gave %v, want %q", c, err, want)
		}
	}
}

func TestModelsAreRoutedByTheFirstPatternThatMatches(t *testing.T) {
	t.Parallel()
	s, err := New([]Config{
		{Name: "a", Kind: KindScript, Models: []string{"claude-*", "exact"}},
		{Name: "b", Kind: KindScript, Models: []string{"gpt-?"}},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"claude-x": "a", "exact": "a", "gpt-5": "b"} {
		if e, err := s.For(model); err != nil || e.Name != want {
			t.Errorf("%s: %v, %v", model, e, err)
		}
	}
	var we *wire.Error
	if _, err := s.For("gpt-55"); !errors.As(err, &we) || we.HTTPStatus() != 404 {
		t.Errorf("an unknown model gave %v", err)
	}
	if _, err := (&Set{}).For("m"); !errors.As(err, &we) || we.HTTPStatus() != 400 || !strings.Contains(we.Message, "AIRLOCK_UPSTREAM") {
		t.Errorf("an empty set gave %v", err)
	}
}

// served is an upstream over HTTP that gives its answers in turn.
func served(t *testing.T, answers ...http.HandlerFunc) (*Endpoint, func() []*http.Request, *[]time.Duration) {
	t.Helper()
	var n atomic.Int32
	var mu sync.Mutex
	var seen []*http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		mu.Lock()
		seen = append(seen, r)
		mu.Unlock()
		i := int(n.Add(1)) - 1
		answers[min(i, len(answers)-1)](w, r)
	}))
	t.Cleanup(srv.Close)
	var waits []time.Duration
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	s, err := New([]Config{{Kind: KindAnthropic, BaseURL: srv.URL + "/v1/", Key: "sk-secret"}}, Options{Transport: tr, Retry: Retry{Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return s.Endpoints[0], func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}, &waits
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"told"}}`)
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"n":1.0}`) }

func TestRetryOnlyForFaultsOfTheUpstream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		answers  []http.HandlerFunc
		requests int
		status   int // of the error, 0 = success
	}{
		{"529 then fine", []http.HandlerFunc{status(529), ok}, 2, 0},
		{"503 twice then fine", []http.HandlerFunc{status(503), status(500), ok}, 3, 0},
		{"429 to the end", []http.HandlerFunc{status(429)}, 3, 429},
		{"400", []http.HandlerFunc{status(400)}, 1, 400},
		{"404", []http.HandlerFunc{status(404)}, 1, 404},
		{"told not to", []http.HandlerFunc{status(500, "X-Should-Retry", "false")}, 1, 500},
		{"retry-after too long", []http.HandlerFunc{status(429, "Retry-After", "3600")}, 1, 429},
		{"401 is about our key", []http.HandlerFunc{status(401)}, 1, 502},
		{"redirect", []http.HandlerFunc{status(307, "Location", "/elsewhere")}, 1, 502},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, seen, _ := served(t, tt.answers...)
			n, err := e.Message(t.Context(), Call{Body: []byte(`{}`)})
			var we *wire.Error
			if errors.As(err, &we); tt.status != 0 && (we == nil || we.HTTPStatus() != tt.status) {
				t.Errorf("gave %v, want status %d", err, tt.status)
			}
			if tt.status == 0 && (err != nil || n.Text() != `{"n":1.0}`) {
				t.Errorf("gave %v %v", n, err)
			}
			if len(seen()) != tt.requests {
				t.Errorf("%d requests, want %d", len(seen()), tt.requests)
			}
			if err != nil && strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("the key stands in %v", err)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	e, _, waits := served(t, status(429, "Retry-After", "7"), ok)
	if _, err := e.Message(t.Context(), Call{Body: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*waits, []time.Duration{7 * time.Second}); d != "" {
		t.Errorf("waits (-got +want):\n%s", d)
	}
	h := http.Header{"Retry-After": {time.Unix(1000, 0).UTC().Format(http.TimeFormat)}}
	if d, ok := retryAfter(h, time.Unix(990, 0)); !ok || d != 10*time.Second {
		t.Errorf("a date gave %v %v", d, ok)
	}
}

func TestRequestIsBuiltFromAnAllowList(t *testing.T) {
	t.Parallel()
	e, seen, _ := served(t, ok)
	if _, err := e.CountTokens(t.Context(), Call{Body: []byte(`{}`), Betas: []string{"b", "a"}}); err != nil {
		t.Fatal(err)
	}
	r := seen()[0]
	if r.URL.Path != "/v1/messages/count_tokens" || r.Header.Get("X-Api-Key") != "sk-secret" || r.Header.Get("Anthropic-Version") == "" ||
		r.Header.Get("Anthropic-Beta") != "a,b" || r.Header.Get("Authorization") != "" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s with %v", r.URL.Path, r.Header)
	}
}

// A model that was asked may have answered, and its answer is on the bill.
func TestConnectionThatBreaksAfterTheRequestIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	e, seen, waits := served(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	var we *wire.Error
	if _, err := e.Message(t.Context(), Call{Body: []byte(`{}`)}); !errors.As(err, &we) || we.HTTPStatus() != 502 {
		t.Errorf("gave %v", err)
	}
	if len(seen()) != 1 || len(*waits) != 0 {
		t.Errorf("%d requests after %d waits, want one request", len(seen()), len(*waits))
	}
}

func TestUnreachableUpstreamIsTriedAgain(t *testing.T) {
	t.Parallel()
	tries := 1
	s, err := New([]Config{{Kind: KindURL, BaseURL: "http://127.0.0.1:1"}}, Options{Retry: Retry{Sleep: func(context.Context, time.Duration) error { tries++; return nil }}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if tries != 3 {
			t.Errorf("%d tries, want 3", tries)
		}
	}()
	var we *wire.Error
	_, err = s.Endpoints[0].Open(t.Context(), Call{Body: []byte(`{}`)}, time.Minute)
	if !errors.As(err, &we) || we.HTTPStatus() != 502 || strings.Contains(we.Message, "127.0.0.1") {
		t.Errorf("gave %v", err)
	}
}

func TestOpenGivesUpInTime(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	e, _, _ := served(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	defer close(hang)
	var we *wire.Error
	if _, err := e.Open(t.Context(), Call{Body: []byte(`{}`)}, 20*time.Millisecond); !errors.As(err, &we) || we.HTTPStatus() != 504 {
		t.Errorf("gave %v", err)
	}
	if _, err := e.whole(t.Context(), http.MethodGet, "/v1/models", Call{}, 20*time.Millisecond); !errors.As(err, &we) || we.HTTPStatus() != 504 {
		t.Errorf("an answer that is read whole gave %v", err)
	}
}

func TestStreamEndsWithMessageStop(t *testing.T) {
	t.Parallel()
	e, _, _ := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": hello\n\ndata: {\"type\":\"message_start\"}   \n\ndata: {\"type\":\"message_stop\"}\n\ndata: {\"type\":\"late\"}\n\n")
	})
	s, err := e.Open(t.Context(), Call{Body: []byte(`{}`)}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []string
	for {
		n, err := s.Next(t.Context(), time.Minute)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n.Type())
	}
	if d := cmp.Diff(got, []string{"message_start", "message_stop"}); d != "" {
		t.Errorf("(-got +want):\n%s", d)
	}
}

func TestModelIDsStayInTheirPath(t *testing.T) {
	t.Parallel()
	e, seen, _ := served(t, ok)
	s := &Set{Endpoints: []*Endpoint{e}}
	for _, id := range []string{"", "a/b", "..", "a?b", "a%2Fb"} {
		if _, err := s.Model(t.Context(), id); err == nil {
			t.Errorf("%q was sent on", id)
		}
	}
	if _, err := s.Model(t.Context(), "m-1"); err != nil || seen()[0].URL.Path != "/v1/models/m-1" {
		t.Errorf("m-1: %v, %v", err, seen()[0].URL)
	}
	if _, err := s.Models(t.Context(), "limit=3"); err != nil || seen()[1].URL.String() != "/v1/models?limit=3" {
		t.Errorf("models: %v, %v", err, seen()[1].URL)
	}
}

// An upstream that never stops must not fill the memory: what it says is kept until the response ends.
func TestEndlessStreamIsCutOff(t *testing.T) {
	t.Parallel()
	frame := []byte("data: {\"type\":\"ping\",\"pad\":\"" + strings.Repeat("x", 1<<20) + "\"}\n\n")
	e, _, _ := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
	})
	s, err := e.Open(t.Context(), Call{Body: []byte(`{}`)}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := 0; err == nil; n++ {
		if n > maxAnswer>>20 {
			t.Fatalf("%d MiB were read", n)
		}
		_, err = s.Next(t.Context(), time.Minute)
	}
	var we *wire.Error
	if !errors.As(err, &we) || we.HTTPStatus() != 502 || !errors.Is(err, errAnswerTooLarge) {
		t.Errorf("gave %v", err)
	}
}

func TestAnswerThatIsNoMessageIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`[1]`: 502, `null`: 502, `"x"`: 502, ``: 502, `<html>`: 502,
		`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`: 529,
	} {
		e, _, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		var we *wire.Error
		if _, err := e.Message(t.Context(), Call{Body: []byte(`{}`)}); !errors.As(err, &we) || we.HTTPStatus() != want {
			t.Errorf("%s gave %v, want %d", body, err, want)
		}
	}
}

func TestStatusThatIsNoneBecomesBadGateway(t *testing.T) {
	t.Parallel()
	e, _, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(999) })
	var we *wire.Error
	if _, err := e.Message(t.Context(), Call{Body: []byte(`{}`)}); !errors.As(err, &we) || we.HTTPStatus() != 502 {
		t.Errorf("gave %v", err)
	}
}

func TestTextsAboutTheAccountStayHere(t *testing.T) {
	t.Parallel()
	told := map[string]bool{
		"messages.0.content: a string is required":                 true,
		"max_tokens: 64000 > 8192, which is the maximum":           true,
		"prompt is too long: 210000 tokens > 200000 maximum":       true,
		"This request would exceed your organization's rate limit": false,
		"model x is not enabled for workspace wrkspc_01abc":        false,
		"quota of org-1f2e3d is used up":                           false,
		"invalid x-api-key":                                        false,
		"Your credit balance is too low to access the API":         false,
		"internal error, see req_011CNha8iCJcU1wXNR6q4V8w":         false,
		"Overloaded": true,
	}
	for text, want := range told {
		if got := !ofAccount.MatchString(text); got != want {
			t.Errorf("%q is told: %v, want %v", text, got, want)
		}
	}
}
