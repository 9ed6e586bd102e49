package sandbox

import (
	"slices"
	"testing"
)

func TestMissingRightsAreThoseThatTheKernelDoesNotShow(t *testing.T) {
	t.Parallel()
	var all []string
	for _, r := range Rights() {
		all = append(all, r.Name)
	}
	for _, tt := range []struct {
		name, status string
		want         []string
	}{
		{"root", "Name:\tairlock\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n", nil},
		{"root in a container", "CapEff:\t00000000a80425fb\n", []string{"CAP_SYS_ADMIN"}},
		{"a user", "CapEff:\t0000000000000000\n", all},
	} {
		if got, err := lackedRights(tt.status); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	for _, status := range []string{"", "Name:\tx\n", "CapEff:\tnone\n"} {
		if got, err := lackedRights(status); err == nil {
			t.Errorf("%q: nothing is known, and it lacks %v", status, got)
		}
	}
}
