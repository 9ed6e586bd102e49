package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// let admits a caller for one request.
func (x *fixture) let(c tenant.Caller) {
	x.t.Helper()
	release, _, err := x.admit(c, tenant.WorkRequest)
	if err != nil {
		x.t.Fatal(err)
	}
	release()
}

// subjects are the users that are remembered of an app.
func (x *fixture) subjects(app string) string {
	x.t.Helper()
	users, _, err := x.s.ListUsers(x.t.Context(), tenant.UserQuery{App: app}, 10_000, "")
	if err != nil {
		x.t.Fatal(err)
	}
	names := make([]string, len(users))
	for i, u := range users {
		names[len(users)-1-i] = u.Subject
	}
	return strings.Join(names, " ")
}

func (x *fixture) exec(statement string, args ...any) {
	x.t.Helper()
	err := x.s.DB.RunTx(x.t.Context(), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.NewRaw(statement, args...).Exec(ctx)
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// owns makes a file and a container of a user, in a scope.
func (x *fixture) owns(app, user, scope string, file, container bool) {
	x.t.Helper()
	id := fmt.Sprint(app, user, scope, file, container)
	if file {
		x.exec(`INSERT INTO files (id, owner_app, owner_user, owner_scope, filename, mime_type, size_bytes, sha256, blob_key, origin, container_id, call_id, created_at)
			VALUES (?, ?, ?, ?, 'f', 'text/plain', 1, '', '', 'output', '', '', 1)`, id, app, user, scope)
	}
	if container {
		x.exec(`INSERT INTO containers (id, owner_app, owner_user, owner_scope, state, rootfs, home, has_workspace, repl, idle_ttl_seconds, created_at, last_used_at, expires_at, max_expires_at)
			VALUES (?, ?, ?, ?, 'expired', 'r', '', FALSE, '', 1, 1, 1, 1, 1)`, id, app, user, scope)
	}
}

func TestUsersAreNotedOnceTheyAreAdmitted(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		app := x.app("one")
		x.s.Limits.UserRequests = 1
		caller := func(sub string) tenant.Caller {
			t.Helper()
			c, err := x.auth(tenant.KindUser, tenant.TokenHeader, x.mint(tenant.NewToken{App: "one", User: sub}).Text)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := caller("u")
		if got := x.subjects("one"); got != "" {
			t.Errorf("noted without admission: %s", got)
		}
		x.let(tenant.Caller{AppID: app.ID, UserID: "airlock/v", Issuer: "airlock", Subject: "v"})
		if _, _, err := x.admit(tenant.Caller{AppID: app.ID, UserID: "airlock/v", Issuer: "airlock", Subject: "v", Unnoted: true}, tenant.WorkRequest); err == nil {
			t.Error("a second request in the minute is let in")
		}
		if got := x.subjects("one"); got != "" {
			t.Errorf("noted though refused: %s", got)
		}
		x.let(c)
		if got := x.subjects("one"); got != "u" {
			t.Errorf("noted %q", got)
		}
		x.advance(23 * time.Hour)
		if caller("u").Unnoted {
			t.Error("noted twice within a day")
		}
		x.advance(time.Hour)
		first := x.clock()
		x.let(caller("u"))
		u, err := x.s.GetUser(t.Context(), "u", "one")
		if err != nil || !u.LastSeen.Equal(first) || u.FirstSeen.Equal(first) {
			t.Errorf("%+v, %v", u, err)
		}
		x.advance(time.Hour)
		// A million subjects are served, and written down slowly.
		for i := range 700 {
			sub := fmt.Sprint("s", i)
			x.let(tenant.Caller{AppID: app.ID, UserID: "airlock/" + sub, Issuer: "airlock", Subject: sub, Unnoted: true})
		}
		if n := len(strings.Fields(x.subjects("one"))); n != 601 {
			t.Errorf("%d users are noted, want 600 more", n)
		}
		other := x.app("two")
		x.let(tenant.Caller{AppID: other.ID, UserID: "airlock/u", Issuer: "airlock", Subject: "u", Unnoted: true})
		if got := x.subjects("two"); got != "u" {
			t.Errorf("another app has to wait: %q", got)
		}
	})
}

func TestIdleUsersAreForgotten(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		one, two := x.app("one"), x.app("two")
		x.s.MaxUsers = 6
		note := func(a *tenant.App, subs ...string) {
			for _, sub := range subs {
				x.advance(time.Second)
				x.let(tenant.Caller{AppID: a.ID, UserID: "airlock/" + sub, Issuer: "airlock", Subject: sub, Unnoted: true})
			}
		}
		sweep := func(want map[string]string) {
			t.Helper()
			x.advance(time.Hour)
			if err := x.s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			for app, users := range want {
				if got := x.subjects(app); got != users {
					t.Errorf("of %s are left %q, want %q", app, got, users)
				}
			}
		}
		note(one, "file", "box", "app", "blocked", "idle", "back")
		note(two, "file")
		x.owns(one.ID, "airlock/file", "user", true, false)
		x.owns(one.ID, "airlock/box", "user", false, true)
		x.owns(one.ID, "airlock/app", "app", true, true)
		if _, err := x.s.BlockUser(t.Context(), "blocked", "one", true); err != nil {
			t.Fatal(err)
		}
		sweep(map[string]string{"one": "file box app blocked idle back", "two": "file"})
		x.advance(30*24*time.Hour - 2*time.Hour)
		note(one, "back")
		x.advance(time.Hour)
		sweep(map[string]string{"one": "file box blocked back", "two": ""})
		// Of more users than may be those go who were not seen for longest, if they own nothing.
		note(one, "a", "b", "c", "d")
		note(two, "a")
		sweep(map[string]string{"one": "file box blocked b c d", "two": "a"})
		x.exec(`UPDATE files SET deleted_at = 1`)
		x.exec(`UPDATE containers SET state = 'deleted'`)
		x.advance(31 * 24 * time.Hour)
		sweep(map[string]string{"one": "blocked", "two": ""})
	})
}

func TestADeletedUserIsErasedUntilNothingIsLeft(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		a := x.app("one")
		x.app("two")
		var asked []string
		left, failure := tenant.Erased{Files: 2, Containers: 1}, error(nil)
		x.s.Erase = func(_ context.Context, c tenant.Caller) (tenant.Erased, error) {
			asked = append(asked, c.AppID+" "+c.UserID+" "+string(c.Scope))
			return left, failure
		}
		p := x.proven(a, x.token("exp", x.clock().Unix()+100_000))
		if _, err := x.auth(tenant.KindGateway, p...); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			user, app string
			status    int
			contains  string
		}{
			{"acme/u", "one", 400, "user: there is no issuer acme"},
			{"idp/u", "none", 404, "There is no such app."},
			{"idp/u", "", 400, "app: "},
			{"user_none", "", 404, "There is no such user."},
			{"owner", "one", 400, "user: it is the app's owner"},
		} {
			_, _, err := x.s.DeleteUser(t.Context(), tt.user, tt.app)
			wantStatus(t, err, tt.status, tt.contains)
		}
		if len(asked) != 0 {
			t.Errorf("erased %v", asked)
		}
		u, gone, err := x.s.DeleteUser(t.Context(), "idp/u", "one")
		if err != nil || gone != left || u.BlockedAt == nil || u.DeletedAt == nil {
			t.Fatalf("%+v, %+v, %v", u, gone, err)
		}
		_, err = x.auth(tenant.KindGateway, p...)
		wantStatus(t, err, http.StatusForbidden, "blocked")
		sweeps := func(want int) {
			t.Helper()
			asked = nil
			if err := x.s.Sweep(t.Context()); (err == nil) != (failure == nil) {
				t.Fatal(err)
			}
			if len(asked) != want || (want == 1 && asked[0] != a.ID+" idp/u user") {
				t.Errorf("erased %v", asked)
			}
		}
		left.Finished = true
		x.advance(2 * time.Hour)
		sweeps(1) // something was found
		left = tenant.Erased{}
		sweeps(1) // something runs
		left.Finished, failure = true, errors.New("disk")
		sweeps(1)
		failure = nil
		sweeps(1)
		sweeps(0)
		// Deleted once more it is looked for an hour at least: what runs elsewhere may still make something.
		if _, _, err := x.s.DeleteUser(t.Context(), u.ID, ""); err != nil {
			t.Fatal(err)
		}
		sweeps(1)
		x.advance(time.Hour)
		sweeps(1)
		sweeps(0)
		// Let in again, the user is not one whose things go.
		if _, _, err := x.s.DeleteUser(t.Context(), "idp/u", "one"); err != nil {
			t.Fatal(err)
		}
		if u, err = x.s.BlockUser(t.Context(), "idp/u", "one", false); err != nil || u.DeletedAt != nil {
			t.Errorf("%+v, %v", u, err)
		}
		sweeps(0)
		if _, err := x.auth(tenant.KindGateway, p...); err != nil {
			t.Error(err)
		}
	})
}
