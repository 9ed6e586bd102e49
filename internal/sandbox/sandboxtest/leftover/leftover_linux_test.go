package leftover

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestOnlyEmptyGroupsOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	h := Host{Cgroups: t.TempDir(), Instances: t.TempDir(), Proc: t.TempDir()}
	for _, name := range []string{"aaaa1111bbbb", "cccc2222dddd"} {
		if err := os.WriteFile(filepath.Join(h.Instances, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(h.Instances, "aaaa1111bbbb"), &st); err != nil {
		t.Fatal(err)
	}
	lock := fmt.Sprintf("1: FLOCK  ADVISORY  WRITE 42 00:1f:%d 0 EOF\n", st.Ino)
	if err := os.WriteFile(filepath.Join(h.Proc, "locks"), []byte(lock), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(h.Proc, "42"), 0o755); err != nil { // the one process that lives
		t.Fatal(err)
	}
	groups := map[string]bool{ // stays?
		"cpu/airlock-unit42n1-s1":                true,
		"cpu/airlock-unit43n1-s1":                false,
		"memory/deep/down/airlock-test43n7k-s1":  false,
		"cpu/airlock-test43n7-busy/child":        true, // stands for a process, which a folder cannot hold
		"cpu/airlock-aaaa1111bbbb-container_01x": true,
		"cpu/airlock-cccc2222dddd-container_01x": false,
		"cpu/airlock-eeee3333ffff-container_01x": true, // no lock, so nobody knows
		"cpu/system.slice":                       true,
	}
	for name := range groups {
		if err := os.MkdirAll(filepath.Join(h.Cgroups, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Remove(); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for name := range groups {
		_, err := os.Stat(filepath.Join(h.Cgroups, name))
		got[name] = err == nil
	}
	if d := cmp.Diff(groups, got); d != "" {
		t.Errorf("groups that stay (-want +got):\n%s", d)
	}
}
