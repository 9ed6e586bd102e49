package tenant_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type fixture struct {
	t   *testing.T
	s   *tenant.Service
	mu  sync.Mutex
	now time.Time
}

func run(t *testing.T, fn func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, d *db.DB) { fn(t, newFixture(t, d)) })
}

// runOnce is run for what has nothing to do with the database.
func runOnce(t *testing.T, fn func(t *testing.T, x *fixture)) {
	t.Helper()
	t.Parallel()
	fn(t, newFixture(t, dbtest.SQLite(t)))
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	x := &fixture{t: t, now: time.Date(2026, 11, 29, 16, 0, 0, 0, time.UTC)}
	x.s = &tenant.Service{DB: d, CursorKey: wire.NewCursorKey(), Now: x.clock, IdentitySecret: []byte("a secret of this test, 32 bytes..")}
	return x
}

func (x *fixture) clock() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

func (x *fixture) advance(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = x.now.Add(d)
}

func (x *fixture) app(name string) *tenant.App {
	x.t.Helper()
	a, err := x.s.CreateApp(x.t.Context(), name)
	if err != nil {
		x.t.Fatalf("create app %s: %v", name, err)
	}
	return a
}

func (x *fixture) key(n tenant.NewKey) (*tenant.Key, string) {
	x.t.Helper()
	k, secret, err := x.s.CreateKey(x.t.Context(), n)
	if err != nil {
		x.t.Fatalf("create key: %v", err)
	}
	return k, secret
}

func (x *fixture) auth(want tenant.Kind, headers ...string) (tenant.Caller, error) {
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return x.s.Authenticate(r, want)
}

func wantStatus(t *testing.T, err error, status int, contains string) {
	t.Helper()
	var we *wire.Error
	if !errors.As(err, &we) || we.HTTPStatus() != status || !strings.Contains(we.Message, contains) {
		t.Errorf("got %v, want %d with %q", err, status, contains)
	}
}

func TestKeyAuthenticatesAsItsAppInEitherHeader(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		a := x.app("one")
		k, secret := x.key(tenant.NewKey{App: "one", Name: "laptop", Scopes: []string{tenant.ScopeMintTokens}})
		if !regexp.MustCompile(`^sk-airlock-[1-9A-HJ-NP-Za-km-z]{44}$`).MatchString(secret) {
			t.Errorf("secret %q", secret)
		}
		want := tenant.Caller{AppID: a.ID, KeyID: k.ID, Scope: tenant.ScopeUser, Scopes: []string{tenant.ScopeMintTokens}, AppProven: true}
		for _, headers := range [][]string{
			{"X-Api-Key", secret},
			{"Authorization", "Bearer " + secret},
			{"Authorization", "bearer  " + secret},
			{"X-Api-Key", secret, "Authorization", "Bearer " + secret},
			{"X-Api-Key", secret, tenant.ScopeHeader, "user"},
		} {
			got, err := x.auth(tenant.KindAPIKey, headers...)
			if err != nil {
				t.Errorf("%v: %v", headers, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%v (-want +got):\n%s", headers, d)
			}
		}
		got, err := x.auth(tenant.KindAPIKey|tenant.KindAdmin, "X-Api-Key", secret, tenant.ScopeHeader, "app")
		if err != nil || got.Scope != tenant.ScopeApp {
			t.Errorf("app scope: %+v, %v", got, err)
		}
	})
}

func TestSpoofedIdentityHeadersChangeNothing(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		two := x.app("two")
		_, secret := x.key(tenant.NewKey{App: "one"})
		plain, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret)
		if err != nil {
			t.Fatal(err)
		}
		spoofed, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret, "X-App-Id", two.ID, "X-User-Id", "u", "X-Forwarded-For", "127.0.0.1",
			"X-Airlock-Payer", "u", "Anthropic-Workspace-Id", two.ID)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(plain, spoofed); d != "" {
			t.Error(d)
		}
	})
}

func TestEveryDeadKeyGetsTheSame401(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("live")
		x.app("off")
		revoked, revokedSecret := x.key(tenant.NewKey{App: "live"})
		_, expiring := x.key(tenant.NewKey{App: "live", TTL: time.Hour})
		_, ofDisabled := x.key(tenant.NewKey{App: "off"})
		for _, secret := range []string{revokedSecret, expiring, ofDisabled} {
			if _, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret); err != nil {
				t.Fatalf("while alive: %v", err)
			}
		}
		for range 2 {
			if _, err := x.s.RevokeKey(t.Context(), revoked.ID, false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := x.s.UpdateApp(t.Context(), "off", disabled(true)); err != nil {
			t.Fatal(err)
		}
		x.advance(time.Hour - time.Microsecond)
		if _, err := x.auth(tenant.KindAPIKey, "X-Api-Key", expiring); err != nil {
			t.Errorf("just before its end: %v", err)
		}
		x.advance(time.Microsecond)
		want := ""
		for name, secret := range map[string]string{
			"revoked": revokedSecret, "expired": expiring, "disabled app": ofDisabled, "unknown": "sk-airlock-" + strings.Repeat("a", 44),
			"prefix": revokedSecret[:len(revokedSecret)-1], "upper case": strings.ToUpper(ofDisabled), "odd": "'; DROP TABLE apps; --", "env key": "sk-airlock-env-x",
		} {
			for _, kind := range []tenant.Kind{tenant.KindAPIKey, tenant.KindAdmin} {
				_, err := x.auth(kind, "X-Api-Key", secret)
				wantStatus(t, err, http.StatusUnauthorized, "Invalid API key.")
				if want == "" {
					want = err.Error()
				}
				if err.Error() != want {
					t.Errorf("%s: %v, others %s", name, err, want)
				}
			}
		}
		if _, err := x.s.UpdateApp(t.Context(), "off", disabled(false)); err != nil {
			t.Fatal(err)
		}
		if _, err := x.auth(tenant.KindAPIKey, "X-Api-Key", ofDisabled); err != nil {
			t.Errorf("after enabling: %v", err)
		}
	})
}

func TestCredentialsMustBeOneAndWellFormed(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		_, a := x.key(tenant.NewKey{App: "one"})
		_, b := x.key(tenant.NewKey{App: "one"})
		for _, headers := range [][]string{
			{},
			{"X-Api-Key", ""},
			{"Authorization", "Bearer "},
			{"Authorization", a},
			{"Authorization", "Basic " + a},
			{"X-Api-Key", a, "X-Api-Key", a},
			{"Authorization", "Bearer " + a, "Authorization", "Bearer " + a},
			{"X-Api-Key", a, "Authorization", "Bearer " + b},
			{"X-Auth-Token", a},
			{"Cookie", "key=" + a},
			{"X-Api-Key", a, "X-Api-Key", b, "Authorization", "Bearer " + a},
			{"X-Api-Key", a, "Authorization", "Bearer " + a, "Authorization", "Bearer " + b},
			{"X-Api-Key", " " + a + "x"},
		} {
			_, err := x.auth(tenant.KindAPIKey, headers...)
			wantStatus(t, err, http.StatusUnauthorized, "")
		}
	})
}

func TestScopeHeaderTakesExactlyUserOrApp(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		_, secret := x.key(tenant.NewKey{App: "one"})
		for _, v := range []string{"App", "user,app", "admin", "", " user", "org"} {
			_, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret, tenant.ScopeHeader, v)
			wantStatus(t, err, http.StatusBadRequest, "x-deepspace-sandbox-scope")
		}
		_, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret, tenant.ScopeHeader, "user", tenant.ScopeHeader, "user")
		wantStatus(t, err, http.StatusBadRequest, "x-deepspace-sandbox-scope")
	})
}

func TestAdminKeyIsMadeOnceKeptPrivateAndStaysOutOfV1(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		path := filepath.Join(t.TempDir(), "admin.key")
		secret, err := x.s.EnsureAdminKey(t.Context(), path)
		if err != nil || !strings.HasPrefix(secret, "sk-airlock-admin-") {
			t.Fatalf("%q, %v", secret, err)
		}
		mode := func() os.FileMode {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info.Mode().Perm()
		}
		if mode() != 0o600 {
			t.Errorf("mode %v", mode())
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := x.s.EnsureAdminKey(t.Context(), path)
		if err != nil || again != secret || mode() != 0o600 {
			t.Errorf("second start: same key %v, mode %v, %v", again == secret, mode(), err)
		}
		c, err := x.auth(tenant.KindAdmin, "X-Api-Key", secret)
		if err != nil || !c.Admin || c.AppID != "" || c.Role != tenant.RoleAdmin {
			t.Errorf("%+v, %v", c, err)
		}
		_, err = x.auth(tenant.KindAPIKey, "X-Api-Key", secret)
		wantStatus(t, err, http.StatusForbidden, "airlock key create")
		x.app("one")
		_, api := x.key(tenant.NewKey{App: "one"})
		_, err = x.auth(tenant.KindAdmin, "X-Api-Key", api)
		wantStatus(t, err, http.StatusForbidden, "admin key")
		keys, _, err := x.s.ListKeys(t.Context(), "", 100, "")
		if err != nil || len(keys) != 1 {
			t.Errorf("the list shows %d keys, %v; the admin key does not belong in it", len(keys), err)
		}
	})
}

func TestDeletedAdminKeyFileGivesANewKeyAndEndsTheOld(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		path := filepath.Join(t.TempDir(), "admin.key")
		elsewhere := filepath.Join(t.TempDir(), "admin.key")
		ensure := func(p string) string {
			secret, err := x.s.EnsureAdminKey(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
		old, other := ensure(path), ensure(elsewhere)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		fresh := ensure(path)
		_, err := x.auth(tenant.KindAdmin, "X-Api-Key", old)
		wantStatus(t, err, http.StatusUnauthorized, "Invalid API key.")
		for _, secret := range []string{fresh, other} {
			if _, err := x.auth(tenant.KindAdmin, "X-Api-Key", secret); err != nil {
				t.Error(err)
			}
		}
		// A file without its row: the database was made anew, or the process died in between.
		if err := os.WriteFile(path, []byte("sk-airlock-admin-"+strings.Repeat("z", 44)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := x.auth(tenant.KindAdmin, "X-Api-Key", ensure(path)); err != nil {
			t.Errorf("the key of the file: %v", err)
		}
		if err := os.WriteFile(path, []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := x.s.EnsureAdminKey(t.Context(), path); err == nil {
			t.Error("a file with something else was taken for a key")
		}
	})
}

func TestSecretsAreStoredHashedOnly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		_, secret := x.key(tenant.NewKey{App: "one"})
		var rows []map[string]any
		if err := x.s.DB.Read().NewSelect().Table("api_keys").Scan(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(rows); len(rows) != 1 || strings.Contains(text, secret) || strings.Contains(text, secret[11:30]) {
			t.Errorf("stored: %s", text)
		}
	})
}

func TestSecondAppWithAKeyNeedsPermission(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		refusal := errors.New("sandbox.allow_shared_kernel: set it to serve more than one app")
		x.s.MayAddApp = func() error { return refusal }
		for _, name := range []string{"one", "two", "three"} {
			x.app(name)
		}
		_, err := x.s.EnsureDefaultApp(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		count := func(want int) {
			t.Helper()
			if n, err := x.s.AppsWithKeys(t.Context()); err != nil || n != want {
				t.Errorf("%d apps with keys, %v, want %d", n, err, want)
			}
		}
		refused := func(app string) {
			t.Helper()
			_, _, err := x.s.CreateKey(t.Context(), tenant.NewKey{App: app})
			wantStatus(t, err, http.StatusBadRequest, "sandbox.allow_shared_kernel")
		}
		count(0)
		first, _ := x.key(tenant.NewKey{App: "one", TTL: time.Hour})
		x.key(tenant.NewKey{App: "one", TTL: time.Hour})
		count(1)
		refused("two")
		refused("default")
		x.advance(2 * time.Hour) // both keys of the first app have ended
		count(0)
		second, _ := x.key(tenant.NewKey{App: "two"})
		refused("one")
		if _, err := x.s.RevokeKey(t.Context(), second.ID, false); err != nil {
			t.Fatal(err)
		}
		x.key(tenant.NewKey{App: "one"})
		refused("two")
		// Disabling frees the place, and enabling must not get around the rule.
		if _, err := x.s.UpdateApp(t.Context(), "one", disabled(true)); err != nil {
			t.Fatal(err)
		}
		x.key(tenant.NewKey{App: "three"})
		count(1)
		_, err = x.s.UpdateApp(t.Context(), "one", disabled(false))
		wantStatus(t, err, http.StatusBadRequest, "sandbox.allow_shared_kernel")
		if _, err := x.s.UpdateApp(t.Context(), "two", disabled(true)); err != nil {
			t.Fatal(err)
		}
		if _, err := x.s.UpdateApp(t.Context(), "two", disabled(false)); err != nil {
			t.Errorf("an app without a live key: %v", err)
		}
		x.s.MayAddApp = nil
		if _, err := x.s.UpdateApp(t.Context(), "one", disabled(false)); err != nil {
			t.Error(err)
		}
		count(2)
		if first.AppID == "" {
			t.Error("the key does not name its app")
		}
	})
}

func TestOfTwoAppsThatGetTheirFirstKeyAtOnceOneIsRefused(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.s.MayAddApp = func() error { return errors.New("no") }
		const n = 6
		for i := range n {
			x.app(fmt.Sprintf("app %d", i))
		}
		for range 12 { // the moment between looking and adding is short
			made := firstKeysAtOnce(x, n)
			if len(made) != 1 {
				t.Fatalf("%d apps got a key, want 1", len(made))
			}
			if _, err := x.s.RevokeKey(t.Context(), made[0].ID, false); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// firstKeysAtOnce asks for a key of each app at the same moment and gives those that were made.
func firstKeysAtOnce(x *fixture, n int) []*tenant.Key {
	x.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var made []*tenant.Key
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			k, _, err := x.s.CreateKey(x.t.Context(), tenant.NewKey{App: fmt.Sprintf("app %d", i)})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			made = append(made, k)
		})
	}
	close(begin)
	wg.Wait()
	return made
}

func TestDefaultAppIsMadeOnceByServersAtTheSameTime(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		var wg sync.WaitGroup
		ids := make(chan string, 4)
		for range 4 {
			wg.Go(func() {
				a, err := x.s.EnsureDefaultApp(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				ids <- a.ID
			})
		}
		wg.Wait()
		close(ids)
		set := map[string]bool{}
		for id := range ids {
			set[id] = true
		}
		if len(set) != 1 {
			t.Errorf("ids %v", set)
		}
	})
}

func TestBadNamesScopesAndLifetimesAreNamed(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		for _, name := range []string{"", "app_x", " a", "a ", "a/b", "a\x00b", "a\nb", "a\u202eb", "\xff", strings.Repeat("a", 101), "<b>"} {
			_, err := x.s.CreateApp(t.Context(), name)
			wantStatus(t, err, http.StatusBadRequest, "name: ")
		}
		for _, name := range []string{"Größe 1", "第1组", "a.b_c-d", "हिन्दी"} {
			if got := x.app(name); got.Name != name {
				t.Errorf("%q became %q", name, got.Name)
			}
		}
		_, err := x.s.CreateApp(t.Context(), "one")
		wantStatus(t, err, http.StatusConflict, "name: ")
		for _, tt := range []struct {
			n    tenant.NewKey
			path string
		}{
			{tenant.NewKey{}, "app: "},
			{tenant.NewKey{App: "none"}, "app: "},
			{tenant.NewKey{App: "a\x00"}, "app: "},
			{tenant.NewKey{App: "one", Name: "a\n"}, "name: "},
			{tenant.NewKey{App: "one", Scopes: []string{"tokens:mint", "root"}}, "scopes.1: "},
			{tenant.NewKey{App: "one", Scopes: []string{"tokens:mint", "tokens:mint"}}, "scopes.1: "},
			{tenant.NewKey{App: "one", TTL: time.Second}, "ttl_seconds: "},
			{tenant.NewKey{App: "one", TTL: -1}, "ttl_seconds: "},
		} {
			_, _, err := x.s.CreateKey(t.Context(), tt.n)
			wantStatus(t, err, http.StatusBadRequest, tt.path)
		}
		if _, err := x.s.UpdateApp(t.Context(), "one", disabled(true)); err != nil {
			t.Fatal(err)
		}
		_, _, err = x.s.CreateKey(t.Context(), tenant.NewKey{App: "one"})
		wantStatus(t, err, http.StatusBadRequest, "app: the app is disabled")
	})
}

func TestCase61NULNeverReachesTheDatabase(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for _, text := range []string{"a\x00", "\xff"} {
			_, err := x.s.GetApp(t.Context(), text)
			wantStatus(t, err, http.StatusNotFound, "no such app")
			_, err = x.s.UpdateApp(t.Context(), text, disabled(true))
			wantStatus(t, err, http.StatusNotFound, "no such app")
			_, err = x.s.RevokeKey(t.Context(), text, true)
			wantStatus(t, err, http.StatusNotFound, "no such key")
			_, _, err = x.s.ListKeys(t.Context(), text, 10, "")
			wantStatus(t, err, http.StatusNotFound, "no such app")
		}
	})
}

func TestSweepRemovesKeysThatEndedLongAgoOnly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		x.key(tenant.NewKey{App: "one", TTL: 2 * time.Hour})
		forever, _ := x.key(tenant.NewKey{App: "one"})
		count := func() int {
			t.Helper()
			if err := x.s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			keys, _, err := x.s.ListKeys(t.Context(), "one", 100, "")
			if err != nil {
				t.Fatal(err)
			}
			return len(keys)
		}
		x.advance(30 * 24 * time.Hour)
		if n := count(); n != 2 {
			t.Errorf("%d keys, want 2", n)
		}
		x.advance(3 * time.Hour)
		if n := count(); n != 1 {
			t.Errorf("%d keys, want 1", n)
		}
		if _, err := x.s.RevokeKey(t.Context(), forever.ID, false); err != nil {
			t.Error(err)
		}
	})
}

func TestSweepRemovesKeysOfSingleCommandsWhenTheyHaveExpired(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.app("one")
		short, secret := x.key(tenant.NewKey{App: "one", TTL: time.Hour})
		revoked, _ := x.key(tenant.NewKey{App: "one", TTL: time.Hour})
		longer, _ := x.key(tenant.NewKey{App: "one", TTL: time.Hour + time.Second})
		if _, err := x.s.RevokeKey(t.Context(), revoked.ID, false); err != nil {
			t.Fatal(err)
		}
		want := func(when string, ids ...string) {
			t.Helper()
			if err := x.s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			keys, _, err := x.s.ListKeys(t.Context(), "one", 100, "")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, k := range keys {
				got = append(got, k.ID)
			}
			slices.Sort(got)
			slices.Sort(ids)
			if !slices.Equal(got, ids) {
				t.Errorf("%s: %v are left, want %v", when, got, ids)
			}
		}
		x.advance(time.Hour - time.Microsecond)
		want("before its end", short.ID, revoked.ID, longer.ID)
		x.advance(2 * time.Second)
		want("after it", longer.ID)
		_, err := x.auth(tenant.KindAPIKey, "X-Api-Key", secret)
		wantStatus(t, err, http.StatusUnauthorized, "Invalid API key.")
	})
}

// disabled is the change that shuts an app off, or undoes that.
func disabled(off bool) tenant.AppChange { return tenant.AppChange{Disabled: &off} }
