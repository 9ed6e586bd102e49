package sandboxtest

import (
	"context"
	"testing"
)

// The folders of code are made in two places: in the template of a workspace, and on a tmpfs by what sets up a sandbox that
// has none and must import nothing. What code finds is the same.
func TestSandboxWithoutAWorkspaceHasTheSameFolders(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *Env) {
		const list = `find /workspace /tmp /files -printf '%p %y %m %U %G\n' | sort`
		want := sh(t, start(t, e), list)
		if want.Stdout == "" {
			t.Fatalf("nothing is there: %v", want)
		}
		spec := e.NewSpec(nil)
		sb, err := e.Driver.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := sb.Destroy(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		wantOutput(t, sh(t, &Box{Sandbox: sb, Spec: spec}, list), want.Stdout)
	})
}
