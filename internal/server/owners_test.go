package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// standing are the columns that say whose a row is, by table.
var standing = map[string][]string{
	"files":      {"owner_app", "owner_user", "owner_scope"},
	"containers": {"owner_app", "owner_user", "owner_scope"},
	"apps":       {"owner_issuer", "owner_sub"},
	"api_keys":   {"app_id", "kind", "role", "scopes"},
	"users":      {"app_id", "issuer", "sub"},
	"issuers":    {"issuer"},
}

// owners gives whose each row is.
func (g *gatewayServer) owners() map[string]string {
	g.t.Helper()
	out := map[string]string{}
	for table, columns := range standing {
		var rows []map[string]any
		if err := g.parts.db.Read().NewSelect().Table(table).Column(append([]string{"id"}, columns...)...).Scan(g.t.Context(), &rows); err != nil {
			g.t.Fatal(err)
		}
		for _, r := range rows {
			var whose []string
			for _, c := range columns {
				whose = append(whose, fmt.Sprint(c, "=", r[c]))
			}
			out[table+" "+fmt.Sprint(r["id"])] = strings.Join(whose, " ")
		}
	}
	return out
}

// bodies are those with which a route would do something, with members besides that would make a row somebody else's.
func bodies(pattern string) []string {
	base := map[string]any{}
	for part, members := range map[string]map[string]any{
		"/messages":      {"model": "m", "max_tokens": 1, "messages": []any{map[string]any{"role": "user", "content": "x"}}},
		"/count_tokens":  {"model": "m", "messages": []any{map[string]any{"role": "user", "content": "x"}}},
		"/apps/{id}":     {"require_token_app_binding": false},
		"/users/{id}":    {"blocked": false},
		"/v1/keys":       {"app": "b"},
		"/v1/tokens":     {"app": "b", "user": "w"},
		"/v1/limits":     {"app": "b", "user": "w", "messages_in_flight": 3},
		"/v1/apps":       {"name": "another"},
		"/v1/containers": {},
	} {
		if strings.HasSuffix(pattern, part) {
			base = members
		}
	}
	poison := map[string]any{
		"app_id": "B", "owner_app": "B", "app": "b", "sub": "v", "subject": "v", "user": "v", "user_id": "airlock/v", "owner_user": "airlock/v", "owner": "airlock/v",
		"owner_sub": "v", "issuer": "airlock", "owner_issuer": "airlock", "scope": "app", "owner_scope": "app", "id": "x", "role": "admin", "scopes": []string{"tokens:mint"},
	}
	all := maps.Clone(base)
	maps.Copy(all, poison)
	out := []map[string]any{base, all}
	for _, name := range slices.Sorted(maps.Keys(poison)) {
		one := maps.Clone(base)
		one[name] = poison[name]
		out = append(out, one)
	}
	texts := make([]string, len(out))
	for i, o := range out {
		b, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		texts[i] = string(b)
	}
	return texts
}

// TestS94NoRequestChangesAnOwnerOrAScope sends every route that changes something, about every thing there is, members that would
// make it somebody else's. Whatever the answers are, what was there belongs to whom it did.
func TestS94NoRequestChangesAnOwnerOrAScope(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	things := []string{
		g.put(u, "a.txt", "x"), g.put(u.scoped("app"), "b.txt", "x"), g.made(g.a, "u", "user", "c.txt", "x"), g.space(u), g.space(u.scoped("app")),
		g.a.id, url.PathEscape("airlock/u"), "user_x",
	}
	if users, _, err := g.parts.tenants.ListUsers(t.Context(), tenant.UserQuery{App: g.a.id}, 10, ""); err != nil || len(users) == 0 {
		t.Fatal(users, err)
	} else {
		things = append(things, users[0].ID)
	}
	credentials := map[string][]string{
		"the admin": {"x-api-key", g.AdminKey()}, "a key of b": {"x-api-key", g.newKey("b")}, "v": {"x-auth-token", v.token},
		"v on the gateway": {"x-auth-token", v.token, "x-app-id", g.a.id, "x-app-identity-token", g.a.identity, "x-deepspace-sandbox-scope", "app"},
	}
	before, sent, done := g.owners(), 0, 0
	for _, route := range g.routes() {
		if route.Method == "GET" || route.Method == "DELETE" || route.Kind == everyone {
			continue
		}
		ids := []string{""}
		if strings.Contains(route.Pattern, "{id}") {
			ids = things
		}
		for _, id := range ids {
			path := strings.NewReplacer("{id}", id, "{path...}", "a.txt").Replace(route.Pattern)
			for _, body := range bodies(route.Pattern) {
				for _, credential := range credentials {
					sent++
					if a := g.call(who{}, route.Method, path, body, credential...); a.status/100 == 2 {
						done++
					}
				}
			}
		}
	}
	after := g.owners()
	for row, whose := range before {
		if after[row] != whose {
			t.Errorf("%s was %s and is %s", row, whose, after[row])
		}
	}
	if sent < 2000 || done < 100 || len(before) < 10 {
		t.Errorf("%d requests, %d of them did something, about %d rows", sent, done, len(before))
	}
	if len(after) <= len(before) {
		t.Error("no request made anything")
	}
}
