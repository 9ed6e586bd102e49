package rootfs

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// aBuild is what mmdebstrap --verbose says, shortened.
const aBuild = `I: automatically chosen mode: root
I: running apt-get update...
Get:1 https://example.invalid trixie InRelease [140 kB]
I: downloading packages with apt...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
I: extracting archives...
I: installing essential packages...
Unpacking libc6:amd64 (2.41) ...
Setting up libc6:amd64 (2.41) ...
Unpacking bash (5.2) ...
Setting up bash (5.2) ...
I: installing remaining packages inside the chroot...
Reading package lists...
0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
Unpacking python3 (3.13) ...
Setting up python3 (3.13) ...
Processing triggers for libc-bin (2.41) ...
I: cleaning package lists and apt cache...
`

func TestProgressCountsPackagesOfEachPhase(t *testing.T) {
	t.Parallel()
	var got []Progress
	w := &progressWriter{report: func(p Progress) { got = append(got, p) }}
	// Byte by byte: a pipe cuts lines anywhere.
	for i := range len(aBuild) {
		if _, err := w.Write([]byte{aBuild[i]}); err != nil {
			t.Fatal(err)
		}
	}
	want := []Progress{
		{Phase: PhaseUpdate},
		{Phase: PhaseDownload},
		{Phase: PhaseDownload, Total: 4},
		{Phase: PhaseEssential, Total: 4},
		{Phase: PhaseEssential, Done: 1, Total: 4, Item: "libc6"},
		{Phase: PhaseEssential, Done: 2, Total: 4, Item: "libc6"},
		{Phase: PhaseEssential, Done: 3, Total: 4, Item: "bash"},
		{Phase: PhaseEssential, Done: 4, Total: 4, Item: "bash"},
		{Phase: PhaseInstall},
		{Phase: PhaseInstall, Total: 2},
		{Phase: PhaseInstall, Done: 1, Total: 2, Item: "python3"},
		{Phase: PhaseInstall, Done: 2, Total: 2, Item: "python3"},
		{Phase: PhaseClean},
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Error(d)
	}
}

func TestProgressSurvivesAnyOutput(t *testing.T) {
	t.Parallel()
	w := &progressWriter{report: func(p Progress) {
		if p.Total > 0 && p.Done > p.Total {
			t.Errorf("%d of %d", p.Done, p.Total)
		}
	}}
	junk := strings.Repeat("Unpacking a (1) ...\n", 9) + "0 upgraded, x newly\n0 upgraded, 1 newly installed\n" +
		strings.Repeat("Setting up b (1) ...\r", 9) + strings.Repeat("z", 200<<10)
	if _, err := io.Copy(w, strings.NewReader(junk)); err != nil {
		t.Error(err)
	}
	if len(w.rest) > 128<<10 {
		t.Errorf("keeps %d bytes of a line without end", len(w.rest))
	}
}
