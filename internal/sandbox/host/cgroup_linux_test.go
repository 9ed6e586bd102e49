package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOwnGroupIsFoundInEachHierarchy(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"user.slice/session-1.scope", "server"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const hybrid = "4:memory:/server\n3:pids:/hidden\n1:cpu,cpuacct:/server\n0::/user.slice/session-1.scope\n"
	tests := []struct{ name, own, controller, want string }{
		{"v1", hybrid, "memory", "/server"},
		{"v1 with two controllers", hybrid, "cpu", "/server"},
		{"a part that this process does not see", hybrid, "pids", "/"},
		{"v2 beside v1", hybrid, "", "/user.slice/session-1.scope"},
		{"v2 alone", "0::/user.slice/session-1.scope\n", "", "/user.slice/session-1.scope"},
		{"nothing", "", "memory", "/"},
	}
	for _, tt := range tests {
		if got := ownPath(tt.own, root, tt.controller); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Where the own group is refused on v2, the driver goes to the top; the probe must not call that host unusable.
func TestUnifiedHierarchyIsTriedAtTheTopToo(t *testing.T) {
	t.Parallel()
	c := Cgroups{Unified: t.TempDir()}
	var tried []string
	refuse := func(dir string) error {
		tried = append(tried, dir)
		return errors.New("refused")
	}
	if err := c.tryUnified(refuse); err == nil {
		t.Error("a hierarchy that refuses was accepted")
	}
	if !slices.Contains(tried, c.Unified) || len(tried) != 2 {
		t.Errorf("tried %v", tried)
	}
}
