package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// gateway is where applications call with a token of their user.
const gateway = "/api/proxy/anthropic/v1"

// user is somebody of an application on a server.
type user struct {
	*server
	app, identity, token string
}

// newUser makes the application if its id is "".
func (s *server) newUser(ctx context.Context, app, name string) (*user, error) {
	admin := &server{url: s.url, key: s.admin, client: s.client}
	u := &user{server: s, app: app}
	if app == "" {
		var made struct{ ID string }
		if err := admin.call(ctx, http.MethodPost, "/airlock/v1/apps", map[string]any{"name": "bench"}, &made); err != nil {
			return nil, err
		}
		u.app = made.ID
	}
	var env struct {
		Identity string `json:"APP_IDENTITY_TOKEN"`
	}
	if err := admin.call(ctx, http.MethodGet, "/airlock/v1/apps/"+u.app+"/env", nil, &env); err != nil {
		return nil, err
	}
	u.identity = env.Identity
	var made struct{ Token string }
	err := admin.call(ctx, http.MethodPost, "/airlock/v1/tokens", map[string]any{"app": u.app, "user": name, "ttl_seconds": 3600}, &made)
	u.token = made.Token
	return u, err
}

// send makes one request through the gateway and reads its whole answer.
func (u *user) send(ctx context.Context, method, path, contentType string, body io.Reader) ([]byte, time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.url+gateway+path, body)
	if err != nil {
		return nil, 0, err
	}
	for name, value := range map[string]string{
		"x-auth-token": u.token, "x-app-id": u.app, "x-app-identity-token": u.identity, "anthropic-version": "2023-06-01", "content-type": contentType,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	start := time.Now()
	resp, err := u.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	answer, err := io.ReadAll(resp.Body)
	took := time.Since(start)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, took, errors.Join(err, resp.Body.Close())
}

// post is send of JSON.
func (u *user) post(ctx context.Context, path string, in any) ([]byte, time.Duration, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return nil, 0, err
	}
	return u.send(ctx, http.MethodPost, path, "application/json", bytes.NewReader(b))
}

// put uploads a small file that is new each time.
func (u *user) put(ctx context.Context) (id string, took time.Duration, err error) {
	uploads++
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "bench.txt")
	if err != nil {
		return "", 0, err
	}
	if _, err := fmt.Fprintf(part, "text %d of a file", uploads); err != nil {
		return "", 0, err
	}
	if err := form.Close(); err != nil {
		return "", 0, err
	}
	answer, took, err := u.send(ctx, http.MethodPost, "/files", form.FormDataContentType(), &body)
	if err != nil {
		return "", 0, err
	}
	var made struct{ ID string }
	return made.ID, took, json.Unmarshal(answer, &made)
}

// gatewayChecks compares what a user asks of his file with what anybody may ask: token, identity, limits, scope, and the
// one row of the file, which the budget does not even count.
func gatewayChecks(ctx context.Context, _ *lab, s *server, o options) ([]result, error) {
	u, err := s.newUser(ctx, "", "me")
	if err != nil {
		return nil, err
	}
	id, _, err := u.put(ctx)
	if err != nil {
		return nil, err
	}
	medians, err := interleave(20*o.rounds,
		candidate{"open", func() (time.Duration, error) {
			start := time.Now()
			err := s.call(ctx, http.MethodGet, "/healthz", nil, nil)
			return time.Since(start), err
		}},
		candidate{"checked", func() (time.Duration, error) {
			_, took, err := u.send(ctx, http.MethodGet, "/files/"+id, "", nil)
			return took, err
		}},
	)
	if err != nil {
		return nil, err
	}
	row := atMost("request checks of the gateway", "ms", medians["checked"]-medians["open"], 0.5)
	row.Note = fmt.Sprintf("%.2f ms a file's metadata with token and identity, %.2f ms a health check; the row of the file is in it", medians["checked"], medians["open"])
	return []result{row}, nil
}

// frozenAfter is longer than a sandbox whose code waits runs on after its turn: the grace of a second, and a pass.
const frozenAfter = 2200 * time.Millisecond

// parkAndResume is one call of the client's tool by code, in two requests, beyond a turn whose code calls nothing, a second
// request (a message without code) and the time in which a cell shows that it waits. Once it is answered at once; and once
// the sandbox has been frozen meanwhile, beyond a turn that comes after the same pause: whoever sleeps is slow to wake.
func parkAndResume(ctx context.Context, l *lab, s *server, o options) ([]result, error) {
	id, err := s.container(ctx)
	if err != nil {
		return nil, err
	}
	quiet, calling := asking(id, "print(1)"), asking(id, "print(await lookup({'q': 'x'}))")
	plain := map[string]any{"model": "script", "max_tokens": 1024, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}
	timed := func(request any) (time.Duration, error) {
		start := time.Now()
		err := s.call(ctx, http.MethodPost, "/v1/messages", request, nil)
		return time.Since(start), err
	}
	medians, err := interleave(2*o.rounds,
		candidate{"message", func() (time.Duration, error) { return timed(plain) }},
		candidate{"turn", func() (time.Duration, error) { return timed(quiet) }},
		candidate{"call", func() (time.Duration, error) { return s.callOfTool(ctx, calling, 0) }},
	)
	if err != nil {
		return nil, err
	}
	late, err := interleave(o.rounds/2,
		candidate{"turn", func() (time.Duration, error) {
			pause(frozenAfter)
			return timed(quiet)
		}},
		candidate{"call", func() (time.Duration, error) { return s.callOfTool(ctx, calling, frozenAfter) }},
	)
	if err != nil {
		return nil, err
	}
	wait := float64(guest.ToolQuiet) / float64(time.Millisecond)
	beyond := func(m map[string]float64) float64 { return m["call"] - m["turn"] - medians["message"] - wait }
	row := atMost("park and resume of a programmatic call", "ms", beyond(medians), turnBudget[l.name])
	row.Note = fmt.Sprintf("%.2f ms both requests, of them %.0f ms of quiet; %.2f ms a turn whose code calls nothing, %.2f ms a message without code",
		medians["call"], wait, medians["turn"], medians["message"])
	frozen := atMost("park and resume, frozen in between", "ms", beyond(late), turnBudget[l.name])
	frozen.Note = fmt.Sprintf("%.2f ms both requests, without the %v between them; %.2f ms a turn after such a pause", late["call"], frozenAfter, late["turn"])
	return []result{row, frozen}, nil
}

// pause lets a server be idle, which is what is measured next.
func pause(d time.Duration) { <-time.After(d) }

// asking is a turn of a cell that may call one tool of the client.
func asking(container, code string) map[string]any {
	return map[string]any{
		"model": "script", "max_tokens": 1024, "container": container,
		"tools": []any{
			map[string]any{"type": "code_execution_20260120", "name": "code_execution"},
			map[string]any{
				"name": "lookup", "description": "looks up", "allowed_callers": []string{"code_execution_20260120"},
				"input_schema": map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}},
			},
		},
		"messages": []any{map[string]any{"role": "user", "content": "```cell must\n" + code + "\n```\n"}},
	}
}

// callOfTool makes both requests of a turn, and answers the one call after a time that does not count.
func (s *server) callOfTool(ctx context.Context, request map[string]any, after time.Duration) (time.Duration, error) {
	start := time.Now()
	var parked struct {
		StopReason string `json:"stop_reason"`
		Content    []json.RawMessage
	}
	if err := s.call(ctx, http.MethodPost, "/v1/messages", request, &parked); err != nil {
		return 0, err
	}
	if parked.StopReason != "tool_use" || len(parked.Content) == 0 {
		return 0, fmt.Errorf("the code was not parked: %s: %s", parked.StopReason, parked.Content)
	}
	first := time.Since(start)
	pause(after)
	start = time.Now()
	var call struct{ ID string }
	if err := json.Unmarshal(parked.Content[len(parked.Content)-1], &call); err != nil {
		return 0, err
	}
	next := maps.Clone(request)
	next["messages"] = append(append([]any{}, request["messages"].([]any)...),
		map[string]any{"role": "assistant", "content": parked.Content},
		map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": call.ID, "content": "x"}}})
	var done struct {
		StopReason string `json:"stop_reason"`
	}
	if err := s.call(ctx, http.MethodPost, "/v1/messages", next, &done); err != nil {
		return 0, err
	}
	took := first + time.Since(start)
	if done.StopReason != "end_turn" {
		return 0, fmt.Errorf("the turn did not end: %s", done.StopReason)
	}
	return took, nil
}
