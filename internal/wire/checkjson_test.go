package wire

import (
	"strconv"
	"testing"
)

// TestNamesOfLargeObjectsAreLookedUpInAMap holds what keeps the check of a hostile object linear, without
// measuring time.
func TestNamesOfLargeObjectsAreLookedUpInAMap(t *testing.T) {
	t.Parallel()
	var n names
	for i := range 1000 {
		if !n.add(strconv.Itoa(i)) {
			t.Fatalf("%d is new and was refused", i)
		}
	}
	if n.set == nil || len(n.list) > 32 {
		t.Errorf("%d names are compared one by one", len(n.list))
	}
	for _, again := range []string{"0", "16", "17", "999"} {
		if n.add(again) {
			t.Errorf("%s was added twice", again)
		}
	}
}
