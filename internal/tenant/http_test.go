package tenant_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// TestRoutes drives the handlers as a client does.
func TestRoutes(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		quiet := slog.New(slog.DiscardHandler)
		mux := &wire.Mux{Log: quiet}
		for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, tenant.Caller) error{
			"POST /apps": x.s.ServeCreateApp, "GET /apps": x.s.ServeListApps, "GET /apps/{id}": x.s.ServeGetApp, "PATCH /apps/{id}": x.s.ServeUpdateApp,
			"POST /keys": x.s.ServeCreateKey, "GET /keys": x.s.ServeListKeys, "DELETE /keys/{id}": x.s.ServeRevokeKey,
		} {
			mux.Handle(pattern, wire.Handler(quiet, func(w http.ResponseWriter, r *http.Request) error { return h(w, r, tenant.Caller{Admin: true}) }))
		}
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		call := func(method, path, body string, status int) map[string]any {
			t.Helper()
			r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, srv.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Fatal(err)
			}
			var v map[string]any
			if err := json.Unmarshal(b, &v); err != nil || res.StatusCode != status {
				t.Fatalf("%s %s: %d %s, want %d", method, path, res.StatusCode, b, status)
			}
			return v
		}
		app := call("POST", "/apps", `{"name":"one"}`, 200)
		want := map[string]any{"id": app["id"], "type": "app", "name": "one", "created_at": "2026-11-29T16:00:00.000000Z", "disabled_at": nil, "owner": "airlock/owner", "origin": nil, "require_token_app_binding": false, "allowed_models": []any{}}
		if d := cmp.Diff(want, app); d != "" {
			t.Errorf("app (-want +got):\n%s", d)
		}
		for _, id := range []any{app["id"], "one"} {
			if d := cmp.Diff(app, call("GET", fmt.Sprintf("/apps/%s", id), "", 200)); d != "" {
				t.Error(d)
			}
		}
		for _, body := range []string{`{"nme":"x"}`, `{"name":1}`, `{}`, `[]`, `{"name":"a","name":"b"}`, `{"name":"a"} x`} {
			call("POST", "/apps", body, 400)
		}
		call("POST", "/apps", `{"name":"one"}`, 409)
		call("GET", "/apps/none", "", 404)
		call("PATCH", "/apps/none", `{"disabled":true}`, 404)
		call("PATCH", "/apps/one", `{}`, 400)
		if got := call("PATCH", "/apps/one", `{"disabled":true}`, 200); got["disabled_at"] != "2026-11-29T16:00:00.000000Z" {
			t.Errorf("disabled: %v", got)
		}
		call("PATCH", "/apps/one", `{"disabled":false}`, 200)
		key := call("POST", "/keys", `{"app":"one","name":"k","ttl_seconds":3600}`, 200)
		if key["app_id"] != app["id"] || key["expires_at"] != "2026-11-29T17:00:00.000000Z" || !strings.HasPrefix(key["key"].(string), "sk-airlock-") {
			t.Errorf("key: %v", key)
		}
		if _, err := x.auth(tenant.KindAPIKey, "X-Api-Key", key["key"].(string)); err != nil {
			t.Error(err)
		}
		for _, body := range []string{`{"app":"none"}`, `{"ttl_seconds":0,"app":"one"}`, `{"ttl_seconds":1.5}`, `{"ttl_seconds":9223372036854775807,"app":"one"}`, `{"app":"one","scopes":"x"}`, `{}`} {
			call("POST", "/keys", body, 400)
		}
		for range 2 {
			x.advance(time.Second)
			call("POST", "/keys", `{"app":"one"}`, 200)
		}
		var seen []string
		q := "?limit=2&app=one"
		for {
			l := call("GET", "/keys"+q, "", 200)
			for _, k := range l["data"].([]any) {
				seen = append(seen, k.(map[string]any)["id"].(string))
				if _, ok := k.(map[string]any)["key"]; ok {
					t.Error("a list shows a secret")
				}
			}
			if l["next_page"] == nil {
				break
			}
			q = fmt.Sprintf("?limit=2&app=one&page=%s", l["next_page"])
		}
		if len(seen) != 3 || seen[2] != key["id"] {
			t.Errorf("keys %v", seen)
		}
		call("GET", "/keys?limit=0", "", 400)
		call("GET", "/keys?page=x", "", 400)
		call("GET", "/keys?app=none", "", 404)
		call("GET", "/apps?limit=1&page=page_x", "", 400)
		if l := call("GET", "/apps", "", 200); len(l["data"].([]any)) != 1 || l["next_page"] != nil {
			t.Errorf("apps: %v", l)
		}
		for range 2 {
			call("DELETE", fmt.Sprintf("/keys/%s", key["id"]), "", 200)
		}
		call("DELETE", "/keys/none", "", 404)
		if _, err := x.auth(tenant.KindAPIKey, "X-Api-Key", key["key"].(string)); err == nil {
			t.Error("the revoked key still works")
		}
	})
}
