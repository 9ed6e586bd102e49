package messages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// goingOn is a streamed continuation of code that waits for one call; results are what comes of it.
func goingOn(t *testing.T, b *bench, results ...*claude.Node) *httptest.ResponseRecorder {
	t.Helper()
	b.boxes.results = results
	return b.post(t, ptcBody("code_execution_20260120", inContainer+`,"stream":true`, past(cellBlock+","+callOne, toolResult("toolu_one", ""))))
}

func typesOf(all []*claude.Node) string {
	var types []string
	for _, e := range all {
		if e.Type() != "ping" {
			types = append(types, e.Type())
		}
	}
	return strings.Join(types, " ")
}

// The form that was recorded of the hosted service: no block and no delta, zero usage, the promise of a pause.
func TestCompactResumeIsOneEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.CompactResume = true
	w := goingOn(t, b, calls("toolu_two", "toolu_three"))
	all := events(t, w.Body.Bytes())
	if got := typesOf(all); got != "message_start message_stop" {
		t.Fatalf("the stream is %s", got)
	}
	m := all[0].Get("message")
	var ids []string
	for _, u := range m.Get("content").Items {
		ids = append(ids, u.Type()+" "+u.Get("id").Str()+" "+u.At("caller", "type").Str()+" "+u.At("caller", "tool_id").Str()+" "+u.Get("input").Text())
	}
	want := []string{
		`tool_use toolu_two code_execution_20260120 srvtoolu_cell {"pair":"toolu_two"}`, `tool_use toolu_three code_execution_20260120 srvtoolu_cell {"pair":"toolu_three"}`,
	}
	if d := cmp.Diff(ids, want); d != "" || m.Get("stop_reason").Str() != "tool_use" || m.At("container", "expires_at").Str() != "2026-11-29T16:25:00.000000Z" {
		t.Errorf("%s\n%s", m.Text(), d)
	}
	for _, name := range []string{"input_tokens", "output_tokens", "cache_read_input_tokens"} {
		if m.At("usage", name).Text() != "0" {
			t.Errorf("usage %s", m.Get("usage").Text())
		}
	}
	if b.boxes.released < 2 {
		t.Error("the turn had not ended when the client was told")
	}
	// The repeat gets the same, as a stream and whole.
	if again := goingOn(t, b); again.Body.String() != w.Body.String() || len(b.boxes.ran) != 1 {
		t.Errorf("the repeat gets %s", again.Body)
	}
	whole := answer200(t, b.post(t, ptcBody("code_execution_20260120", inContainer, past(cellBlock+","+callOne, toolResult("toolu_one", "")))))
	if whole.Text() != m.Text() {
		t.Errorf("the whole message is %s", whole.Text())
	}
}

// Whatever else stands in the response, or takes longer than a stream may be silent, is told in the usual events.
func TestCompactResumeIsForNothingElse(t *testing.T) {
	t.Parallel()
	const usual = "message_start content_block_start content_block_stop message_delta message_stop"
	b := newBench(t)
	if got := typesOf(events(t, goingOn(t, b, calls("toolu_two")).Body.Bytes())); got != usual {
		t.Errorf("without the setting: %s", got)
	}
	b = newBench(t, says("end_turn", evText(0, "done")))
	b.CompactResume = true
	all := events(t, goingOn(t, b, cellResult("x")).Body.Bytes())
	checkStream(t, all)
	if m := sum(t, all); len(m.Get("content").Items) != 2 || m.Get("stop_reason").Str() != "end_turn" {
		t.Errorf("code that ends: %s", m.Text())
	}
	b = newBench(t)
	b.CompactResume, b.PingEvery = true, time.Millisecond
	began := make(chan struct{})
	b.boxes.during = func(context.Context) error {
		<-began
		return nil
	}
	b.boxes.results = []*claude.Node{calls("toolu_two")}
	c := &cut{ResponseRecorder: httptest.NewRecorder(), after: "message_start", cut: sync.OnceFunc(func() { close(began) })}
	b.handler().ServeHTTP(c, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/messages",
		strings.NewReader(ptcBody("code_execution_20260120", inContainer+`,"stream":true`, past(cellBlock+","+callOne, toolResult("toolu_one", ""))))))
	if got := typesOf(events(t, c.Body.Bytes())); got != usual {
		t.Errorf("code that works for long: %s", got)
	}
	// Nothing was sent yet when it fails, so the failure has its status.
	b = newBench(t)
	b.CompactResume = true
	b.boxes.during = func(context.Context) error { return badAnswer("of a test") }
	if w := goingOn(t, b); w.Code != badGateway {
		t.Errorf("a failure is told as %d %s", w.Code, w.Body)
	}
}
