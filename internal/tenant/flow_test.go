package tenant_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// person is somebody who can make requests: a user, or "" for the owner, in an app.
type person struct{ app, user string }

var people = []person{{"app_a", "u"}, {"app_a", "v"}, {"app_a", ""}, {"app_b", "u"}, {"app_b", ""}}

// audience is everybody who may read what this owner's row holds, said without the code under test.
func audience(o tenant.Owner) map[person]bool {
	all := map[person]bool{}
	for _, p := range people {
		if p.app == o.AppID && (o.Scope == tenant.ScopeApp || p.user == o.UserID) {
			all[p] = true
		}
	}
	return all
}

func within(small, large map[person]bool) bool {
	for p := range small {
		if !large[p] {
			return false
		}
	}
	return true
}

// owners is every owner a row can have.
func owners() []tenant.Owner {
	var all []tenant.Owner
	for _, p := range people {
		for _, s := range []tenant.Scope{tenant.ScopeUser, tenant.ScopeApp} {
			all = append(all, tenant.Owner{AppID: p.app, UserID: p.user, Scope: s})
		}
	}
	return all
}

// outcome is "ok", "404" or "400".
func outcome(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "ok"
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no answer to a client", err)
	}
	if e.HTTPStatus() == 400 && e.Code != tenant.CodeScopeMismatch {
		t.Errorf("a 400 with the code %q", e.Code)
	}
	return fmt.Sprint(e.HTTPStatus())
}

// request is one message: a caller, a scope, perhaps a container, perhaps a file.
type request struct {
	by        person
	scope     tenant.Scope
	container *tenant.Owner
	file      *tenant.Owner
	sandbox   bool
	inert     bool
	held      bool
}

func (r request) caller() tenant.Caller {
	return tenant.Caller{AppID: r.by.app, UserID: r.by.user, Scope: r.scope}
}

// try gives the answer of the rules and what the request would create.
func (r request) try(t *testing.T) (string, tenant.Owner) {
	t.Helper()
	f, err := tenant.NewFlow(r.caller(), r.container, r.sandbox)
	if err == nil && r.file != nil {
		err = f.Admit(tenant.FileUse{Owner: *r.file, ID: "file_1", Path: "messages.0.content.0.file_id", Inert: r.inert, Held: r.held})
	}
	return outcome(t, err), f.Owner()
}

// want states the rule by who can read what: nobody names what he cannot read, and bytes never reach somebody who could
// not read them before. The container is judged first.
func (r request) want() string {
	reached := audience(tenant.Owner{AppID: r.by.app, UserID: r.by.user, Scope: r.scope}) // who is to read what is made
	if r.container != nil {
		if !audience(*r.container)[r.by] {
			return "404"
		}
		if !within(reached, audience(*r.container)) {
			return "400"
		}
		reached = audience(*r.container)
	}
	if r.file != nil && !audience(*r.file)[r.by] {
		return "404"
	}
	flows := r.file != nil && !r.inert && !r.held && (r.sandbox || r.container != nil)
	if flows && !within(reached, audience(*r.file)) {
		return "400"
	}
	return "ok"
}

func TestS43FlowRuleOverEveryCombination(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	none := []*tenant.Owner{nil}
	for _, o := range owners() {
		none = append(none, &o)
	}
	for _, by := range people {
		for _, scope := range []tenant.Scope{tenant.ScopeUser, tenant.ScopeApp} {
			for _, container := range none {
				for _, file := range none {
					for bits := range 8 {
						r := request{by, scope, container, file, bits&1 != 0, bits&2 != 0, bits&4 != 0}
						got, made := r.try(t)
						if want := r.want(); got != want {
							t.Errorf("%+v (container %+v, file %+v) is %s, want %s", r, container, file, got, want)
						}
						count[got]++
						if got == "ok" {
							checkMade(t, r, made)
						}
					}
				}
			}
		}
	}
	if count["ok"] == 0 || count["404"] == 0 || count["400"] == 0 {
		t.Errorf("the combinations do not reach every answer: %v", count)
	}
}

// checkMade: what is created belongs to whoever asked, and is visible to nobody who could not see the container.
func checkMade(t *testing.T, r request, made tenant.Owner) {
	t.Helper()
	if made.AppID != r.by.app || made.UserID != r.by.user {
		t.Errorf("%+v creates something of %+v", r, made)
	}
	wantScope := r.scope
	if r.container != nil {
		wantScope = r.container.Scope
	}
	if made.Scope != wantScope {
		t.Errorf("%+v creates something of scope %s, want %s", r, made.Scope, wantScope)
	}
	if r.container != nil && !within(audience(made), audience(*r.container)) {
		t.Errorf("%+v shows its outputs to more people than the container", r)
	}
}

// TestS43TruthTable is the table of scopes by its row numbers: U and V are users of the app, O is its owner.
func TestS43TruthTable(t *testing.T) {
	t.Parallel()
	const user, app = tenant.ScopeUser, tenant.ScopeApp
	u, v, o := people[0], people[1], people[2]
	own := func(p person, s tenant.Scope) *tenant.Owner {
		return &tenant.Owner{AppID: p.app, UserID: p.user, Scope: s}
	}
	both := []tenant.Scope{user, app}
	tests := []struct {
		row    string
		scopes []tenant.Scope
		r      request
		want   string
		made   tenant.Scope // of what is created, if anything is
	}{
		{"1 file", []tenant.Scope{user}, request{by: u, file: own(u, user)}, "ok", user},
		{"1 container", []tenant.Scope{user}, request{by: u, container: own(u, user)}, "ok", user},
		{"2 file", []tenant.Scope{app}, request{by: u, file: own(u, user)}, "400", ""},
		{"2 container", []tenant.Scope{app}, request{by: u, container: own(u, user)}, "400", ""},
		{"3 file", both, request{by: v, file: own(u, user)}, "404", ""},
		{"3 container", both, request{by: v, container: own(u, user)}, "404", ""},
		{"4 file", both, request{by: o, file: own(u, user)}, "404", ""},
		{"4 container", both, request{by: o, container: own(u, user)}, "404", ""},
		{"5 file", []tenant.Scope{app}, request{by: v, file: own(u, app)}, "ok", app},
		{"5 container", []tenant.Scope{app}, request{by: v, container: own(u, app)}, "ok", app},
		{"6", []tenant.Scope{user}, request{by: v, file: own(u, app)}, "ok", user},
		{"7", []tenant.Scope{user}, request{by: v, container: own(u, app)}, "ok", app},
		{"8", []tenant.Scope{user}, request{by: v, container: own(u, app), file: own(v, user)}, "400", ""},
		{"9 file", []tenant.Scope{app}, request{by: o, file: own(u, app)}, "ok", app},
		{"9 container", []tenant.Scope{app}, request{by: o, container: own(u, app)}, "ok", app},
		{"10", []tenant.Scope{user}, request{by: o, file: own(o, user), container: own(o, user)}, "ok", user},
		{"11 user file", both, request{by: person{"app_b", "u"}, file: own(u, user)}, "404", ""},
		{"11 app file", both, request{by: person{"app_b", "u"}, file: own(u, app)}, "404", ""},
		{"11 container", both, request{by: person{"app_b", "u"}, container: own(u, app)}, "404", ""},
		{"13", both, request{by: person{"app_b", "u"}, container: own(u, app), file: own(u, app)}, "404", ""},
		{"14", both, request{by: person{"", "u"}, file: own(u, app)}, "404", ""},
		{"15", both, request{by: o, file: own(u, user)}, "404", ""},
		{"15 done right", []tenant.Scope{app}, request{by: o, file: own(u, app)}, "ok", app},
		{"16", []tenant.Scope{user}, request{by: o, file: own(u, app)}, "ok", user},
		{"16 then", both, request{by: u, container: own(o, user)}, "404", ""},
	}
	for _, tt := range tests {
		t.Run(tt.row, func(t *testing.T) {
			t.Parallel()
			for _, scope := range tt.scopes {
				r := tt.r
				r.scope, r.sandbox = scope, true
				got, made := r.try(t)
				if got != tt.want || (got == "ok" && (made.Scope != tt.made || made.UserID != r.by.user)) {
					t.Errorf("scope %s is %s and makes %+v, want %s with scope %s", scope, got, made, tt.want, tt.made)
				}
			}
		})
	}
}

// TestS43UseAndDeleteOfAppScopeNeedNoMoreThanTheApp is row 12: getting, downloading and deleting are the access rule alone,
// whatever the scope of the request.
func TestS43UseAndDeleteOfAppScopeNeedNoMoreThanTheApp(t *testing.T) {
	t.Parallel()
	for _, by := range people {
		for _, scope := range []tenant.Scope{"", tenant.ScopeUser, tenant.ScopeApp} {
			for _, o := range owners() {
				if got, want := (tenant.Caller{AppID: by.app, UserID: by.user, Scope: scope}).MayUse(o), audience(o)[by]; got != want {
					t.Errorf("%+v with scope %q may use %+v: %v, want %v", by, scope, o, got, want)
				}
			}
		}
	}
}

func TestScopeMismatchNamesTheFileAndTheWayOut(t *testing.T) {
	t.Parallel()
	mine := tenant.Owner{AppID: "app_a", UserID: "u", Scope: tenant.ScopeUser}
	f, err := tenant.NewFlow(tenant.Caller{AppID: "app_a", UserID: "u", Scope: tenant.ScopeApp}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Admit(tenant.FileUse{Owner: mine, ID: "file_1", Path: "messages.0.content.1.file_id"})
	for _, part := range []string{"messages.0.content.1.file_id", "file_1", "app scope", "x-deepspace-sandbox-scope: app"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
