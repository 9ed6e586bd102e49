package container_test

import (
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func TestOutputsInAContainerOfTheAppBelongToWhoAsked(t *testing.T) {
	t.Parallel()
	e := containertest.New(t, dbtest.SQLite(t))
	u := tenant.Caller{AppID: e.Caller.AppID, UserID: "airlock/u", Scope: tenant.ScopeApp}
	v := tenant.Caller{AppID: e.Caller.AppID, UserID: "airlock/v", Scope: tenant.ScopeUser}
	c, err := e.Create(t.Context(), u, container.CreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []tenant.Caller{u, v} {
		l, err := e.Acquire(t.Context(), who, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := l.OutputDir(t.Context(), "call")
		if err != nil {
			t.Fatal(err)
		}
		sh(t, l, map[string]string{"OUTPUT_DIR": dir}, `echo x > "$OUTPUT_DIR/a"`)
		files, _, err := l.Export(t.Context(), "call")
		l.Release(t.Context())
		want := tenant.Owner{AppID: u.AppID, UserID: who.UserID, Scope: tenant.ScopeApp}
		if err != nil || len(files) != 1 || files[0].Owner != want {
			t.Errorf("%s makes %+v (%v), want one file of %+v", who.UserID, files, err, want)
		}
	}
}

func TestContainersAreMadeOfFilesByTheFlowRule(t *testing.T) {
	t.Parallel()
	e := containertest.New(t, dbtest.SQLite(t))
	own := e.Upload(t, e.Caller, "own.txt", "x")
	shared := e.Caller
	shared.Scope = tenant.ScopeApp
	_, err := e.Create(t.Context(), shared, container.CreateParams{Files: []file.ID{own.ID}})
	if got := wireError(t, err, 400, tenant.CodeScopeMismatch); !strings.Contains(got.Message, "files.0") || !strings.Contains(got.Message, string(own.ID)) {
		t.Errorf("told %q", got.Message)
	}
	page, err := e.List(t.Context(), shared, container.ListParams{})
	if err != nil || len(page.Data) != 0 {
		t.Errorf("%d containers were made (%v)", len(page.Data), err)
	}
	private := create(t, e, container.CreateParams{})
	_, err = e.Fork(t.Context(), shared, private.ID)
	if got := wireError(t, err, 400, tenant.CodeScopeMismatch); !strings.Contains(got.Message, "user scope") {
		t.Errorf("a private container is forked for the app: %q", got.Message)
	}
}
