package airlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
)

// lookup is a tool that code in the sandbox may call.
func lookup(call func(context.Context, json.RawMessage) (string, error)) []airlock.Tool {
	return []airlock.Tool{{
		Name:  "lookup",
		Param: airlock.CallableFromSandbox(anthropic.ToolParam{Name: "lookup", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}}),
		Call:  call,
	}}
}

// results are the blocks of the last message, as they were sent.
func results(t *testing.T, r request) string {
	t.Helper()
	var messages []struct {
		Role    string
		Content json.RawMessage
	}
	if err := json.Unmarshal([]byte(r.json(t, "messages")), &messages); err != nil {
		t.Fatal(err)
	}
	last := messages[len(messages)-1]
	return last.Role + " " + string(last.Content)
}

func result(id, text string, failed bool) string {
	return fmt.Sprintf(`{"tool_use_id":%q,"is_error":%v,"content":[{"text":%q,"type":"text"}],"type":"tool_result"}`, id, failed, text)
}

const codeCall = `{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"code":"await lookup()"},"caller":{"type":"direct"}}`

func TestRunAnswersAllCallsOfAStepInOneMessageInTheSameContainer(t *testing.T) {
	t.Parallel()
	g := newGateway(t,
		says("tool_use", "container_1", text("Looking."), codeCall, calls("toolu_1", "lookup", `{"q":1}`), calls("toolu_2", "lookup", `{"q":2}`)),
		says("tool_use", "container_1", calls("toolu_3", "lookup", `{"q":3}`)),
		says("end_turn", "container_1", made("srvtoolu_1", "file_1"), text("Done.")),
	)
	// Both calls of the first step must be there before either is answered.
	var both sync.WaitGroup
	both.Add(2)
	tools := lookup(func(_ context.Context, input json.RawMessage) (string, error) {
		if !strings.Contains(string(input), "3") {
			both.Done()
			both.Wait()
		}
		return "for " + string(input), nil
	})
	p := ask()
	roomy := append(make([]anthropic.MessageParam, 0, 8), p.Messages...) // where an append writes into the caller's array
	p.Messages = roomy
	before := compact(t, p)
	var events []string
	steps, err := airlock.Run(t.Context(), g.client(t), p, tools, airlock.RunOptions{
		OnEvent: func(e anthropic.MessageStreamEventUnion) { events = append(events, e.Type) },
	})
	if err != nil || len(steps) != 3 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	if after := compact(t, p); after != before || roomy[:2][1].OfUser != nil || roomy[:2][1].OfAssistant != nil {
		t.Errorf("the request of the caller was changed:\n%s\n%s", before, after)
	}
	if steps[2].StopReason != "end_turn" || airlock.CollectOutputs(steps...).FileIDs[0] != "file_1" || events[0] != "message_start" || len(events) != 23 {
		t.Errorf("%s, %d events", steps[2].StopReason, len(events))
	}
	sent := g.requests(t, 3)
	if got := sent[0].json(t, "container"); got != "" {
		t.Errorf("the first step named the container %s", got)
	}
	for _, r := range sent[1:] {
		if got := r.json(t, "container"); got != `"container_1"` {
			t.Errorf("a later step named the container %s", got)
		}
	}
	if want := `user [` + result("toolu_1", `for {"q":1}`, false) + `,` + result("toolu_2", `for {"q":2}`, false) + `]`; results(t, sent[1]) != want {
		t.Errorf("got %s\nwant %s", results(t, sent[1]), want)
	}
	if tools := sent[1].json(t, "tools"); strings.Count(tools, `"name":"lookup"`) != 1 || !strings.Contains(tools, "code_execution_20260120") {
		t.Errorf("offered %s", tools)
	}
	// The whole assistant turn goes back, callers and all.
	if got := sent[2].json(t, "messages"); !strings.Contains(got, `"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}`) || strings.Count(got, `"role"`) != 5 {
		t.Errorf("the third step sent %s", got)
	}
}

func TestRunTellsTheModelWhatFailed(t *testing.T) {
	t.Parallel()
	g := newGateway(t,
		says("tool_use", "container_1", calls("toolu_1", "lookup", `{}`), calls("toolu_2", "gone", `{}`)),
		says("tool_use", "container_1", calls("toolu_3", "lookup", `{"quiet":true}`)),
		says("end_turn", "container_1", text("I see.")),
	)
	p := ask()
	tools := lookup(func(_ context.Context, input json.RawMessage) (string, error) {
		if strings.Contains(string(input), "quiet") {
			return "", nil
		}
		return "ignored", errors.New("no such quarter")
	})
	p.Tools = append(p.Tools, tools[0].Param) // offered already
	if _, err := airlock.Run(t.Context(), g.client(t), p, tools, airlock.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	sent := g.requests(t, 3)
	if want := `user [` + result("toolu_1", "no such quarter", true) + `,` + result("toolu_2", `There is no tool named "gone".`, true) + `]`; results(t, sent[1]) != want {
		t.Errorf("got %s\nwant %s", results(t, sent[1]), want)
	}
	if want := `user [{"tool_use_id":"toolu_3","type":"tool_result"}]`; results(t, sent[2]) != want {
		t.Errorf("got %s\nwant %s", results(t, sent[2]), want)
	}
	if tools := sent[0].json(t, "tools"); strings.Count(tools, `"name":"lookup"`) != 1 {
		t.Errorf("offered %s", tools)
	}
}

// inMemory answers without a network, so that the clock can be a false one.
type inMemory struct{ *gateway }

func (g inMemory) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestRunAnswersForAToolAtItsTimeLimitAndReturnsAfterIt(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]time.Duration{0: 225 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var answered time.Duration
			g := &gateway{url: "http://gateway.example", answers: []answer{
				says("tool_use", "container_1", calls("toolu_1", "lookup", `{}`)),
				func(w http.ResponseWriter, got request) {
					answered = time.Since(start)
					says("end_turn", "container_1", text("Never mind."))(w, got)
				},
			}}
			tools := lookup(func(context.Context, json.RawMessage) (string, error) {
				<-time.After(300 * time.Second) // whatever its context says
				return "late", nil
			})
			c := g.client(t, airlock.WithHTTPClient(inMemory{g}))
			if _, err := airlock.Run(t.Context(), c, ask(), tools, airlock.RunOptions{ToolTimeout: limit}); err != nil {
				t.Fatal(err)
			}
			if answered != want || time.Since(start) != 300*time.Second {
				t.Errorf("answered after %v, want %v; returned after %v, want that the call had", answered, want, time.Since(start))
			}
			if want := `user [` + result("toolu_1", fmt.Sprintf("The tool did not answer within %v.", want), true) + `]`; results(t, g.requests(t, 2)[1]) != want {
				t.Errorf("got %s", results(t, g.requests(t, 2)[1]))
			}
		})
	}
}

// Tokens of a minute, a turn of ten: eleven steps between whose requests a tool takes 55 seconds. The gateway looks at the
// time as a server does.
func TestATurnOfTenMinutesOutlivesTokensOfAMinute(t *testing.T) {
	t.Parallel()
	const life, call, calling = time.Minute, 55 * time.Second, 11
	for name, c := range map[string]struct {
		source func() airlock.ClientOption
		passes int // requests that are let in
	}{
		"from a function": {func() airlock.ClientOption {
			return airlock.WithTokenSource(func(context.Context) (string, error) { return time.Now().Add(life).Format(time.RFC3339Nano), nil })
		}, calling + 1},
		"one token": {func() airlock.ClientOption {
			return airlock.WithAuthToken(time.Now().Add(life).Format(time.RFC3339Nano))
		}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, passed := time.Now(), 0
			g := &gateway{url: "http://gateway.example"}
			for n := range calling + 1 {
				next := says("tool_use", "container_1", calls(fmt.Sprintf("toolu_%d", n), "lookup", `{}`))
				if n == calling {
					next = says("end_turn", "container_1", text("Done."))
				}
				g.answers = append(g.answers, func(w http.ResponseWriter, got request) {
					until, err := time.Parse(time.RFC3339Nano, got.header.Get("x-auth-token"))
					if err != nil || time.Now().After(until) {
						refuse(http.StatusUnauthorized, "invalid auth token", "")(w, got)
						return
					}
					passed++
					next(w, got)
				})
			}
			tools := lookup(func(context.Context, json.RawMessage) (string, error) {
				<-time.After(call)
				return "ok", nil
			})
			client := g.client(t, airlock.WithHTTPClient(inMemory{g}), c.source())
			steps, err := airlock.Run(t.Context(), client, ask(), tools, airlock.RunOptions{MaxSteps: calling + 1})
			if passed != c.passes || len(steps) != c.passes || (err == nil) != (passed == calling+1) {
				t.Errorf("%s: %d requests were let in, want %d; %d steps, %v", name, passed, c.passes, len(steps), err)
			}
			if took := time.Since(start); err == nil && took < 10*time.Minute {
				t.Errorf("the turn took %v", took)
			}
		})
	}
}

func TestRunGoesOnAfterAPauseAndStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	pause := says("pause_turn", "container_1", codeCall)
	g := newGateway(t, pause, says("end_turn", "container_1", text("Done.")), pause, pause)
	steps, err := airlock.Run(t.Context(), g.client(t), ask(), nil, airlock.RunOptions{MaxSteps: 2})
	if err != nil || len(steps) != 2 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
	steps, err = airlock.Run(t.Context(), g.client(t), ask(), nil, airlock.RunOptions{MaxSteps: 2})
	if !errors.Is(err, airlock.ErrMaxSteps) || len(steps) != 2 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
	if got := results(t, g.requests(t, 4)[1]); !strings.HasPrefix(got, "assistant [") {
		t.Errorf("after a pause the last message was %s", got)
	}
}

func TestRunCallsNoToolInTheLastStepThatIsAllowed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says("tool_use", "container_1", calls("toolu_1", "lookup", `{}`)))
	tools := lookup(func(context.Context, json.RawMessage) (string, error) {
		t.Error("a tool was called whose answer nobody gets")
		return "", nil
	})
	steps, err := airlock.Run(t.Context(), g.client(t), ask(), tools, airlock.RunOptions{MaxSteps: 1})
	if !errors.Is(err, airlock.ErrMaxSteps) || len(steps) != 1 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

// What OnMessage is given is what a next turn must repeat: the server was sent just that, and refuses calls without results.
func TestTheNextTurnCanRepeatARun(t *testing.T) {
	t.Parallel()
	g := newGateway(t,
		says("tool_use", "container_1", codeCall, calls("toolu_1", "lookup", `{}`)),
		says("pause_turn", "container_1", text("Still at it.")),
		says("end_turn", "container_1", text("Done.")),
		says("end_turn", "container_1", text("You are welcome.")),
	)
	tools := lookup(func(context.Context, json.RawMessage) (string, error) { return "ok", nil })
	p := ask()
	history := p.Messages
	keep := airlock.RunOptions{OnMessage: func(m anthropic.MessageParam) { history = append(history, m) }}
	if _, err := airlock.Run(t.Context(), g.client(t), p, tools, keep); err != nil {
		t.Fatal(err)
	}
	p.Messages = append(history, anthropic.NewUserMessage(anthropic.NewTextBlock("Thanks.")))
	if _, err := airlock.Run(t.Context(), g.client(t), p, tools, keep); err != nil {
		t.Fatal(err)
	}
	sent := g.requests(t, 4)
	third, next := sent[2].json(t, "messages"), sent[3].json(t, "messages")
	rest, ok := strings.CutPrefix(next, strings.TrimSuffix(third, "]"))
	if !ok || !strings.HasPrefix(rest, `,{"content":[{"text":"Done.`) || !strings.Contains(rest, `"Thanks."`) || strings.Count(next, `"role"`) != 6 {
		t.Errorf("the next turn sent %s\nafter %s", next, third)
	}
}

func TestRunCallsNoToolOfAMessageThatWasCutOff(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says("max_tokens", "container_1", calls("toolu_1", "lookup", `{}`)))
	tools := lookup(func(context.Context, json.RawMessage) (string, error) {
		t.Error("half a call was made")
		return "", nil
	})
	steps, err := airlock.Run(t.Context(), g.client(t), ask(), tools, airlock.RunOptions{})
	if err != nil || len(steps) != 1 || steps[0].StopReason != "max_tokens" {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

func TestRunKeepsTheFinishedStepsBesideAnError(t *testing.T) {
	t.Parallel()
	first := says("pause_turn", "container_1", made("srvtoolu_1", "file_1"))
	for name, c := range map[string]struct {
		second answer
		is     func(error) bool
	}{
		"cut off": {func(w http.ResponseWriter, _ request) {
			w.Header().Set("content-type", "text/event-stream")
			io.WriteString(w, startOfStream(text("I will")))
		}, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"error event": {func(w http.ResponseWriter, _ request) {
			w.Header().Set("content-type", "text/event-stream")
			io.WriteString(w, startOfStream(text("I will")))
			event(w, "error", `"error":{"type":"not_found_error","message":"Not found"}`)
		}, airlock.IsNotFound},
		"refused": {refuse(400, "no", "scope_mismatch"), airlock.IsScopeMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, first, c.second)
			steps, err := airlock.Run(t.Context(), g.client(t), ask(), nil, airlock.RunOptions{})
			if !c.is(err) || len(steps) != 1 || airlock.CollectOutputs(steps...).FileIDs[0] != "file_1" {
				t.Errorf("%d steps, %v", len(steps), err)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says("tool_use", "container_1", calls("toolu_1", "lookup", `{}`)))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	tools := lookup(func(ctx context.Context, _ json.RawMessage) (string, error) {
		cancel(enough)
		<-ctx.Done()
		return "", ctx.Err()
	})
	if steps, err := airlock.Run(ctx, g.client(t), ask(), tools, airlock.RunOptions{}); !errors.Is(err, enough) || len(steps) != 1 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
	g.requests(t, 1)
}

func TestToolThatPanicsDoesSoWhereRunWasCalled(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says("tool_use", "container_1", calls("toolu_1", "lookup", `{}`)))
	defer func() {
		if got := recover(); got != "broken" {
			t.Errorf("recovered %v", got)
		}
	}()
	broken := lookup(func(context.Context, json.RawMessage) (string, error) { panic("broken") })
	steps, err := airlock.Run(t.Context(), g.client(t), ask(), broken, airlock.RunOptions{})
	t.Errorf("Run returned %d steps, %v", len(steps), err)
}

// A turn of ten steps with tokens of which each is good for one request.
func TestShortTokensLastThroughALongTurn(t *testing.T) {
	t.Parallel()
	var answers []answer
	for i := range 10 {
		next := says("tool_use", "container_1", calls(fmt.Sprintf("toolu_%d", i), "lookup", `{}`))
		if i == 9 {
			next = says("end_turn", "container_1", text("Done."))
		}
		answers = append(answers, func(w http.ResponseWriter, got request) {
			if got.header.Get("x-auth-token") != fmt.Sprintf("token-%d", i+1) {
				next = refuse(401, "invalid auth token", "")
			}
			next(w, got)
		})
	}
	g := newGateway(t, answers...)
	var minted atomic.Int32
	c := g.client(t, airlock.WithTokenSource(func(context.Context) (string, error) { return fmt.Sprintf("token-%d", minted.Add(1)), nil }))
	tools := lookup(func(context.Context, json.RawMessage) (string, error) { return "ok", nil })
	if steps, err := airlock.Run(t.Context(), c, ask(), tools, airlock.RunOptions{}); err != nil || len(steps) != 10 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}
