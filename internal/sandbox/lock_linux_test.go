package sandbox

import "testing"

// Fails if a disk of which others keep a large part counts as full: its operator sees in df that it is not.
func TestDiskUsedIsWhatDfShows(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		all, free, available uint64
		want                 float64
	}{
		{"nothing used", 100, 100, 100, 0},
		{"half", 100, 50, 50, 0.5},
		{"three fifths kept back", 200, 160, 40, 0.5},
		{"nothing to be had", 100, 5, 0, 1},
		{"no file system of blocks", 0, 0, 0, 0},
	} {
		if got := shareUsed(tt.all, tt.free, tt.available); got != tt.want {
			t.Errorf("%s: %g, want %g", tt.name, got, tt.want)
		}
	}
}
