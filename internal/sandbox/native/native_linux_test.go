package native_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/native"
)

func testDriver(t *testing.T) *native.Driver {
	t.Helper()
	d, err := native.New(sandbox.Host{ID: "nattest", RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestCreateExecDestroy(t *testing.T) {
	d := testDriver(t)
	w := &sandbox.Workspaces{Dir: t.TempDir()}
	ws, err := w.Create(t.Context(), "w1", sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		t0 := time.Now()
		sb, err := d.Create(t.Context(), sandbox.Spec{ID: "one", RootFS: os.Getenv("AIRLOCK_TEST_ROOTFS"), Workspace: ws})
		if err != nil {
			t.Fatal(err)
		}
		t1 := time.Now()
		var out, errb bytes.Buffer
		res, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"echo", "hi"}, Stdout: &out, Stderr: &errb})
		t2 := time.Now()
		t.Log(res, err, out.String(), errb.String())
		if err := sb.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		t3 := time.Now()
		t.Log("create", t1.Sub(t0), "exec", t2.Sub(t1), "destroy", t3.Sub(t2))
	}
	ws.Detach(t.Context())
}
