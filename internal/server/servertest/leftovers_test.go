package servertest

import (
	"slices"
	"testing"
)

func TestLeftoversOfADeadRunAreToldFromThePoolOfTheNext(t *testing.T) {
	t.Parallel()
	old := []string{"cgroup /sys/fs/cgroup/airlock-a1-pool-old", "cgroup /sys/fs/cgroup/airlock-a1-container_01"}
	found := []string{
		"process /proc/7/cgroup in airlock-a1-pool-new", "loop device /sys/block/loop0 of /d/workspaces/pool-new.img",
		"loop device /sys/block/loop1 of /d/workspaces/pool-old.img", "process /proc/8/cgroup in airlock-a1-container_02", "runtime folder x",
	}
	if got := withoutPool(slices.Clone(found), old); !slices.Equal(got, found[2:]) {
		t.Errorf("left are %q", got)
	}
	if got := groupWith("4:memory:/x/airlock-a1-pool-b\n0::/\n", "airlock-a1-"); got != "airlock-a1-pool-b" {
		t.Errorf("the group is %q", got)
	}
	if got := groupWith("0::/airlock-a2-c\n", "airlock-a1-"); got != "" {
		t.Errorf("a neighbour's group is ours: %q", got)
	}
}
