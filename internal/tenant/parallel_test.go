package tenant_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/jwt/jwttest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// together runs the functions at the same moment and gives their errors.
func together(fns ...func() error) error {
	errs := make([]error, len(fns))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() {
			<-start
			errs[i] = fn()
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// TestTwoAtOnceAreAsOneAfterTheOther makes every change of administration that reads before it writes twice at once, on two
// services that share the database as two servers do.
func TestTwoAtOnceAreAsOneAfterTheOther(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.issuers()
		other := &tenant.Service{DB: x.s.DB, CursorKey: x.s.CursorKey, Now: x.clock, IdentitySecret: x.s.IdentitySecret, Issuers: x.s.Issuers}
		if err := other.ReadIssuers(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.s.MayAddApp, other.MayAddApp = func() error { return nil }, func() error { return nil }
		both := []*tenant.Service{x.s, other}
		ctx := t.Context()
		twice := func(what string, fn func(i int, s *tenant.Service) error) {
			t.Helper()
			fns := make([]func() error, 4)
			for i := range fns {
				fns[i] = func() error { return fn(i, both[i%2]) }
			}
			if err := together(fns...); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for round := range 8 {
			app := x.app(fmt.Sprint("app", round))
			x.twoSettings(both, app.ID)
			var mu sync.Mutex
			identities := map[string]bool{}
			twice("rotate identity", func(_ int, s *tenant.Service) error {
				_, identity, err := s.RotateIdentity(ctx, app.ID, 0)
				mu.Lock()
				defer mu.Unlock()
				identities[identity] = true
				return err
			})
			if len(identities) != 4 {
				t.Errorf("%d identity tokens for 4 rotations", len(identities))
			}
			newest := x.proven(app, x.token())
			if _, err := x.auth(tenant.KindGateway, newest...); err != nil {
				t.Errorf("the newest identity: %v", err)
			}
			delete(identities, newest[5])
			for old := range identities {
				if _, err := x.auth(tenant.KindGateway, append(newest[:5:5], old)...); err == nil {
					t.Error("an identity that was rotated without an overlap is taken")
				}
			}
			twice("rotate signing", func(_ int, s *tenant.Service) error {
				_, err := s.RotateSigningKey(ctx, 0)
				return err
			})
			live, err := x.s.DB.Read().NewSelect().Table("signing_keys").Where("ends_at IS NULL").Count(ctx)
			if err != nil || live != 1 {
				t.Errorf("%d keys sign, %v", live, err)
			}
			twice("mint", func(_ int, s *tenant.Service) error {
				_, err := s.MintToken(ctx, tenant.NewToken{App: app.ID, User: "u", TTL: time.Hour})
				return err
			})
			twice("create a key", func(_ int, s *tenant.Service) error {
				_, _, err := s.CreateKey(ctx, tenant.NewKey{App: app.ID})
				return err
			})
			twice("block", func(i int, s *tenant.Service) error {
				_, err := s.BlockUser(ctx, fmt.Sprint("idp/u", round), app.ID, true)
				if i == 3 {
					_, err = s.BlockUser(ctx, fmt.Sprint("idp/v", round), "", true)
				}
				return err
			})
			twice("limit", func(i int, s *tenant.Service) error {
				_, err := s.SetLimit(ctx, app.ID, tenant.Limit{User: "u", Messages: i + 1})
				return err
			})
			x.oneIssuer(both, round)
		}
		// Everything at once, in whatever order: nothing waits for itself.
		app := x.app("busy")
		yes, no := true, false
		err := together(
			func() error { _, _, err := x.s.RotateIdentity(ctx, app.ID, 0); return err },
			func() error { _, _, err := other.CreateKey(ctx, tenant.NewKey{App: app.ID}); return err },
			func() error { _, err := x.s.UpdateApp(ctx, app.ID, tenant.AppChange{Disabled: &no}); return err },
			func() error {
				_, err := other.UpdateApp(ctx, "app0", tenant.AppChange{RequireTokenBinding: &yes})
				return err
			},
			func() error { _, err := x.s.RotateSigningKey(ctx, 0); return err },
			func() error { _, _, err := other.AppIdentity(ctx, app.ID); return err },
			func() error { _, err := x.s.AppEnvironment(ctx, "app0"); return err },
		)
		if err != nil {
			t.Error(err)
		}
	})
}

// twoSettings changes different settings of an app at once: both stay.
func (x *fixture) twoSettings(both []*tenant.Service, app string) {
	x.t.Helper()
	ctx, yes, origin, models := x.t.Context(), true, "https://a.example", []string{"m"}
	changes := []tenant.AppChange{{RequireTokenBinding: &yes}, {Origin: &origin}, {AllowedModels: &models}, {Disabled: &yes}}
	fns, answers := make([]func() error, len(changes)), make([]*tenant.App, len(changes))
	for i, ch := range changes {
		fns[i] = func() (err error) { answers[i], err = both[i%2].UpdateApp(ctx, app, ch); return err }
	}
	if err := together(fns...); err != nil {
		x.t.Fatal(err)
	}
	whole := func(a *tenant.App) bool {
		return a.RequireTokenBinding && a.Origin == origin && len(a.AllowedModels) == 1 && a.DisabledAt != nil
	}
	if a, err := x.s.GetApp(ctx, app); err != nil || !whole(a) {
		x.t.Errorf("a change is lost: %+v, %v", a, err)
	}
	// Whoever came last was told of all.
	if !slices.ContainsFunc(answers, whole) {
		x.t.Errorf("nobody is told what the app is now: %+v", answers)
	}
	no, none := false, ""
	back := tenant.AppChange{Disabled: &no, RequireTokenBinding: &no, Origin: &none, AllowedModels: &[]string{}}
	if _, err := x.s.UpdateApp(ctx, app, back); err != nil {
		x.t.Fatal(err)
	}
}

// oneIssuer gives an issuer two ids at once: it has one afterwards, and the other attempt is a conflict.
func (x *fixture) oneIssuer(both []*tenant.Service, round int) {
	x.t.Helper()
	url := fmt.Sprint("https://", round, ".example")
	var mu sync.Mutex
	conflicts := 0
	put := func(s *tenant.Service, id string) error {
		err := s.PutIssuer(x.t.Context(), jwt.Issuer{ID: id, Issuer: url, Alg: jwt.ES256, Key: jwttest.PEM(x.t, &jwttest.Foreign.EC.PublicKey)})
		var we *wire.Error
		if errors.As(err, &we) && we.Type == wire.TypeConflict {
			mu.Lock()
			defer mu.Unlock()
			conflicts++
			return nil
		}
		return err
	}
	err := together(
		func() error { return put(both[0], fmt.Sprint("a", round)) },
		func() error { return put(both[1], fmt.Sprint("b", round)) },
	)
	if err != nil || conflicts != 1 {
		x.t.Errorf("two ids for one issuer: %v, %d conflicts", err, conflicts)
	}
}
